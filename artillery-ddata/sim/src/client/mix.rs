//! How often clients ask for what.

use crate::rng::Rng;

/// How often clients ask for what, in parts of a thousand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Writes among all operations.
    pub writes: u32,
    /// Deletes among writes of registers.
    pub deletes: u32,
    /// Compare-and-swaps among writes of registers.
    pub swaps: u32,
    /// Deletes that tell what was there among writes of registers.
    pub takes: u32,
    /// Batches among writes.
    pub batches: u32,
    /// Scripts among writes.
    pub scripts: u32,
    /// Whether every batch writes all registers of its chain, and nothing else does.
    pub whole_batches: bool,
    /// Writes that carry a request id.
    pub numbered: u32,
    /// Answered writes that are asked for once more, late.
    pub duplicates: u32,
    /// Unanswered writes that are settled rather than asked for again.
    pub settled: u32,
    /// Reads that may show uncommitted versions, among reads.
    pub eventual: u32,
    /// Reads that may do so within bounds, among reads.
    pub bounded: u32,
    /// Reads behind a barrier, among reads.
    pub through_chain: u32,
    /// Reads of many keys, among reads.
    pub cuts: u32,
    /// Scans, among reads.
    pub scans: u32,
    /// Reads in the session of their application.
    pub sessions: u32,
    /// So many clients write and do little else, the others read; 0: all do both.
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
            sessions: rng.between(0, 600) as u32,
            writers: 0,
        }
    }
}
