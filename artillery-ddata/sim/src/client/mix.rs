//! The mix of operations of clients.

use crate::rng::Rng;

/// How often clients choose each operation, in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Writes among all operations.
    pub writes: u32,
    /// Deletes among writes of registers.
    pub deletes: u32,
    /// Compare-and-swaps among writes of registers.
    pub swaps: u32,
    /// Deletes that return the value, among writes of registers.
    pub takes: u32,
    /// Batches among writes.
    pub batches: u32,
    /// Scripts among writes.
    pub scripts: u32,
    /// Whether every batch writes all registers of its chain, and registers get no other writes.
    pub whole_batches: bool,
    /// Writes that carry a request id.
    pub numbered: u32,
    /// Answered writes that are repeated once more, late.
    pub duplicates: u32,
    /// Unanswered writes that are settled rather than repeated.
    pub settled: u32,
    /// Reads that may show uncommitted versions, among reads.
    pub eventual: u32,
    /// Reads that may show uncommitted versions within bounds, among reads.
    pub bounded: u32,
    /// Reads behind a barrier, among reads.
    pub through_chain: u32,
    /// Reads of many keys, among reads.
    pub cuts: u32,
    /// Scans, among reads.
    pub scans: u32,
    /// Walks through all keys in hash order, among reads.
    pub walks: u32,
    /// Reads in the session of their application.
    pub sessions: u32,
    /// Number of clients that mostly write; the others read. 0: all clients do both.
    pub writers: usize,
}

impl Mix {
    /// A workload for a seed.
    pub fn draw(rng: &mut Rng) -> Self {
        Self {
            writes: rng.between(150, 700) as u32,
            deletes: rng.between(50, 250) as u32,
            swaps: rng.between(50, 400) as u32,
            takes: rng.between(0, 100) as u32,
            batches: rng.between(0, 200) as u32,
            scripts: 0,
            whole_batches: false,
            numbered: rng.pick(&[0, 500, 1000, 1000]),
            duplicates: rng.between(0, 150) as u32,
            settled: rng.between(0, 300) as u32,
            eventual: rng.between(50, 250) as u32,
            bounded: rng.between(0, 150) as u32,
            through_chain: rng.between(30, 200) as u32,
            cuts: rng.between(0, 150) as u32,
            scans: rng.between(0, 80) as u32,
            walks: 0,
            sessions: rng.between(0, 600) as u32,
            writers: 0,
        }
    }
}
