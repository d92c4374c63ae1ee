//! Byte-level tests: the test vectors of the wire format, and a replica that receives arbitrary bytes.

mod control_vectors;
mod expiry_vectors;
mod live_requests;
mod protocol_2_vectors;
mod request_vectors;
mod vectors;
mod wire_vectors;
