//! The task behind a link.

mod backoff;
mod silence;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{
    CloseCode, Connection, Link, LinkState,
    answered::in_order,
    dial::{DialFailure, dial},
    link::{LinkOrders, LinkReporter},
    shared::EndpointShared,
    staggered::NEXT_DELAY,
};
use crate::{
    error::{CloseReason, ConnectError},
    id::NodeId,
};
use backoff::Backoff;

/// How often a link looks whether its peer has moved. QUIC tells nobody when a connection migrates.
const MOVE_CHECK_PERIOD: Duration = Duration::from_millis(200);

/// A connection to an address that the peer has left is given up after so long without an acknowledgement.
const MOVED_TIMEOUT: Duration = Duration::from_millis(600);

/// The link to `peer`, with a task behind it if the link is new.
pub(super) fn link(shared: &Arc<EndpointShared>, peer: NodeId, addresses: Vec<SocketAddr>) -> Link {
    shared.links.get(peer, addresses, |orders, reporter| {
        shared.runtime.spawn(run(Arc::clone(shared), peer, orders, reporter));
    })
}

/// Dials, waits until the connection is gone, and dials again, until the link or the endpoint is given up.
async fn run(
    shared: Arc<EndpointShared>,
    peer: NodeId,
    mut orders: watch::Receiver<LinkOrders>,
    reporter: LinkReporter,
) {
    let mut backoff = Backoff::new(shared.config.redial_min, shared.config.redial_max);
    loop {
        let Some((dialled, places)) = dial_peer(&shared, peer, &mut orders).await else { return };
        let lost = match dialled {
            Ok(connection) => {
                let since = Instant::now();
                reporter.report(LinkState::Up(connection.clone()));
                let gone = until_gone(&shared, &connection);
                let Some(reason) = unless_given_up(&orders, gone).await else { return };
                // Only a connection that lasted resets the pause. One that breaks at once, again and again, must not be
                // dialled without a pause.
                if since.elapsed() > shared.config.redial_max {
                    backoff.reset();
                }
                lost(reason)
            }
            Err(error) => error,
        };
        let closed = lost == ConnectError::EndpointClosed;
        let dialable = lost != ConnectError::NoAddress;
        tracing::trace!(%peer, error = %lost, "link down");
        reporter.report(LinkState::Down(Some(Arc::new(lost))));
        if closed {
            return;
        }
        let called = orders.clone();
        tokio::select! {
            biased;
            goes_on = pause(&mut backoff, shared.carrier.chance(), &mut orders, dialable) => if !goes_on { return },
            called = stated_elsewhere(&shared, peer, &places, called) => match called {
                Some(()) => backoff.reset(),
                None => return,
            },
        }
    }
}

/// Waits until the connection is gone. Closes it if nothing is acknowledged any more.
async fn until_gone(shared: &EndpointShared, connection: &Connection) -> CloseReason {
    let idle_timeout = shared.config.idle_timeout;
    let moved_and_silent = async {
        while !shared.registry.has_moved(connection.peer().id, connection.remote()) {
            sleep(MOVE_CHECK_PERIOD).await;
        }
        silence::until_too_long(connection, MOVED_TIMEOUT.min(idle_timeout)).await;
    };
    tokio::select! {
        biased;
        reason = connection.closed() => return reason,
        () = silence::until_too_long(connection, idle_timeout) => {}
        () = moved_and_silent => {}
    }
    connection.close(CloseCode::REPLACED, "nothing is acknowledged");
    CloseReason::Unacknowledged
}

/// Waits for the time of the next dial, or new orders. `false` if the link is given up.
async fn pause(backoff: &mut Backoff, chance: f64, orders: &mut watch::Receiver<LinkOrders>, dialable: bool) -> bool {
    let pause = backoff.pause(chance);
    tokio::select! {
        biased;
        () = sleep(pause), if dialable => true,
        changed = orders.changed() => {
            backoff.reset();
            changed.is_ok()
        }
    }
}

/// Dials the peer at all its addresses. If it connects to this node from another address meanwhile, starts over with
/// that one. Returns the addresses, too. `None` if the link is given up.
async fn dial_peer(
    shared: &Arc<EndpointShared>,
    peer: NodeId,
    orders: &mut watch::Receiver<LinkOrders>,
) -> Option<(Result<Connection, ConnectError>, Vec<SocketAddr>)> {
    loop {
        let addresses = addresses_of(shared, peer, &orders.borrow_and_update().addresses);
        tokio::select! {
            biased;
            dialled = dial_each(shared, peer, &addresses) => return Some((dialled, addresses)),
            called = stated_elsewhere(shared, peer, &addresses, orders.clone()) => called?,
        }
    }
}

/// Addresses of `peer`. Its own connections to this node come first: users of the link may know different incarnations
/// of it, but the one that is connected is alive there. Of the others, some may be reached from other hosts only.
fn addresses_of(shared: &EndpointShared, peer: NodeId, told: &[SocketAddr]) -> Vec<SocketAddr> {
    in_order(shared.registry.stated_addrs(peer), &shared.registry.answered_addrs(peer), told)
}

/// Waits until `peer` may be dialled at an address that is not among `places`, by its own connections. `None` if the link
/// is given up.
async fn stated_elsewhere(
    shared: &EndpointShared,
    peer: NodeId,
    places: &[SocketAddr],
    mut orders: watch::Receiver<LinkOrders>,
) -> Option<()> {
    while shared.registry.stated_addrs(peer).iter().all(|addr| places.contains(addr)) {
        // A timeout means that it is time to look again.
        if let Ok(changed) = timeout(MOVE_CHECK_PERIOD, orders.changed()).await {
            changed.ok()?;
        }
    }
    Some(())
}

/// Dials one address after the other: the next one when the one before has failed, or has not answered in time. Returns the first
/// connection, or the most informative error.
async fn dial_each(
    shared: &Arc<EndpointShared>,
    peer: NodeId,
    addresses: &[SocketAddr],
) -> Result<Connection, ConnectError> {
    if let [addr] = addresses {
        return dial(shared, *addr, Some(peer)).await;
    }
    let mut failure = DialFailure::new(shared.id);
    let mut next = addresses.iter().copied();
    let mut dials = JoinSet::new();
    let mut more = true;
    while more || !dials.is_empty() {
        if let Some(addr) = next.next() {
            let shared = Arc::clone(shared);
            dials.spawn(async move { dial(&shared, addr, Some(peer)).await });
        } else {
            more = false;
        }
        let delay = if more { NEXT_DELAY } else { shared.config.hello_timeout };
        match timeout(delay, dials.join_next()).await {
            Ok(Some(Ok(Err(ConnectError::EndpointClosed)))) => return Err(ConnectError::EndpointClosed),
            Ok(Some(Ok(Err(error)))) => failure.note(error),
            Ok(Some(Ok(Ok(connection)))) => return Ok(connection),
            // Nothing is dialled, a dial goes on, or one has panicked.
            Ok(None | Some(Err(_))) | Err(_) => {}
        }
    }
    Err(failure.reason())
}

fn lost(reason: CloseReason) -> ConnectError {
    match reason {
        CloseReason::Refused(refusal) => ConnectError::Refused(refusal),
        reason => ConnectError::Lost(reason),
    }
}

/// The result of `task`, or `None` if the link is given up first. Orders that come meanwhile stay unread.
async fn unless_given_up<T>(orders: &watch::Receiver<LinkOrders>, task: impl Future<Output = T>) -> Option<T> {
    let mut watched = orders.clone();
    let given_up = async { while watched.changed().await.is_ok() {} };
    tokio::select! {
        biased;
        done = task => Some(done),
        () = given_up => None,
    }
}
