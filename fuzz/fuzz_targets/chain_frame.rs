//! Frames of a chain from any header and body. A frame that decodes encodes to the same bytes again.
#![no_main]

use artillery_core::Frame;
use artillery_proto::wire::chain;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [cut, bytes @ ..] = data else { return };
    let (header, body) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    let frame = Frame { header: Bytes::copy_from_slice(header), body: Bytes::copy_from_slice(body) };
    let Ok(message) = chain::decode(&frame) else { return };
    let again = chain::encode(&message).expect("a decoded frame can be encoded");
    assert_eq!(again.header[..], frame.header[..]);
    assert_eq!(again.body.concat(), frame.body);
});
