//! Requests of clients from any header and body. A request that decodes is decoded to the same again after it is passed on.
#![no_main]

use artillery_core::Frame;
use artillery_proto::wire::request;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [cut, bytes @ ..] = data else { return };
    let (header, body) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    let frame = Frame { header: Bytes::copy_from_slice(header), body: Bytes::copy_from_slice(body) };
    let Ok(message) = request::decode_request(&frame) else { return };
    let again = request::encode_request(&message, u16::MAX).expect("a decoded request can be encoded");
    let again = again.to_frame();
    assert_eq!(again.body, frame.body);
    assert_eq!(request::decode_request(&again), Ok(message));
});
