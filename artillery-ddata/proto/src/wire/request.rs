//! Requests of clients to nodes, and of nodes to each other on their behalf, as frames.
//!
//! Requests travel on streams of kind [`REQUESTS`](super::streams::REQUESTS). Their responses come back on the same stream in
//! any order or, if they are [large](crate::message::request::SMALL), on streams of kind [`ANSWERS`](super::streams::ANSWERS). The sender chooses a
//! request's number, and must not use it again on a connection before its response has come.

mod answer;
mod body;
mod header;
mod question;
mod script;
#[cfg(test)]
mod tests;

pub use answer::{decode_answer_to, decode_response, encode_answer_to, encode_response};
pub use question::{decode_request, encode_request};

pub use super::chain::{DecodeError, EncodeError, Encoded, EncodedBody, EncodedHeader};
