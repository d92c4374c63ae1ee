//! Most voters of the log are lost, and an operator recovers the cluster from the rest (docs/DESIGN.md §5.12).

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc, time::Duration};

use artillery_proto::{
    ChainConfig, MemberId, Role,
    control::{
        Bootstrap, History, Met,
        branch::holds_more,
        recovery::{NotRecovered, Plan, plan},
    },
};

use super::{Event, World};
use crate::{
    oracle::{Failure, Oracle},
    scenario::{HEALED, SECOND},
};

/// A disaster happens at least this long before healing.
const LAST: u64 = 8 * SECOND;

impl World {
    /// Kills nodes until the log has no majority, but spares one node that serves all chains. The killed incarnations
    /// are lost, and their nodes start others later. The survivor may be asked to stop.
    pub(super) fn disaster(&mut self) {
        let again = self.now + SECOND / 5;
        if self.now > HEALED - LAST {
            return;
        }
        let Some(survivor) = self.survivor() else {
            return self.queue.push(again, super::super::Event::Control(Event::Disaster));
        };
        self.trace.line(self.now, |out| write!(out, "every keeper of the log is lost except n{survivor}"));
        self.disasters += 1;
        let mut alive = BTreeSet::from([self.ids[survivor]]);
        for node in (0..self.nodes.len()).filter(|&node| node != survivor) {
            let id = self.ids[node];
            let Some(control) = &mut self.control else { return };
            // With a single chain, other nodes may survive too if they are no majority. With several chains each
            // survivor may be ahead in a different chain, so that no node has everything. Such a cluster can't be
            // recovered.
            let is_enough = control.group.has_majority_of(|other| other == id || alive.contains(&other));
            let (lives_on, after) = (
                !is_enough && self.setup.chains == 1 && control.operator.chance(500),
                control.operator.between(SECOND, 6 * SECOND),
            );
            if lives_on {
                alive.insert(id);
            } else if self.nodes[node].is_alive() {
                self.end_life(node);
                self.may_lose_disk(node);
                self.queue.push(self.now + after, super::super::Event::Control(Event::Start(node)));
            }
        }
        if self.control.as_mut().is_some_and(|control| control.operator.chance(300)) {
            self.leave_for_good(survivor);
        }
        self.queue.push(again, super::super::Event::Control(Event::WantRecovery));
    }

    /// A node that serves all chains with all data, but is no majority by itself. `None` if there is no such node, or
    /// while a decision is pending.
    fn survivor(&self) -> Option<usize> {
        let control = self.control.as_ref()?;
        let proposes = control.nodes.iter().any(|half| half.decider.proposes());
        if control.group.in_limbo() || control.appends > 0 || proposes || control.group.changes_voters() {
            return None;
        }
        let serves = |&node: &usize| {
            let (id, slots) = (self.ids[node], &self.nodes[node].slots);
            let serves_in = |config: &ChainConfig| slots[config.chain.0 as usize].runner.replica().status().serves(id);
            let is_there = self.nodes[node].is_alive() && !self.nodes[node].paused;
            is_there
                && self.has_all(id)
                && control.configs().iter().all(|config| serves_in(config) == Some(config.epoch))
        };
        let node = (0..self.nodes.len()).find(serves)?;
        (!control.group.has_majority_of(|id| id == self.ids[node])).then_some(node)
    }

    /// An operator surveys the nodes that a random live node reaches, and orders the best of them to recover the
    /// cluster.
    pub(super) fn want_recovery(&mut self) {
        let Some(control) = &mut self.control else { return };
        let (pause, draw) = (control.operator.between(100_000_000, 500_000_000), control.operator.below(u64::MAX));
        if control.group.configs().history() != History::first(control.founding.cluster) {
            return;
        }
        self.queue.push(self.now + pause, super::super::Event::Control(Event::WantRecovery));
        let there: Vec<usize> = (0..self.nodes.len()).filter(|&at| self.reaches(at, at)).collect();
        let Some(&asked) = there.get((draw % there.len().max(1) as u64) as usize) else { return };
        let plan = self.plan_at(asked, 0);
        self.trace.line(self.now, |out| write!(out, "a recovery is asked of n{asked}: {plan:?}"));
        let Ok(plan) = plan else { return };
        if let Some(node) = self.ids.iter().position(|&id| id == plan.by.id) {
            let event = Event::Recover { node, id: plan.by.id, since: self.now };
            self.queue.push(self.now + self.lease_and_drift(), super::super::Event::Control(event));
        }
    }

    pub(super) fn lease_and_drift(&self) -> u64 {
        let lease = self.setup.control.map_or(Duration::ZERO, |control| control.lease).as_nanos() as u64;
        lease + lease / 50
    }

    fn plan_at(&self, node: usize, since: u64) -> Result<Plan, NotRecovered> {
        let cluster = self.control.as_ref().ok_or(NotRecovered::Static)?.founding.cluster;
        let reached = (0..self.nodes.len()).filter(|&at| self.reaches(node, at));
        let standings: Vec<_> = reached.filter_map(|at| self.standing(at)).collect();
        plan(cluster, &standings, Duration::from_nanos(since))
    }

    /// Executes a recovery order one lease after it was given: surveys again, and continues alone if the survey still
    /// selects this node.
    pub(super) fn recover(&mut self, node: usize, since: u64) {
        let plan = self.plan_at(node, self.now - since);
        self.trace.line(self.now, |out| write!(out, "n{node} should continue alone: {plan:?}"));
        let Some(plan) = plan.ok().filter(|plan| plan.by.id == self.ids[node]) else { return };
        if !self.has_all(plan.by.id) {
            return;
        }
        let Some(control) = &mut self.control else { return };
        let next = plan.history.next(u128::from(control.operator.below(u64::MAX)));
        let known = control.nodes[node].decider.configs();
        let configs = Arc::new(known.recovered(next, plan.by.clone(), plan.newest, plan.upto).branched(plan.branch()));
        self.trace.line(self.now, |out| write!(out, "n{node} continues alone as {next}"));
        if !self.keep_recovery(node, &configs) {
            return;
        }
        self.empty_lost_disks();
        let Some(control) = &mut self.control else { return };
        self.recoveries += 1;
        control.nodes[node].history = Some(next);
        control.group.begin_anew(self.now, plan.by.id, configs);
        self.spread();
    }

    /// Whether a recovery by this node loses nothing, since it serves every chain.
    fn has_all(&self, by: MemberId) -> bool {
        let Some(control) = &self.control else { return false };
        control.configs().iter().all(|config| config.role(by) == Some(Role::Serving))
    }

    /// Checks whether a node accepts messages of this history. A node adopts the first history that it learns of. `Err`
    /// has the node's own history if `theirs` is over. It has none if the node was left behind by a newer history,
    /// which stops the node, or if the histories have diverged.
    pub(super) fn listens(&mut self, node: usize, theirs: History) -> Result<(), Option<History>> {
        let Some(control) = &mut self.control else { return Ok(()) };
        match History::meet(&mut control.nodes[node].history, theirs) {
            Met::Same => Ok(()),
            Met::Over(mine) => Err(Some(mine)),
            Met::LeftBehind => {
                self.leave_behind(node);
                Err(None)
            }
            Met::Parted => Err(None),
        }
    }

    pub(super) fn leave_behind(&mut self, node: usize) {
        self.check_nothing_parts(node);
        let Some(control) = &mut self.control else { return };
        let after = control.operator.between(SECOND / 10, SECOND);
        self.trace.line(self.now, |out| write!(out, "n{node} was left behind"));
        self.end_life(node);
        // Its operator replaces its directory by an empty one.
        self.drop_disk(node);
        self.queue.push(self.now + after, super::super::Event::Control(Event::Start(node)));
    }

    /// Recoveries here keep every committed update ([`has_all`](Self::has_all)), so no store may report more.
    fn check_nothing_parts(&mut self, node: usize) {
        let branches = self.control.as_ref().map(|control| control.configs().branches().to_vec());
        let holds = self.standing(node).zip(branches).is_some_and(|(mine, branches)| holds_more(&mine, &branches));
        if holds {
            let what = format!("n{node} was left behind, and reports commits that the newer history is missing");
            self.claim(Failure::new(Oracle::Claims, what));
        }
    }

    pub(in super::super) fn may_need_recovery(&self) -> bool {
        self.setup.control.is_some_and(|control| control.loses) && self.recoveries == 0
    }

    /// Empties the disks of nodes that are down at a recovery. Their history is over.
    fn empty_lost_disks(&mut self) {
        for node in 0..self.nodes.len() {
            if !self.nodes[node].is_alive() {
                self.drop_disk(node);
            }
        }
    }

    /// The history of a new incarnation: founders belong to the first one, other nodes to none yet.
    pub(super) fn first_history(founding: &Bootstrap, id: MemberId) -> Option<History> {
        founding.names(id).then(|| History::first(founding.cluster))
    }

    pub(super) fn history_of(&self, node: usize) -> Option<History> {
        self.control.as_ref()?.nodes[node].history
    }
}
