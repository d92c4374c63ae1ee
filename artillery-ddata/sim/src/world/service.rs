//! Measures how long writes and strong reads fail although everything they need is available.

use std::collections::{BTreeMap, BTreeSet};

use artillery_proto::{MemberId, api::ReadMode};

use super::World;
use crate::{
    faults::Kind,
    node::Origin,
    oracle::{Failure, Oracle},
    scenario::SECOND,
};

/// Minimum number of requests that prove a failure of service.
const ASKED: u32 = 20;

#[derive(Clone, Copy, Default, Debug)]
struct Served {
    last: u64,
    /// Requests that reached able nodes since `last`.
    asked: u32,
}

/// The service of all chains, and the times since when it was possible.
#[derive(Default, Debug)]
pub(super) struct Service {
    /// Per chain: writes, then strong reads.
    served: Vec<[Served; 2]>,
    /// Sets of nodes (bit masks) that can serve all chains together, and since when.
    able: BTreeMap<u32, u64>,
    /// Per chain: members that served when some node became undialable and have been connected to a majority ever
    /// since. No leader has a reason to remove them. Empty while all nodes can be dialled.
    kept: Vec<BTreeSet<MemberId>>,
}

impl World {
    /// Counts a request that reached a node, if the node belongs to an able set.
    pub(super) fn note_asked(&mut self, node: usize, origin: &Origin) {
        let ask = &origin.asked.ask;
        let counts = self.service.able.keys().any(|set| set & 1 << node != 0);
        if !counts || (!ask.is_write() && ask.mode() != Some(ReadMode::Strong)) {
            return;
        }
        let (chain, kind) = (origin.asked.chain, usize::from(!ask.is_write()));
        self.served_of(chain)[kind].asked += 1;
    }

    pub(super) fn note_done(&mut self, chain: usize, is_write: bool) {
        self.look_at_service();
        let now = self.now;
        let served = &mut self.served_of(chain)[usize::from(!is_write)];
        *served = Served { last: now, asked: 0 };
    }

    fn served_of(&mut self, chain: usize) -> &mut [Served; 2] {
        if self.service.served.len() <= chain {
            self.service.served.resize(chain + 1, Default::default());
        }
        &mut self.service.served[chain]
    }

    /// Time allowed for service to return, including the lag of a chain's task and the time until a client retries.
    fn bound(&self) -> u64 {
        let Some(control) = self.setup.control else { return u64::MAX };
        let lease = control.lease.as_nanos() as u64;
        let suspect = control.suspect.as_nanos() as u64;
        // An unreachable leader resigns and another one is elected. Each joiner lost in between begins an epoch in
        // which it may hold up the chain again.
        let slow = control.slow.as_nanos() as u64;
        let gives_up = if self.counts_undialable() { 2 * suspect + SECOND / 2 + slow } else { 0 };
        3 * (lease + lease / 50) + suspect + gives_up + 2 * SECOND + SECOND + self.setup.attempt.1
    }

    /// Determines which sets of nodes can serve now, and checks that each chain was served recently.
    pub(super) fn look_at_service(&mut self) {
        if self.control.is_none() || self.phase != super::Phase::Work || self.is_given_up() {
            return;
        }
        let now = self.now;
        self.keep_members();
        let able = self.able();
        self.service.able.retain(|set, _| able.contains(set));
        for set in able {
            self.service.able.entry(set).or_insert(now);
        }
        let Some(&since) = self.service.able.values().min() else { return };
        let bound = self.bound();
        for chain in 0..self.service.served.len() {
            for (kind, what) in ["writes", "strong reads"].into_iter().enumerate() {
                let Served { last, asked } = self.service.served[chain][kind];
                let away = now - since.max(last);
                if asked < ASKED {
                    continue;
                }
                self.counts.away = self.counts.away.max(away);
                if away > bound {
                    let (millis, bound) = (away / 1_000_000, bound / 1_000_000);
                    let text = format!(
                        "chain {chain}: no {what} for {millis} ms (allowed: {bound}) although all that they need was available"
                    );
                    self.claim(Failure::new(Oracle::Service, text));
                }
            }
        }
    }

    /// Sets of mutually reachable nodes with a majority of the log's voters and a serving member of each chain.
    fn able(&self) -> Vec<u32> {
        let Some(control) = &self.control else { return Vec::new() };
        // A cluster that has given way serves nothing.
        if self.is_disturbed() || control.configs().is_over() {
            return Vec::new();
        }
        let count = self.nodes.len();
        let goes = |at: usize| self.nodes[at].is_alive() && !self.nodes[at].paused && !self.nodes[at].fails;
        let reaches: Vec<u32> = (0..count)
            .map(|a| (0..count).filter(|&b| a == b || self.reach_each_other(a, b)).fold(0, |set, b| set | 1 << b))
            .collect();
        let there = (0..count).filter(|&at| goes(at)).fold(0_u32, |set, at| set | 1 << at);
        let has = |set: u32, id: MemberId| {
            self.ids.iter().position(|&other| other == id).is_some_and(|at| set & 1 << at != 0)
        };
        let kept = |chain: usize, set: u32| {
            self.service.kept.get(chain).is_some_and(|kept| kept.iter().any(|&id| has(set, id)))
        };
        let serves = |set: u32| {
            control
                .configs()
                .iter()
                .all(|config| config.serving().any(|id| has(set, id)) || kept(config.chain.0 as usize, set))
        };
        let meets = |set: u32| (0..count).filter(|at| set & 1 << at != 0).all(|at| set & !reaches[at] == 0);
        let sets = (1..1_u32 << count).filter(|set| set & !there == 0);
        sets.filter(|&set| meets(set) && serves(set) && control.majority_in(|id| has(set, id))).collect()
    }

    /// Tracks the members that no leader has a reason to remove while a node can't be dialled.
    fn keep_members(&mut self) {
        let Some(control) = &self.control else { return };
        if !(0..self.nodes.len()).any(|at| self.network.is_undialable(at)) {
            self.service.kept.clear();
            return;
        }
        let is_well = |id: MemberId| {
            let at = self.ids.iter().position(|&other| other == id);
            let node = at.filter(|&at| self.nodes[at].is_alive() && !self.nodes[at].paused && !self.nodes[at].fails);
            node.is_some_and(|at| {
                let near = |other: MemberId| {
                    let other = self.ids.iter().position(|&known| known == other);
                    other.is_some_and(|other| other == at || self.reach_each_other(at, other))
                };
                control.majority_in(near)
            })
        };
        let mut kept = self.service.kept.clone();
        if kept.is_empty() {
            kept = control.configs().iter().map(|config| config.serving().collect()).collect();
        }
        kept.iter_mut().for_each(|members| members.retain(|&id| is_well(id)));
        self.service.kept = kept;
    }

    fn counts_undialable(&self) -> bool {
        self.setup.faults.iter().any(|planned| planned.fault.kind() == Kind::Undialable)
    }

    fn reach_each_other(&self, a: usize, b: usize) -> bool {
        self.network.calls(a, b) && self.network.calls(b, a)
    }

    /// Whether messages are lost, late or slow now. The length of an interruption then proves nothing.
    fn is_disturbed(&self) -> bool {
        let disturbs = |kind: Kind| {
            matches!(
                kind,
                Kind::Loss | Kind::Duplication | Kind::Reorder | Kind::Delay | Kind::Slow | Kind::SlowDisk | Kind::Far
            )
        };
        (0..self.active.len()).any(|at| self.active[at] && disturbs(self.planned(at).kind()))
    }
}
