//! Bytes from outside: their meaning, and a replica that receives them.

mod control_vectors;
mod live_requests;
mod request_vectors;
mod vectors;
mod wire_vectors;
