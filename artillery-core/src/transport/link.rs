//! Links: a connection to one peer that is dialled again when it breaks.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::watch;

use super::{CloseCode, Connection, PeerInfo, waiters::Waiters};
use crate::{error::ConnectError, id::NodeId};

/// Whether there is a connection now.
#[derive(Debug, Clone)]
pub enum LinkState {
    /// There is.
    Up(Connection),
    /// There is none; why the last try failed, `None` if there was no try yet.
    Down(Option<Arc<ConnectError>>),
}

/// A link to one peer. Clones are the same link; it is given up when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Link {
    inner: Arc<LinkInner>,
}

#[derive(Debug)]
struct LinkInner {
    peer: NodeId,
    /// The task ends when this is dropped.
    orders: watch::Sender<LinkOrders>,
    state: watch::Receiver<LinkState>,
    waiters: Arc<Waiters>,
}

/// What a link's task tells.
pub(super) struct LinkReporter {
    /// `None` once it tells nothing more.
    state: Option<watch::Sender<LinkState>>,
    waiters: Arc<Waiters>,
}

impl LinkReporter {
    pub(super) fn report(&self, state: LinkState) {
        if let Some(told) = &self.state {
            told.send_replace(state);
        }
        self.waiters.wake();
    }
}

impl Drop for LinkReporter {
    fn drop(&mut self) {
        self.state = None;
        self.waiters.wake();
    }
}

/// What a link's task is told.
#[derive(Debug, Clone, Default)]
pub(super) struct LinkOrders {
    pub(super) addresses: Vec<SocketAddr>,
    /// How often it was asked to dial at once.
    nudges: u64,
}

impl Link {
    /// The peer.
    pub fn peer(&self) -> NodeId {
        self.inner.peer
    }

    /// The connection, if there is one now.
    pub fn connection(&self) -> Option<Connection> {
        match &*self.inner.state.borrow() {
            LinkState::Up(connection) if connection.close_reason().is_none() => Some(connection.clone()),
            _ => None,
        }
    }

    /// Whether there was a connection when its end was last looked for: cheaper than [`connection`](Self::connection), which
    /// looks.
    pub fn is_up(&self) -> bool {
        matches!(&*self.inner.state.borrow(), LinkState::Up(_))
    }

    /// Waits for a connection; an error only when the endpoint is closed.
    ///
    /// # Errors
    /// [`ConnectError::EndpointClosed`].
    pub async fn connected(&self) -> Result<Connection, ConnectError> {
        let found = || match self.connection() {
            Some(connection) => Some(Ok(connection)),
            None => self.inner.state.has_changed().is_err().then_some(Err(ConnectError::EndpointClosed)),
        };
        self.inner.waiters.until(found).await
    }

    /// Follows the link. It does not keep it: hold a [`Link`] too.
    pub fn watch(&self) -> LinkWatch {
        let mut state = self.inner.state.clone();
        state.mark_changed();
        LinkWatch { state }
    }

    /// Sets where the peer may be dialled, beside the places that it calls from itself: while it has a connection to
    /// this node, the address that it told there comes first. New addresses are dialled at once.
    pub fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        self.inner.orders.send_if_modified(|orders| {
            let new = orders.addresses != addresses;
            orders.addresses = addresses;
            new
        });
    }

    /// Dials at once if there is no connection, instead of after the pause.
    pub fn nudge(&self) {
        self.inner.orders.send_modify(|orders| orders.nudges += 1);
    }
}

/// Follows a link's state. It may skip states that lasted shortly, never the last one.
#[derive(Debug, Clone)]
pub struct LinkWatch {
    state: watch::Receiver<LinkState>,
}

impl LinkWatch {
    /// The state now.
    pub fn current(&self) -> LinkState {
        self.state.borrow().clone()
    }

    /// Waits for a state that was not seen yet, the present one at first; `None` when the link is given up.
    pub async fn changed(&mut self) -> Option<LinkState> {
        self.state.changed().await.ok()?;
        Some(self.state.borrow_and_update().clone())
    }
}

/// All links of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Links {
    by_peer: Mutex<BTreeMap<NodeId, Weak<LinkInner>>>,
}

impl Links {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Weak<LinkInner>>> {
        // No code that holds it can panic halfway through a change.
        self.by_peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link to `peer`. A new one is kept by the task that `spawn` starts.
    pub(super) fn get(
        &self,
        peer: NodeId,
        addresses: Vec<SocketAddr>,
        spawn: impl FnOnce(watch::Receiver<LinkOrders>, LinkReporter),
    ) -> Link {
        let mut links = self.lock();
        if let Some(inner) = links.get(&peer).and_then(Weak::upgrade) {
            let link = Link { inner };
            if !addresses.is_empty() {
                link.set_addresses(addresses);
            }
            return link;
        }
        let (orders, todo) = watch::channel(LinkOrders { addresses, nudges: 0 });
        let (told, state) = watch::channel(LinkState::Down(None));
        let waiters = Arc::<Waiters>::default();
        spawn(todo, LinkReporter { state: Some(told), waiters: waiters.clone() });
        let inner = Arc::new(LinkInner { peer, orders, state, waiters });
        links.retain(|_, link| link.strong_count() > 0);
        links.insert(peer, Arc::downgrade(&inner));
        Link { inner }
    }

    /// A node has dialled this one, so it can be reached again; and if it was started anew, a connection to its former
    /// process is of no use any more.
    pub(super) fn heard_from(&self, peer: &PeerInfo) {
        let Some(inner) = self.lock().get(&peer.id.node).and_then(Weak::upgrade) else { return };
        let link = Link { inner };
        match link.connection() {
            Some(connection) if connection.peer().id != peer.id => {
                connection.close(CloseCode::REPLACED, "another process of this node has called");
            }
            Some(_) => {}
            None => link.nudge(),
        }
    }
}
