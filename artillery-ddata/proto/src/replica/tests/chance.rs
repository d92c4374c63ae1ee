//! Random steps of a rig of three members.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::rig::Rig;

impl Rig {
    /// Randomly syncs disks and delivers frames.
    pub(super) fn pass(&mut self, rng: &mut ChaCha8Rng) {
        for n in [1, 2, 3] {
            let syncs = rng.random_range(0..3) > 0;
            self.disk(n, syncs);
            if rng.random_range(0..3) == 0 {
                self.unwritten.insert(n);
            } else {
                self.unwritten.remove(&n);
            }
        }
        self.transmit();
        let links: Vec<_> = self.wire.keys().copied().collect();
        for (from, to) in links {
            for _ in 0..rng.random_range(0..4) {
                self.deliver(from, to);
            }
        }
    }

    /// Starts a checkpoint at a random member.
    pub(super) fn begin_a_checkpoint(&mut self, rng: &mut ChaCha8Rng) {
        let n = rng.random_range(1..4);
        self.replicas.get_mut(&n).unwrap().begin_checkpoint();
    }

    /// Breaks all connections, which loses their frames, and restores them.
    pub(super) fn reconnect(&mut self) {
        self.lose_frames();
        for (a, b) in [(1, 2), (1, 3), (2, 3)] {
            self.cut_link(a, b);
            self.join_link(a, b);
        }
    }
}
