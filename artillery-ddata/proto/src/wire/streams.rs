//! The kinds of streams between nodes, by their first byte. Numbers below 16 belong to `artillery_core`.

/// Control frames of chains, between members.
pub const CHAIN_CONTROL: u8 = 16;
/// Updates of chains, to the successor, and reports of durable marks and of fullness, also to other members.
pub const CHAIN_UPDATES: u8 = 17;
pub const FORMATION: u8 = 18;
/// Requests of clients and of forwarding nodes, and responses except large replies; bidirectional.
pub const REQUESTS: u8 = 19;
/// One large response to a request on another stream of the same connection; unidirectional, opened by the side that
/// was dialled.
pub const ANSWERS: u8 = 20;
/// Parts of snapshots, to the joiner.
pub const CHAIN_SNAPSHOTS: u8 = 21;
/// One call about the configuration and its answer; bidirectional.
pub const CONTROL: u8 = 22;

/// The priority of streams that carry one large request or response: below all others, except those of snapshots.
pub const APART_PRIORITY: i32 = -1;
