//! The kinds of streams between nodes, by their first byte: `artillery_core` leaves the numbers from 16 on to this crate.

/// Control frames of chains, to a member.
pub const CHAIN_CONTROL: u8 = 16;
/// Updates of chains, to a successor.
pub const CHAIN_UPDATES: u8 = 17;
/// Messages of formation, between nodes.
pub const FORMATION: u8 = 18;
/// Requests of clients and their responses; bidirectional.
pub const REQUESTS: u8 = 19;
/// One large response to a request that came on another stream of the same connection; unidirectional, opened by the side
/// that was dialled.
pub const ANSWERS: u8 = 20;
/// Parts of snapshots of chains, to a joiner.
pub const CHAIN_SNAPSHOTS: u8 = 21;
/// One call about the configuration and its answer, between nodes; bidirectional.
pub const CONTROL: u8 = 22;

/// The priority of streams that carry one large request or response: behind all others, which have 0 and more.
pub const APART_PRIORITY: i32 = -1;
