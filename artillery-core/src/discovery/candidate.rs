//! What a node announces of itself, and the hints that sources give.

use std::{io, net::SocketAddr, time::Duration};

use crate::NodeId;

/// What a node announces of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announcement {
    /// The cluster that it belongs to or wants to join. Not secret.
    pub cluster: String,
    /// Its id.
    pub node: NodeId,
    /// Its stable name.
    pub name: String,
    /// Where it can be reached. All addresses have the same port.
    pub addrs: Vec<SocketAddr>,
    /// The addresses are those of this machine's interfaces. Where that can be done, each is announced on its own interface:
    /// elsewhere it may be that of another host.
    pub by_interface: bool,
}

/// Where a hint comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Source {
    /// Multicast DNS on the local network.
    Mdns,
    /// Given by the operator, as `HOST:PORT`.
    Seed(String),
    /// Another source, by its name.
    Other(String),
}

/// A hint where a member may be found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Addresses to try. Empty for a seed that is a host name: use [`Candidate::resolve`].
    pub addrs: Vec<SocketAddr>,
    /// The node that is said to be there, if the source knows.
    pub node: Option<NodeId>,
    /// The source of the hint.
    pub source: Source,
    /// The source says that the node is no longer there. This is a hint too, and often missing, so it detects no
    /// failure.
    pub gone: bool,
}

/// Why a candidate has no address now.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The host name could not be looked up.
    #[error("can't look up {host}: {error}")]
    Lookup {
        /// The host name.
        host: String,
        /// The error of the resolver.
        error: io::Error,
    },
    /// The look-up took too long.
    #[error("no answer about {host} within {after:?}")]
    Timeout {
        /// The host name.
        host: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The host name has no address.
    #[error("{host} has no address")]
    Nothing {
        /// The host name.
        host: String,
    },
}

/// The longest wait for the resolver.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

impl Candidate {
    /// A hint from `source` that `node` is at one of these addresses.
    pub fn new(source: Source, node: Option<NodeId>, addrs: Vec<SocketAddr>) -> Self {
        Self { addrs, node, source, gone: false }
    }

    /// The addresses to dial now, in the resolver's order. A seed's host name is looked up at each call, so call this
    /// before every dial.
    ///
    /// # Errors
    /// [`ResolveError`]: try again later.
    pub async fn resolve(&self) -> Result<Vec<SocketAddr>, ResolveError> {
        let Source::Seed(host) = &self.source else { return Ok(self.addrs.clone()) };
        if !self.addrs.is_empty() {
            return Ok(self.addrs.clone());
        }
        let found = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host(host.as_str()))
            .await
            .map_err(|_| ResolveError::Timeout { host: host.clone(), after: LOOKUP_TIMEOUT })?
            .map_err(|error| ResolveError::Lookup { host: host.clone(), error })?;
        let mut addrs = Vec::new();
        for addr in found {
            if !addrs.contains(&addr) {
                addrs.push(addr);
            }
        }
        if addrs.is_empty() { Err(ResolveError::Nothing { host: host.clone() }) } else { Ok(addrs) }
    }
}
