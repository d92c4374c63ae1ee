//! What the streams between nodes are for: their first byte, as `artillery_core` counts them from 16 on.

/// Control frames of chains, to a member.
pub const CHAIN_CONTROL: u8 = 16;
/// Updates of chains, to a successor.
pub const CHAIN_UPDATES: u8 = 17;
/// Messages of formation, between nodes.
pub const FORMATION: u8 = 18;
/// Requests of clients and their responses; bidirectional.
pub const REQUESTS: u8 = 19;
