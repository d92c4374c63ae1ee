//! Encodes and decodes the frames between members, as the real transport does.

use artillery_core::{
    Frame,
    internal::frame::{FrameDecoder, prefix},
};
use artillery_proto::{
    message::ChainFrame,
    wire::chain::{decode, encode},
};

use crate::oracle::{Failure, Oracle};

/// Maximum frame size in a simulated world, in bytes.
const LIMIT: usize = 64 << 20;

/// Encodes `message`, decodes the bytes, and returns the result.
///
/// # Errors
/// [`Oracle::Wire`]: the message can't be encoded, can't be decoded, or differs afterwards.
pub fn carry(message: &ChainFrame) -> Result<ChainFrame, Failure> {
    let fail = |what: String| Failure::new(Oracle::Wire, format!("{what}: {message:?}"));
    let encoded = encode(message).map_err(|error| fail(error.to_string()))?;
    let body: usize = encoded.body.iter().map(|piece| piece.len()).sum();
    let mut decoder = FrameDecoder::new(LIMIT);
    decoder.push(&prefix(encoded.header.len(), body));
    decoder.push(&encoded.header);
    encoded.body.iter().for_each(|piece| decoder.push(piece));
    let frame: Frame = decoder
        .next_frame()
        .map_err(|error| fail(error.to_string()))?
        .ok_or_else(|| fail("the frame is incomplete".to_owned()))?;
    decoder.finish().map_err(|error| fail(error.to_string()))?;
    let arrived = decode(&frame).map_err(|error| fail(error.to_string()))?;
    if arrived != *message {
        return Err(fail(format!("{arrived:?} arrived instead")));
    }
    Ok(arrived)
}
