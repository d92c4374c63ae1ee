//! What members, nodes and clients say to each other.

pub mod message;
