//! Walks through all keys of a chain in hash order.

use std::collections::BTreeSet;

use super::World;
use crate::{
    client::{Ask, Told, Walking, key_bytes},
    oracle::{Failure, Oracle},
};

impl World {
    pub(super) fn begin_walk(&mut self, index: usize, ask: &Ask, chain: usize) {
        let &Ask::Hashed { from: 0, limit, mode } = ask else { return };
        let since = self.oracles[chain].committed_up_to();
        let met = BTreeSet::new();
        self.clients[index].walk = Some(Walking { chain, from: 0, limit, mode, since, met });
    }

    /// Adds a page to its walk. When a walk of linearizable reads ends, it must have shown every key that was present
    /// throughout.
    pub(super) fn walked(&mut self, index: usize, ask: &Ask, told: &Told) {
        let Some((met, next)) = &told.hashed else { return };
        let Some(mut walk) = self.clients[index].walk.take() else { return };
        walk.met.extend(met);
        walk.from = *next;
        if *next != 0 {
            self.clients[index].walk = Some(walk);
            return;
        }
        self.counts.walks += 1;
        if !ask.is_linearizable() {
            return;
        }
        let oracle = &self.oracles[walk.chain];
        let missed = self
            .setup
            .keys
            .of_chain(walk.chain)
            .find(|key| !walk.met.contains(key) && oracle.was_there_throughout(&key_bytes(*key), walk.since));
        if let Some(key) = missed {
            let what = format!("a walk that began at {} missed key {key}, which was present throughout", walk.since);
            self.claim(Failure::new(Oracle::Claims, what));
        }
    }
}
