//! The bytes of packets.

/// Why bytes are no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// They end too early.
    #[error("it ends too early")]
    Truncated,
    /// A tag or version that means nothing here.
    #[error("unknown {what} {tag}")]
    Unknown {
        /// Of what.
        what: &'static str,
        /// The value.
        tag: u8,
    },
    /// A part is longer than allowed.
    #[error("{what} of {len} bytes is too long")]
    TooLong {
        /// Which part.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
    },
    /// A name is not UTF-8.
    #[error("a name is not UTF-8")]
    NotUtf8,
    /// There is not enough room to write it.
    #[error("no room to write it")]
    NoRoom,
}
