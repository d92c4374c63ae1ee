use std::{fmt, net::SocketAddr};

use artillery_core::{
    discovery::{ResolveError, Seed},
    error::{ConnectError, Refusal},
};

/// Why a client learned nothing about the cluster at a location.
#[derive(Debug)]
#[non_exhaustive]
pub enum Unreached {
    /// No node was reached at this address of the location, or the node there didn't admit the client, wasn't trusted,
    /// or gave no usable answer.
    Addr {
        /// The location.
        place: Seed,
        /// One of its addresses; a host name may have several.
        addr: SocketAddr,
        /// The reason.
        reason: ConnectError,
    },
    /// The host name could not be resolved, within at most 5 s, or has no address.
    Name {
        /// The host name.
        place: Seed,
        /// The reason.
        reason: ResolveError,
    },
    /// The client's [timeout](crate::ClientBuilder::timeout) expired before the host name was resolved.
    Late {
        /// The host name.
        place: Seed,
    },
}

impl Unreached {
    pub(super) fn late(place: Seed) -> Self {
        Self::Late { place }
    }

    /// Why the connection to the address, or the query over it, failed. `None`: no address was dialled.
    pub fn connect_error(&self) -> Option<&ConnectError> {
        match self {
            Self::Addr { reason, .. } => Some(reason),
            Self::Name { .. } | Self::Late { .. } => None,
        }
    }

    /// Identifies the failure: the location, and the dialled address, if there was one.
    pub(super) fn place(&self) -> (String, Option<SocketAddr>) {
        match self {
            Self::Addr { place, addr, .. } => (place.to_string(), Some(*addr)),
            Self::Name { place, .. } | Self::Late { place } => (place.to_string(), None),
        }
    }

    /// Whether the failure is only that no answer arrived in time.
    pub(super) fn is_silence(&self) -> bool {
        matches!(self, Self::Late { .. } | Self::Addr { reason: ConnectError::TimedOut, .. })
    }

    /// Whether another attempt at the same location would fail in the same way.
    pub(super) fn is_final(&self) -> bool {
        match self.connect_error() {
            Some(ConnectError::Untrusted(_) | ConnectError::BadAddress { .. } | ConnectError::Rejected(_)) => true,
            Some(ConnectError::Refused(refusal)) => !matches!(refusal, Refusal::Busy | Refusal::TimedOut),
            _ => false,
        }
    }
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addr { place, addr, reason } if place.addr() == Some(*addr) => write!(f, "{addr}: {reason}"),
            Self::Addr { place, addr, reason } => write!(f, "{place} at {addr}: {reason}"),
            // The reason names the host.
            Self::Name { reason, .. } => write!(f, "{reason}"),
            Self::Late { place } => write!(f, "{place}: the name could not be resolved in time"),
        }
    }
}
