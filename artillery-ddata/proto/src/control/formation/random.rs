//! Seeded randomness, to keep the formation pure.

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::MemberId;

/// Random numbers that depend only on the seed and the node's incarnation.
#[derive(Debug)]
pub(super) struct SeededRandom {
    seed: u128,
    drawn: u64,
    me: MemberId,
}

impl SeededRandom {
    pub(super) fn new(seed: u128, me: MemberId) -> Self {
        Self { seed, drawn: 0, me }
    }

    pub(super) fn draw(&mut self) -> u128 {
        self.drawn += 1;
        let digest = Sha256::new()
            .chain_update(b"artillery formation\0")
            .chain_update(self.seed.to_be_bytes())
            .chain_update(self.me.node.as_bytes())
            .chain_update(self.me.incarnation.store.to_be_bytes())
            .chain_update(self.me.incarnation.starts.to_be_bytes())
            .chain_update(self.drawn.to_be_bytes())
            .finalize();
        digest[..16].iter().fold(0, |number, &byte| number << 8 | u128::from(byte))
    }

    /// A number below `bound`, which is at least 1.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        (self.draw() % u128::from(bound.max(1))) as u64
    }

    /// A duration from zero to `most`.
    pub(super) fn up_to(&mut self, most: Duration) -> Duration {
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX - 1);
        Duration::from_nanos(self.below(nanos.saturating_add(1)))
    }
}
