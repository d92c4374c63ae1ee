//! Frames from any bytes, cut up in any way: no panic, no more memory than bytes came, and the cuts make no difference.
#![no_main]

use artillery_core::{
    Frame,
    error::FrameError,
    internal::frame::{FrameDecoder, PREFIX},
};
use libfuzzer_sys::fuzz_target;

/// All frames in `bytes`, handed over in pieces of `step`, and the final result.
fn decode(bytes: &[u8], step: usize, limit: usize) -> (Vec<Frame>, Result<(), FrameError>) {
    let mut decoder = FrameDecoder::new(limit);
    let mut frames = Vec::new();
    for piece in bytes.chunks(step) {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, decoder.finish())
}

fuzz_target!(|data: &[u8]| {
    let [step, limit, bytes @ ..] = data else { return };
    let (step, limit) = (usize::from(*step) + 1, usize::from(*limit) * 4);
    let whole = decode(bytes, bytes.len().max(1), limit);
    assert_eq!(whole, decode(bytes, step, limit));
    let (frames, end) = whole;
    let used: usize = frames.iter().map(Frame::wire_len).sum();
    assert!(used <= bytes.len());
    assert!(frames.iter().all(|frame| frame.wire_len() - PREFIX <= limit));
    let again: Vec<u8> = frames.iter().flat_map(|frame| frame.to_bytes().to_vec()).collect();
    assert_eq!(again, bytes[..used], "decoded frames encode to the received bytes");
    assert!(end.is_err() || used == bytes.len());
});
