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

/// How often a link checks whether its peer has moved. QUIC does not report that a connection has migrated.
const MOVE_CHECK_PERIOD: Duration = Duration::from_millis(200);

/// A connection to an address that the peer has left is closed after this time without an acknowledgement.
const MOVED_TIMEOUT: Duration = Duration::from_millis(600);

/// The link to `peer`. Starts the link's task if the link is new.
pub(super) fn link(shared: &Arc<EndpointShared>, peer: NodeId, addresses: Vec<SocketAddr>) -> Link {
    shared.links.get(peer, addresses, |orders, reporter| {
        shared.runtime.spawn(run(Arc::clone(shared), peer, orders, reporter));
    })
}

/// Dials, waits until the connection is closed, and dials again, until the link is dropped or the endpoint is closed.
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
                // Only a connection that lasted resets the pause. Otherwise a connection that always breaks at once
                // would be redialled after the shortest pause each time.
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

/// Waits until the connection is closed. Closes it if acknowledgements cease.
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
    connection.close(CloseCode::REPLACED, "no acknowledgement was received");
    CloseReason::Unacknowledged
}

/// Waits for new orders or, if an address is known (`dialable`), for the time of the next dial. Returns `false` if the
/// link was dropped.
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

/// Dials all addresses of the peer, and starts over if a connection from the peer states another address in the
/// meantime. Also returns the dialled addresses. `None` if the link was dropped.
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

/// The addresses of `peer`. Those stated on its own connections to this node are dialled first: users of the link may
/// know different incarnations of the peer, but the connected one is alive. Some of the other addresses may be
/// reachable only from other hosts.
fn addresses_of(shared: &EndpointShared, peer: NodeId, told: &[SocketAddr]) -> Vec<SocketAddr> {
    in_order(shared.registry.stated_addrs(peer), &shared.registry.answered_addrs(peer), told)
}

/// Waits until the connections of `peer` to this node state an address that is not among `places`. `None` if the link
/// was dropped.
async fn stated_elsewhere(
    shared: &EndpointShared,
    peer: NodeId,
    places: &[SocketAddr],
    mut orders: watch::Receiver<LinkOrders>,
) -> Option<()> {
    while shared.registry.stated_addrs(peer).iter().all(|addr| places.contains(addr)) {
        // A timeout only means that it is time to check again.
        if let Ok(changed) = timeout(MOVE_CHECK_PERIOD, orders.changed()).await {
            changed.ok()?;
        }
    }
    Some(())
}

/// Dials the addresses one after the other. The next one is dialled when a dial fails, or after [`NEXT_DELAY`] without
/// an answer. Returns the first connection, or the most informative error.
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
            // No dial is left, one is still in progress, or one has panicked.
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

/// The result of `task`, or `None` if the link is dropped first. New orders stay unread.
async fn unless_given_up<T>(orders: &watch::Receiver<LinkOrders>, task: impl Future<Output = T>) -> Option<T> {
    let mut watched = orders.clone();
    let given_up = async { while watched.changed().await.is_ok() {} };
    tokio::select! {
        biased;
        done = task => Some(done),
        () = given_up => None,
    }
}
