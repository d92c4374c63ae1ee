//! The task behind a link.

use std::{net::SocketAddr, sync::Arc};

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{LinkState, Orders, Teller, backoff::Backoff};
use crate::{
    error::{CloseReason, ConnectError},
    id::NodeId,
    transport::{Connection, dial::dial, endpoint::Shared},
};

/// Dials, waits until the connection is gone, dials again; until the link or the endpoint is given up.
pub(super) async fn run(shared: Arc<Shared>, peer: NodeId, mut orders: watch::Receiver<Orders>, teller: Teller) {
    let mut backoff = Backoff::new(shared.config.redial_min, shared.config.redial_max);
    loop {
        let addresses = orders.borrow_and_update().addresses.clone();
        let Some(dialled) = unless_given_up(&mut orders, dial_each(&shared, peer, &addresses)).await else { return };
        let lost = match dialled {
            Ok(connection) => {
                let since = Instant::now();
                teller.tell(LinkState::Up(connection.clone()));
                let Some(reason) = unless_given_up(&mut orders, connection.closed()).await else { return };
                // One that breaks at once, again and again, must not be dialled without a pause.
                if since.elapsed() > shared.config.redial_max {
                    backoff.reset();
                }
                lost(reason)
            }
            Err(ConnectError::EndpointClosed) => ConnectError::EndpointClosed,
            Err(error) => error,
        };
        let closed = lost == ConnectError::EndpointClosed;
        let dialable = lost != ConnectError::NoAddress;
        tracing::trace!(%peer, error = %lost, "link down");
        teller.tell(LinkState::Down(Some(Arc::new(lost))));
        if closed {
            return;
        }
        if !pause(&mut backoff, shared.carrier.chance(), &mut orders, dialable).await {
            return;
        }
    }
}

/// Waits for the time of the next dial, or new orders. `false` if the link is given up.
async fn pause(backoff: &mut Backoff, chance: f64, orders: &mut watch::Receiver<Orders>, dialable: bool) -> bool {
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

/// Dials one address after the other: the first connection, or the last error.
async fn dial_each(shared: &Arc<Shared>, peer: NodeId, addresses: &[SocketAddr]) -> Result<Connection, ConnectError> {
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

/// What `task` brings, `None` if nobody holds the link any more. Orders that come meanwhile stay unseen.
async fn unless_given_up<T>(orders: &mut watch::Receiver<Orders>, task: impl Future<Output = T>) -> Option<T> {
    let mut watched = orders.clone();
    let given_up = async { while watched.changed().await.is_ok() {} };
    tokio::select! {
        biased;
        done = task => Some(done),
        () = given_up => None,
    }
}
