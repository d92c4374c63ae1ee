//! Errors: each says what went wrong and what state it leaves behind.

mod transport;

use std::{io, net::SocketAddr};

#[cfg(feature = "net")]
use crate::discovery::SeedError;

pub use transport::{
    CloseReason, ConnectError, DatagramError, FrameError, ReadError, Refusal, VersionRange, WriteError,
};

/// Why no identity could be made. No socket was bound and nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The cluster secret is so short that it could be guessed.
    #[error("the secret has {len} bytes, at least {min} are needed")]
    SecretTooShort {
        /// Its length in bytes.
        len: usize,
        /// Bytes needed.
        min: usize,
    },
    /// The node name is not 1 to 63 characters of `a-z 0-9 . - _`.
    #[error("{name:?} is no node name: 1 to 63 characters of a-z, 0-9, '.', '-', '_' are allowed")]
    BadName {
        /// The name that was given.
        name: String,
    },
    /// A PEM file does not hold what it should.
    #[error("{what}: {reason}")]
    BadPem {
        /// Which of the files.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The certificate has no DNS name among its subject alternative names.
    #[error("the certificate names no node: it needs a DNS name among its subject alternative names")]
    NoNodeName,
    /// An identity that replaces another one has another name. A node never changes its name.
    #[error("the identity is of {given:?}, not of {here:?}")]
    OtherName {
        /// The node's name.
        here: String,
        /// The name in the identity that was given.
        given: String,
    },
    /// The TLS library refused key and certificate.
    #[error("the certificate can't be used: {0}")]
    Unusable(String),
}

/// A setting that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
#[non_exhaustive]
pub struct ConfigError {
    /// Its field.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

/// Why an endpoint could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Settings make no sense. All problems are listed.
    #[error("bad settings: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Config(Vec<ConfigError>),
    /// The identity can't be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The socket could not be bound.
    #[error("can't listen on {addr}: {source}")]
    Socket {
        /// The address that was asked for.
        addr: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
}

/// Why a node's payload was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The payload is too large.
    #[error("a payload of {len} bytes, at most {limit} are allowed")]
    TooLarge {
        /// Its length in bytes.
        len: usize,
        /// Bytes allowed: [`Member::MAX_PAYLOAD`](crate::Member::MAX_PAYLOAD).
        limit: usize,
    },
    /// The node has stopped.
    #[error("the node has stopped")]
    Stopped,
}

/// Why a node did not start. Nothing is left behind.
#[cfg(feature = "net")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Neither a secret nor an identity was given.
    #[error("no identity: give a secret or an identity")]
    NoIdentity,
    /// The secret or the name can't be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A seed makes no sense.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// The payload is too large.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// A membership setting makes no sense.
    #[error("membership setting `{}` {}", .0.field, .0.problem)]
    Membership(ConfigError),
    /// The endpoint could not be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The node listens on all addresses and advertises those of these interfaces, which have none.
    #[error("no address that other nodes can dial on {}: give another interface, or an address to advertise", interfaces.join(", "))]
    NoAdvertisableAddress {
        /// The interfaces by name.
        interfaces: Vec<String>,
    },
}
