//! Random numbers from one seed, in independent streams: draws for one concern never shift those for another.
//!
//! Integer arithmetic only, so that a run is identical in every build and on every machine.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng as _, SeedableRng as _},
};

/// The purpose of a stream of random numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Concern {
    /// The shape of the world: sizes, delays, settings.
    Setup,
    /// The faults and their times.
    Faults,
    /// The fate of frames from one node to another.
    Link {
        /// The sender's index.
        from: usize,
        /// The receiver's index.
        to: usize,
    },
    /// When nodes notice that connections broke or recovered.
    Notices,
    /// The scheduling of one node.
    Node(usize),
    /// The choices of one client.
    Client(usize),
    /// The fate of one client's requests and replies.
    ClientLink(usize),
    /// Events before the first configuration exists.
    Formation,
    /// The choices of one watcher, and whether its requests are lost.
    Watcher(usize),
    /// The choices of one contender for a lock, and the fate of its requests.
    Contender(usize),
    /// The choices of one follower, and whether its requests are lost.
    Follower(usize),
    /// Which nodes an operator restarts, and when.
    Operator,
    /// Leaders, and the fate of proposals.
    Control,
    /// Which orders operators give, and when.
    Orders,
    /// Elections and delays in the group that keeps the configuration log.
    Group,
    /// Disks: their latency, their failures, and the data they lose.
    Disks,
}

impl Concern {
    fn stream(self) -> u64 {
        let (kind, a, b) = match self {
            Self::Setup => (1, 0, 0),
            Self::Faults => (2, 0, 0),
            Self::Link { from, to } => (3, from, to),
            Self::Notices => (4, 0, 0),
            Self::Node(node) => (5, node, 0),
            Self::Client(client) => (6, client, 0),
            Self::ClientLink(client) => (7, client, 0),
            Self::Formation => (8, 0, 0),
            Self::Watcher(watcher) => (9, watcher, 0),
            Self::Control => (10, 0, 0),
            Self::Group => (11, 0, 0),
            Self::Orders => (12, 0, 0),
            Self::Operator => (13, 0, 0),
            Self::Disks => (14, 0, 0),
            Self::Contender(process) => (15, process, 0),
            Self::Follower(follower) => (16, follower, 0),
        };
        kind << 48 | (a as u64) << 24 | b as u64
    }
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// The stream of `seed` for `concern`.
    pub fn new(seed: u64, concern: Concern) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(concern.stream());
        Self(rng)
    }

    /// A uniformly distributed number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.0.next_u64()) * u128::from(bound);
        (wide >> 64) as u64
    }

    /// A uniformly distributed 64-bit number.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True with a probability of `permille` in a thousand.
    pub fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// One of `items`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.index(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(seed: u64, concern: Concern) -> Vec<u64> {
        let mut rng = Rng::new(seed, concern);
        (0..8).map(|_| rng.below(u64::MAX)).collect()
    }

    #[test]
    fn streams_are_independent() {
        assert_eq!(draw(1, Concern::Setup), draw(1, Concern::Setup));
        let all = [
            draw(1, Concern::Setup),
            draw(2, Concern::Setup),
            draw(1, Concern::Faults),
            draw(1, Concern::Link { from: 0, to: 1 }),
            draw(1, Concern::Link { from: 1, to: 0 }),
            draw(1, Concern::Node(1)),
            draw(1, Concern::Client(1)),
            draw(1, Concern::ClientLink(1)),
        ];
        for (n, one) in all.iter().enumerate() {
            assert!(all[..n].iter().all(|other| other != one), "stream {n} repeats another");
        }
    }

    #[test]
    fn bounds_hold_and_are_reached() {
        let mut rng = Rng::new(3, Concern::Setup);
        assert_eq!(rng.below(0), 0);
        let drawn: std::collections::BTreeSet<u64> = (0..200).map(|_| rng.between(5, 8)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert!(!(0..100).any(|_| rng.chance(0)));
        assert!((0..100).all(|_| rng.chance(1000)));
    }
}
