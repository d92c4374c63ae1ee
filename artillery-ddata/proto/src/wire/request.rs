//! The frames of requests and responses, between clients and nodes and between nodes that forward requests.
//!
//! Requests travel on streams of kind [`REQUESTS`](super::streams::REQUESTS). Responses return in any order: on the
//! same stream or, if [large](crate::message::request::SMALL), on streams of kind [`ANSWERS`](super::streams::ANSWERS).
//! The sender chooses the number of a request, and must not reuse it on a connection before the response has arrived.

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
