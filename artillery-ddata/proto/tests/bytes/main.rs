//! Bytes from outside: what they mean, and what a replica does with them.

mod control_vectors;
mod live_requests;
mod request_vectors;
mod vectors;
mod wire_vectors;
