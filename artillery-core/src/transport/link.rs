//! Links: a connection to one peer that is dialled again when it breaks.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::watch;

use super::{CloseCode, Connection, PeerInfo, waiters::Waiters};
use crate::{error::ConnectError, id::NodeId};

/// The state of a link.
#[derive(Debug, Clone)]
pub enum LinkState {
    /// The link is connected. The connection may just have been closed.
    Up(Connection),
    /// The link is not connected. Contains the error of the last attempt or connection, or `None` before the first
    /// attempt has ended.
    Down(Option<Arc<ConnectError>>),
}

/// A link to one peer. Clones share the link. Dropping the last clone ends it and its task.
#[derive(Debug, Clone)]
pub struct Link {
    inner: Arc<LinkInner>,
}

#[derive(Debug)]
struct LinkInner {
    peer: NodeId,
    orders: watch::Sender<LinkOrders>,
    state: watch::Receiver<LinkState>,
    waiters: Arc<Waiters>,
}

/// Publishes the state of a link from its task.
pub(super) struct LinkReporter {
    /// `None` once the task has ended.
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

#[derive(Debug, Clone, Default)]
pub(super) struct LinkOrders {
    pub(super) addresses: Vec<SocketAddr>,
    nudges: u64,
}

impl Link {
    /// The node that the link leads to.
    pub fn peer(&self) -> NodeId {
        self.inner.peer
    }

    /// The current connection, if there is one.
    pub fn connection(&self) -> Option<Connection> {
        match &*self.inner.state.borrow() {
            LinkState::Up(connection) if connection.close_reason().is_none() => Some(connection.clone()),
            _ => None,
        }
    }

    /// Whether the last reported state is up. Cheaper than [`connection`](Self::connection), which checks the
    /// connection.
    pub fn is_up(&self) -> bool {
        matches!(&*self.inner.state.borrow(), LinkState::Up(_))
    }

    /// Waits for a connection. Fails only if the endpoint is closed.
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

    /// Watches the state of the link. A watch does not keep the link alive: hold a [`Link`] too.
    pub fn watch(&self) -> LinkWatch {
        let mut state = self.inner.state.clone();
        state.mark_changed();
        LinkWatch { state }
    }

    /// Sets the addresses of the peer. A link that is waiting to redial dials them at once. If the peer has a
    /// connection to this node, the address that it stated there is tried first.
    pub fn set_addresses(&self, addresses: Vec<SocketAddr>) {
        self.inner.orders.send_if_modified(|orders| {
            let new = orders.addresses != addresses;
            orders.addresses = addresses;
            new
        });
    }

    /// Dials at once if there is no connection, instead of after the pause. If there is one, the first redial after its
    /// end has no pause.
    pub fn nudge(&self) {
        self.inner.orders.send_modify(|orders| orders.nudges += 1);
    }
}

/// Watches a link's state. It may skip short-lived states, but never the latest one.
#[derive(Debug, Clone)]
pub struct LinkWatch {
    state: watch::Receiver<LinkState>,
}

impl LinkWatch {
    /// The current state.
    pub fn current(&self) -> LinkState {
        self.state.borrow().clone()
    }

    /// Waits for a state that was not returned yet, starting with the current one. `None` once the link has ended.
    pub async fn changed(&mut self) -> Option<LinkState> {
        self.state.changed().await.ok()?;
        Some(self.state.borrow_and_update().clone())
    }
}

#[derive(Debug, Default)]
pub(super) struct Links {
    by_peer: Mutex<BTreeMap<NodeId, Weak<LinkInner>>>,
}

impl Links {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Weak<LinkInner>>> {
        // A poisoned lock is still consistent: no code that holds it can panic halfway through a change.
        self.by_peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the link to `peer`. For a new link, `spawn` starts its task.
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

    /// Handles a connection dialled by a peer. The peer is reachable, so dial it now. If its process was restarted,
    /// close the connection to the former process.
    pub(super) fn heard_from(&self, peer: &PeerInfo) {
        let Some(inner) = self.lock().get(&peer.id.node).and_then(Weak::upgrade) else { return };
        let link = Link { inner };
        match link.connection() {
            Some(connection) if connection.peer().id != peer.id => {
                connection.close(CloseCode::REPLACED, "another process of this node has connected");
            }
            Some(_) => {}
            None => link.nudge(),
        }
    }
}
