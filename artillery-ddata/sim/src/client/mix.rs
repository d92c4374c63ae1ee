//! The mix of operations of clients.

use crate::rng::Rng;

/// The mix of operations. Shares are in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Share of writes among all operations, if `writers` is 0.
    pub writes: u32,
    /// Share of deletes among single writes of registers.
    pub deletes: u32,
    /// Share of compare-and-swaps among single writes of registers. Batches and scripts get a quarter of it.
    pub swaps: u32,
    /// Share of deletes that return the value, among single writes of registers.
    pub takes: u32,
    /// Share of batches among writes other than scripts.
    pub batches: u32,
    /// Share of scripts among writes.
    pub scripts: u32,
    /// Whether every batch writes all registers of its chain, and registers get no other writes.
    pub whole_batches: bool,
    /// Share of writes with a request id.
    pub numbered: u32,
    /// Share of answered writes that are sent again later, among those with a request id.
    pub duplicates: u32,
    /// Share of unanswered writes whose outcome is queried without repeating the write, among those with a request id.
    pub settled: u32,
    /// Share of eventual reads among reads.
    pub eventual: u32,
    /// Share of bounded reads among reads.
    pub bounded: u32,
    /// Share of through-chain reads among reads.
    pub through_chain: u32,
    /// Share of reads of several keys among reads.
    pub cuts: u32,
    /// Share of scans among reads.
    pub scans: u32,
    /// Share of walks in hash order among reads.
    pub walks: u32,
    /// Share of reads that carry the floor of their application's session.
    pub sessions: u32,
    /// Number of clients that mostly write; the others only read. 0: all clients do both.
    pub writers: usize,
}

impl Mix {
    /// Draws the mix of a seed. Scenarios add scripts, walks and fixed writers.
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
