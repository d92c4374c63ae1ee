//! Responses to clients from any header and body. A response that decodes is decoded to the same again after it is passed on.
#![no_main]

use artillery_core::Frame;
use artillery_proto::wire::request;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [cut, bytes @ ..] = data else { return };
    let (header, body) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    let frame = Frame { header: Bytes::copy_from_slice(header), body: Bytes::copy_from_slice(body) };
    if let Ok(number) = request::decode_answer_to(&frame) {
        assert_eq!(request::encode_answer_to(number), frame.header);
    }
    let Ok(message) = request::decode_response(&frame) else { return };
    let again = request::encode_response(&message).expect("a decoded response can be encoded");
    let again = again.to_frame();
    assert_eq!(again.body, frame.body);
    assert_eq!(request::decode_response(&again), Ok(message));
});
