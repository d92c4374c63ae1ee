//! The task behind a link.

mod backoff;
mod silence;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    CloseCode, Connection, Link, LinkState,
    dial::dial,
    link::{LinkOrders, LinkReporter},
    shared::EndpointShared,
};
use crate::{
    error::{CloseReason, ConnectError},
    id::NodeId,
};
use backoff::Backoff;

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
        let Some(dialled) = dial_peer(&shared, peer, &mut orders).await else { return };
        let lost = match dialled {
            Ok(connection) => {
                let since = Instant::now();
                reporter.report(LinkState::Up(connection.clone()));
                let gone = until_gone(&connection, shared.config.idle_timeout);
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
        if !pause(&mut backoff, shared.carrier.chance(), &mut orders, dialable).await {
            return;
        }
    }
}

/// Waits until the connection is gone. Closes it if nothing is acknowledged any more.
async fn until_gone(connection: &Connection, idle_timeout: Duration) -> CloseReason {
    tokio::select! {
        biased;
        reason = connection.closed() => reason,
        () = silence::until_too_long(connection, idle_timeout) => {
            connection.close(CloseCode::REPLACED, "nothing is acknowledged");
            CloseReason::Unacknowledged
        }
    }
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
/// that one. `None` if the link is given up.
async fn dial_peer(
    shared: &Arc<EndpointShared>,
    peer: NodeId,
    orders: &mut watch::Receiver<LinkOrders>,
) -> Option<Result<Connection, ConnectError>> {
    loop {
        let addresses = addresses_of(shared, peer, &orders.borrow_and_update().addresses);
        tokio::select! {
            biased;
            dialled = dial_each(shared, peer, &addresses) => return Some(dialled),
            called = stated_elsewhere(shared, peer, &addresses, orders.clone()) => called?,
        }
    }
}

/// Addresses of `peer`. Its own connections to this node come first: users of the link may know different incarnations
/// of it, but the one that is connected is alive there.
fn addresses_of(shared: &EndpointShared, peer: NodeId, told: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut places = Vec::new();
    for addr in shared.registry.stated_addrs(peer).iter().chain(told) {
        if !places.contains(addr) {
            places.push(*addr);
        }
    }
    places
}

/// Waits until `peer` connects from an address that is not among `places`. `None` if the link is given up.
async fn stated_elsewhere(
    shared: &EndpointShared,
    peer: NodeId,
    places: &[SocketAddr],
    mut orders: watch::Receiver<LinkOrders>,
) -> Option<()> {
    while shared.registry.stated_addrs(peer).iter().all(|addr| places.contains(addr)) {
        orders.changed().await.ok()?;
    }
    Some(())
}

/// Dials one address after the other. Returns the first connection, or the last error.
async fn dial_each(
    shared: &Arc<EndpointShared>,
    peer: NodeId,
    addresses: &[SocketAddr],
) -> Result<Connection, ConnectError> {
    let mut last = ConnectError::NoAddress;
    for addr in addresses {
        match dial(shared, *addr, Some(peer)).await {
            Ok(connection) => return Ok(connection),
            Err(ConnectError::EndpointClosed) => return Err(ConnectError::EndpointClosed),
            Err(error) => last = error,
        }
    }
    Err(last)
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
