//! Links to other nodes. Each is created when it is first needed.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
    time::Duration,
};

use artillery_core::{error::ConnectError, transport::Endpoint};
use tokio::time::{Instant, timeout_at};

use super::Router;
use crate::{Error, NodeId, error::NotApplied, rpc::channel::Channel};

/// How long the router waits for a missing connection before it asks another member, or queries the routing.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

#[derive(Clone)]
pub(super) struct Peers {
    pub(super) endpoint: Option<Endpoint>,
    pub(super) channels: BTreeMap<NodeId, Arc<Channel>>,
}

impl Peers {
    pub(super) fn is_connected(&self, node: NodeId) -> bool {
        self.channels.get(&node).is_some_and(|channel| channel.is_connected())
    }

    /// Whether the node isn't connected, and the last attempt to reach it failed.
    pub(super) fn is_unreached(&self, node: NodeId) -> bool {
        self.channels.get(&node).is_some_and(|channel| channel.is_unreached())
    }
}

impl Router {
    /// The connected channel to a node. Waits at most [`CONNECT_TIMEOUT`], even if the call has more time.
    pub(super) async fn reached(&self, node: NodeId, deadline: Instant) -> Result<Arc<Channel>, Error> {
        let channel = self.channel(node)?;
        if channel.is_connected() {
            return Ok(channel);
        }
        let until = deadline.min(Instant::now() + CONNECT_TIMEOUT);
        let connected = timeout_at(until, channel.link().connected()).await;
        channel.awaited(matches!(connected, Ok(Ok(_))));
        match connected {
            Ok(Ok(_)) => Ok(channel),
            Ok(Err(ConnectError::EndpointClosed)) => Err(Error::not_applied(NotApplied::Stopped)),
            Ok(Err(reason)) => {
                Err(Error::not_applied(NotApplied::Unreachable { node, reason: Some(Arc::new(reason)) }))
            }
            Err(_) => Err(Error::not_applied(NotApplied::Unreachable { node, reason: channel.failure() })),
        }
    }

    pub(super) fn channel(&self, node: NodeId) -> Result<Arc<Channel>, Error> {
        if let Some(channel) = self.peers().channels.get(&node) {
            return Ok(channel.clone());
        }
        let routing = self.known();
        self.change_peers(|peers| {
            let Some(endpoint) = &peers.endpoint else { return Err(Error::not_applied(NotApplied::Stopped)) };
            // Another caller may have added the channel.
            if let Some(channel) = peers.channels.get(&node) {
                return Ok(channel.clone());
            }
            let known = routing.as_ref().and_then(|routing| routing.nodes.get(&node));
            let Some(known) = known else { return Err(Error::not_applied(NotApplied::UnknownNode(node))) };
            let link = endpoint.link(node, known.addrs.clone());
            let channel = Arc::new(Channel::new(link, endpoint.config(), &self.carrier));
            peers.channels.insert(node, channel.clone());
            Ok(channel)
        })
    }

    pub(super) fn peers(&self) -> Arc<Peers> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Applies a change to a copy of the peers, one change at a time. Readers see each change as a whole.
    pub(super) fn change_peers<T>(&self, change: impl FnOnce(&mut Peers) -> T) -> T {
        // A panic leaves nothing half done: the copy is dropped.
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut peers = Peers::clone(&self.peers());
        let result = change(&mut peers);
        let before =
            std::mem::replace(&mut *self.peers.write().unwrap_or_else(PoisonError::into_inner), Arc::new(peers));
        // Links may end in this drop. Readers need not wait for it; only other changes do.
        drop(before);
        result
    }
}
