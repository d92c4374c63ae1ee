//! Messages of formation as frames: a header, no body.

use artillery_core::{
    Frame,
    internal::codec::{self, CodecError},
};
use bytes::Bytes;

use crate::control::formation::FormationMessage;

/// A frame that holds no message of formation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormationDecodeError {
    /// The header can't be decoded.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A body behind a message that has none.
    #[error("{0} bytes of body behind a message that has none")]
    Body(usize),
}

/// The header of the frame that carries `message`.
///
/// # Errors
/// [`CodecError`].
pub fn encode(message: &FormationMessage) -> Result<Bytes, CodecError> {
    let mut header = Vec::new();
    codec::encode(message, &mut header)?;
    Ok(header.into())
}

/// The message that a frame carries.
///
/// # Errors
/// [`FormationDecodeError`].
pub fn decode(frame: &Frame) -> Result<FormationMessage, FormationDecodeError> {
    if !frame.body.is_empty() {
        return Err(FormationDecodeError::Body(frame.body.len()));
    }
    Ok(codec::decode(&frame.header)?)
}
