use std::{fmt, net::SocketAddr};

use super::{ResolveError, Seed};
use crate::NodeId;

/// The data that a node publishes, so that others can find and dial it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announcement {
    /// The cluster that the node belongs to or wants to join. It is not secret.
    pub cluster: String,
    /// The id that the node proves when it is dialled.
    pub node: NodeId,
    /// The node's stable name.
    pub name: String,
    /// The addresses at which the node can be reached. All have the same port.
    pub addrs: Vec<SocketAddr>,
    /// Whether the node was given no specific address to advertise. Then the addresses are those of this machine's
    /// interfaces, or those of the node's host name if it has one. Where possible, each address of an interface is
    /// announced on that interface only: on another network it may belong to another host.
    pub by_interface: bool,
}

/// The source of a hint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Source {
    /// Multicast DNS on the local network.
    Mdns,
    /// A seed given by the operator, as `HOST:PORT`. For a source implemented by an application, this is replaced by
    /// `Other`.
    Seed(String),
    /// A host name that is resolved periodically, as `HOST:PORT`.
    Dns(String),
    /// A file, identified by its path.
    File(String),
    /// Any other source, identified by its name.
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

/// A hint about the address of a member.
///
/// If a candidate names a `node`, or multicast DNS found it, its addresses are dialled until a node answers, a node
/// refuses permanently, 20 attempts have failed, newer candidates displace it, or the source reports it as `gone` after
/// a failure. Any other candidate is dialled until its source reports it as `gone`, or newer places displace it: name
/// no `node` for addresses from an operator or a registry. A candidate that leads only to this node itself is dialled
/// again only if its source repeats it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Addresses to try. Empty for a host name: use [`Candidate::resolve`].
    pub addrs: Vec<SocketAddr>,
    /// A host name with a port. It is resolved before every dial.
    pub host: Option<Seed>,
    /// The node at these addresses, if the source knows it.
    pub node: Option<NodeId>,
    /// The source of the hint. Only the same source can withdraw a candidate that names no `node`.
    pub source: Source,
    /// Whether the source withdraws the candidate. Withdrawals are hints too and often missing, so they cannot serve to
    /// detect failures.
    pub gone: bool,
}

impl Candidate {
    /// Creates a hint from `source` that `node` is at one of these addresses.
    pub fn new(source: Source, node: Option<NodeId>, addrs: Vec<SocketAddr>) -> Self {
        Self { addrs, host: None, node, source, gone: false }
    }

    /// Creates a hint from `source` that a node is at `place`, an address or a host name.
    pub fn at(source: Source, place: &Seed) -> Self {
        let addr = place.addr();
        let host = if addr.is_some() { None } else { Some(place.clone()) };
        Self { host, ..Self::new(source, None, addr.into_iter().collect()) }
    }

    /// This hint, marked as withdrawn.
    pub fn withdrawn(self) -> Self {
        Self { gone: true, ..self }
    }

    /// The addresses to dial now: the given ones, then at most 16 of the host name in the resolver's order (a random
    /// selection if there are more). Call it before every dial, since each call resolves the name again. Resolving
    /// takes at most 5 s.
    ///
    /// # Errors
    /// [`ResolveError`] if the host name cannot be resolved now, or has no address, and no address was given: try
    /// again later.
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
    /// The candidate with this seed as its source.
    pub fn candidate(&self) -> Candidate {
        Candidate::at(Source::Seed(self.to_string()), self)
    }
}
