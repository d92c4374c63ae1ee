//! The handle to a client.

use std::{sync::Arc, time::Duration};

use artillery_core::{
    error::{BindError, ConnectError, IdentityError},
    identity::Identity,
    transport::{Counters, Endpoint},
};

use super::Candidates;
use crate::{
    Epoch, Error, Kv, NodeId, Routing,
    control::message::{AdminCommand, ArrangeError},
    rpc::router::Router,
};

/// A connection to a cluster, without a share in it. Clones are the same client; it ends with the last of them and of
/// the handles made from it.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) router: Arc<Router>,
    pub(super) endpoint: Endpoint,
    /// What was learnt on connecting.
    pub(super) first: Arc<Routing>,
    pub(super) candidates: Candidates,
    pub(super) name: Arc<str>,
}

impl Client {
    /// The cluster's data.
    pub fn kv(&self) -> Kv {
        Kv::new(self.router.clone())
    }

    /// Chains, members and addresses as they are known here now: perhaps old, never invented.
    pub fn routing(&self) -> Arc<Routing> {
        self.router.known().unwrap_or_else(|| self.first.clone())
    }

    /// Asks the cluster for its chains, members and addresses.
    ///
    /// # Errors
    /// [`Error::NotApplied`], when nobody answers in time.
    pub async fn refresh(&self, timeout: Duration) -> Result<Arc<Routing>, Error> {
        self.router.refresh_within(timeout).await
    }

    /// What a node says of itself: the JSON text that its HTTP `/status` shows.
    ///
    /// # Errors
    /// [`Error::NotApplied`], when the node isn't known or doesn't answer in time.
    pub async fn node_status(&self, node: NodeId, timeout: Duration) -> Result<String, Error> {
        self.router.status(node, timeout).await
    }

    /// Has one node do what an operator wants; what the inner result says was said by that node. Where the outer one is
    /// an error it may have been done all the same: look at the configuration.
    ///
    /// # Errors
    /// [`Error::NotApplied`], when the node isn't known or doesn't answer in time.
    pub async fn arrange(
        &self,
        node: NodeId,
        wish: AdminCommand,
        timeout: Duration,
    ) -> Result<Result<Option<Epoch>, ArrangeError>, Error> {
        self.router.arrange(node, wish, timeout).await
    }

    /// Where nodes may be found; add to it whatever turns up.
    pub fn candidates(&self) -> &Candidates {
        &self.candidates
    }

    /// What went over its socket so far.
    pub fn traffic(&self) -> Counters {
        self.endpoint.counters()
    }

    /// From now on trusts whom `identity` says and appears as it says, under the name that this client has
    /// ([`name`](Self::name)); see [`Endpoint::set_identity`] for how a secret is replaced without a stop.
    ///
    /// # Errors
    /// [`IdentityError::OtherName`], [`IdentityError::Unusable`]: nothing has changed.
    pub fn set_identity(&self, identity: Identity) -> Result<(), IdentityError> {
        self.endpoint.set_identity(identity)
    }

    /// The name in its certificate.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Closes all connections and tells the nodes. Calls under way end as if their connections were lost, and are not tried
    /// again. Nodes that don't answer are waited for a second, however many there are.
    pub async fn close(&self) {
        self.router.stop();
        self.endpoint.shutdown().await;
    }
}

/// Why there is no client. Nothing was sent but greetings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Neither a secret nor an identity was given.
    #[error("a secret or an identity is needed")]
    NoIdentity,
    /// Neither seeds nor candidates were given.
    #[error("no seed is given, so there is nobody to ask")]
    NoSeeds,
    /// Secret or certificates can't be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// No socket, or settings that make no sense.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Nobody was reached; each address with its reason.
    #[error("no node was reached: {}", reasons(.0))]
    Unreachable(Vec<(std::net::SocketAddr, ConnectError)>),
    /// Nodes were reached, but their cluster isn't formed yet.
    #[error("the cluster isn't formed yet")]
    NotFormed,
}

fn reasons(all: &[(std::net::SocketAddr, ConnectError)]) -> String {
    if all.is_empty() {
        return "no address is known".to_owned();
    }
    all.iter().map(|(addr, reason)| format!("{addr}: {reason}")).collect::<Vec<_>>().join("; ")
}
