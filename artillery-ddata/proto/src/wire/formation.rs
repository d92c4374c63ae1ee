//! The frames of messages of formation: a header without a body.

use artillery_core::{
    Frame,
    internal::codec::{self, CodecError},
};
use bytes::Bytes;

use super::control::{ControlDecodeError, no_body};
use crate::control::formation::FormationMessage;

/// Encodes the header of the frame that carries `message`.
pub fn encode(message: &FormationMessage) -> Result<Bytes, CodecError> {
    let mut header = Vec::new();
    codec::encode(message, &mut header)?;
    Ok(header.into())
}

/// Decodes the message in a frame.
pub fn decode(frame: &Frame) -> Result<FormationMessage, ControlDecodeError> {
    no_body(frame)?;
    Ok(codec::decode(&frame.header)?)
}
