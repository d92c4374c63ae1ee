//! What a node announces of itself, and the hints that sources give.

use std::{fmt, io, net::SocketAddr, time::Duration};

use super::{Seed, lookup};
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
    /// A host name whose addresses are looked up again and again, as `HOST:PORT`.
    Dns(String),
    /// A file, by its path.
    File(String),
    /// Another source, by its name.
    Other(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mdns => f.write_str("mdns"),
            Self::Seed(seed) => write!(f, "seed {seed}"),
            Self::Dns(name) => write!(f, "dns {name}"),
            Self::File(path) => write!(f, "file {path}"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

/// A hint where a member may be found.
///
/// One that names a `node`, or is found by multicast DNS, is dialled until it has failed too often. Any other one is dialled until
/// its source reports it as `gone`: use it for addresses that an operator or a registry gives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Addresses to try. Empty for a host name: use [`Candidate::resolve`].
    pub addrs: Vec<SocketAddr>,
    /// A host name, and the port, which is looked up before every dial.
    pub host: Option<Seed>,
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

impl Candidate {
    /// A hint from `source` that `node` is at one of these addresses.
    pub fn new(source: Source, node: Option<NodeId>, addrs: Vec<SocketAddr>) -> Self {
        Self { addrs, host: None, node, source, gone: false }
    }

    /// A hint from `source` that a node is at `place`, an address or a host name.
    pub fn at(source: Source, place: &Seed) -> Self {
        let addr = place.addr();
        let host = if addr.is_some() { None } else { Some(place.clone()) };
        Self { host, ..Self::new(source, None, addr.into_iter().collect()) }
    }

    /// The same hint, withdrawn.
    pub fn withdrawn(self) -> Self {
        Self { gone: true, ..self }
    }

    /// The addresses to dial now: the given ones, then those of the host name in the resolver's order. The name is looked up at each
    /// call, so call this before every dial. A look-up takes at most 5 s.
    ///
    /// # Errors
    /// [`ResolveError`]: try again later.
    pub async fn resolve(&self) -> Result<Vec<SocketAddr>, ResolveError> {
        let Some(host) = &self.host else { return Ok(self.addrs.clone()) };
        match host.resolve().await {
            Ok(found) => {
                let mut addrs = self.addrs.clone();
                addrs.extend(found.into_iter().filter(|addr| !self.addrs.contains(addr)));
                Ok(addrs)
            }
            Err(_) if !self.addrs.is_empty() => Ok(self.addrs.clone()),
            Err(error) => Err(error),
        }
    }
}

impl Seed {
    /// The addresses to dial now. A host name is looked up at each call, within 5 s.
    ///
    /// # Errors
    /// [`ResolveError`]: try again later.
    pub async fn resolve(&self) -> Result<Vec<SocketAddr>, ResolveError> {
        match (self.addr(), self.host()) {
            (Some(addr), _) => Ok(vec![addr]),
            (None, Some((host, port))) => lookup::look_up(host, port).await,
            (None, None) => Err(ResolveError::Nothing { host: self.to_string() }),
        }
    }
}
