//! The errors of endpoints, connections, nodes, identities, settings, and ids as text.

mod transport;

use std::{io, net::SocketAddr};

#[cfg(feature = "net")]
use crate::discovery::SeedError;

pub use crate::id::text::ParseIdError;

pub use transport::{
    CloseReason, ConnectError, DatagramError, FrameError, ReadError, Refusal, VersionRange, WriteError,
};

/// Why an identity could not be created or used. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The cluster secret has fewer than `min` bytes.
    #[error("the secret has {len} bytes; at least {min} are required")]
    SecretTooShort {
        /// The length of the given secret in bytes.
        len: usize,
        /// The minimum length in bytes.
        min: usize,
    },
    /// The node name is not 1 to 63 characters of `a-z 0-9 . - _`, or the DNS name in a certificate encodes no such
    /// name.
    #[error("{name:?} is not a valid node name: use 1 to 63 characters of a-z, 0-9, '.', '-', '_'")]
    BadName {
        /// The invalid name, cut to 126 characters, or the certificate's DNS name.
        name: String,
    },
    /// A PEM text is malformed, or it contains no certificate or no private key in PKCS#8.
    #[error("{what}: {reason}")]
    BadPem {
        /// Which text is bad: `certificate authority`, `certificate` or `private key`.
        what: &'static str,
        /// The problem with the text.
        reason: String,
    },
    /// The certificate has no DNS name among its subject alternative names.
    #[error("the certificate names no node: it needs a DNS name among its subject alternative names")]
    NoNodeName,
    /// The identity that should replace the current one has another name. A node never changes its name.
    #[error("the identity belongs to {given:?}, not to {here:?}")]
    OtherName {
        /// The node's name.
        here: String,
        /// The name in the new identity.
        given: String,
    },
    /// The TLS library rejected a key or certificate, of the node or of an authority, or could not create it.
    #[error("the certificate is unusable: {0}")]
    Unusable(String),
}

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
#[non_exhaustive]
pub struct ConfigError {
    /// The name of the field.
    pub field: &'static str,
    /// The problem with its value.
    pub problem: String,
}

/// Why an endpoint could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Some settings, the cluster's name, or the range of protocol versions are invalid. All problems are listed.
    #[error("invalid settings: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Config(Vec<ConfigError>),
    /// The identity is unusable.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The socket could not be created, bound or set up.
    #[error("can't listen on {addr}: {source}")]
    Socket {
        /// The requested address.
        addr: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// Why a node's payload was not accepted, at the start or as a replacement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The payload is too large.
    #[error("a payload of {len} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// The length of the payload in bytes.
        len: usize,
        /// The limit in bytes: [`Member::MAX_PAYLOAD`](crate::Member::MAX_PAYLOAD).
        limit: usize,
    },
    /// The node has stopped.
    #[error("the node has stopped")]
    Stopped,
}

/// Why a node did not start. Nothing is left running.
#[cfg(feature = "net")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Neither a secret nor an identity was given.
    #[error("no identity: give a secret or an identity")]
    NoIdentity,
    /// The secret or the name is invalid.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A seed is invalid.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// The payload is too large.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// A membership setting is invalid.
    #[error("membership setting `{}` {}", .0.field, .0.problem)]
    Membership(ConfigError),
    /// The endpoint could not be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The node should advertise the addresses of these interfaces, but none of them is up and has an address of a
    /// family that the socket supports.
    #[error("no address that other nodes can dial on {}: choose another interface, or set an address to advertise", interfaces.join(", "))]
    NoAdvertisableAddress {
        /// The names of the interfaces.
        interfaces: Vec<String>,
    },
}
