//! What a node says of itself, and what is heard of others.

use std::{io, net::SocketAddr, time::Duration};

use crate::NodeId;

/// What a node makes known of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announcement {
    /// Which cluster it belongs to, or wants to. Not secret.
    pub cluster: String,
    /// Its id.
    pub node: NodeId,
    /// Its stable name.
    pub name: String,
    /// Where it can be reached; all with the same port.
    pub addrs: Vec<SocketAddr>,
}

/// Where a hint comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Source {
    /// Heard on the local network.
    Mdns,
    /// Given by the operator, as `HOST:PORT`.
    Seed(String),
    /// Another source, and what it is called.
    Other(String),
}

/// A place where a member may be found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Addresses to try. For a seed that is a host name: none; use [`Candidate::resolve`].
    pub addrs: Vec<SocketAddr>,
    /// Which node is said to be there, if the source knows.
    pub node: Option<NodeId>,
    /// Where the hint comes from.
    pub source: Source,
    /// The source says that the node is there no longer. A hint too, and often missing: no failure detector.
    pub gone: bool,
}

/// Why a candidate has no address now.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The look-up failed.
    #[error("can't look up {host}: {error}")]
    Lookup {
        /// What was looked up.
        host: String,
        /// What went wrong.
        error: io::Error,
    },
    /// The look-up took too long.
    #[error("no answer about {host} within {after:?}")]
    Timeout {
        /// What was looked up.
        host: String,
        /// How long was waited.
        after: Duration,
    },
    /// There is no address.
    #[error("{host} has no address")]
    Nothing {
        /// What was looked up.
        host: String,
    },
}

/// The longest wait for a name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

impl Candidate {
    /// A hint from `source` that `node` is at one of these addresses.
    pub fn new(source: Source, node: Option<NodeId>, addrs: Vec<SocketAddr>) -> Self {
        Self { addrs, node, source, gone: false }
    }

    /// The addresses to dial now. A seed's host name is looked up anew at each call, so call it before every dial; all
    /// addresses count, in the resolver's order.
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
