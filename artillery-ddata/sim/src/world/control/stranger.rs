//! Around the first writes, nodes meet another cluster of the same name and secret. The empty one gives way.
//!
//! The other cluster is not simulated: it consists of an id and whether it holds data. The same function decides
//! whether it gives way. The nodes of this cluster learn of it occasionally and independently, and learn late that it
//! holds data.

use std::{collections::BTreeSet, fmt::Write as _};

use artillery_proto::{ChainConfig, ClusterId, Sequence, control::encounter::Party, node::NodeInput};

use super::{Event, World};
use crate::{
    oracle::{Failure, Oracle},
    scenario::{HEALED, SECOND},
};

/// By this time, an empty cluster that is outranked has given way.
const GIVEN_WAY: u64 = HEALED + 12 * SECOND;

/// How long nodes of this cluster remember the other one (`encounter::FORGET_AFTER`).
const REMEMBERED: u64 = 15 * SECOND;

/// Number of leases after which all nodes of a cluster that is over know it.
const LEARNING_LEASES: u64 = 12;

/// Maximum duration of a seal after healing, in leases. The leader removes a seal after six leases without certainty.
const SEAL_LEASES: u64 = 12;

#[derive(Debug)]
pub(super) struct Stranger {
    party: Party,
    /// When it starts to hold data; `None`: never.
    writes_at: Option<u64>,
    /// The interval in which nodes meet it.
    met: (u64, u64),
    clients_at: u64,
    /// Whether it has given way to this cluster.
    is_over: bool,
    /// Until when nodes of this cluster may still remember it after it has given way.
    known_until: u64,
    /// When this cluster was first seen to be over.
    over_at: Option<u64>,
    /// The nodes of this cluster that have moved to the other one.
    gone: BTreeSet<usize>,
    sealed_since: Option<u64>,
}

impl World {
    /// Draws the other cluster. Clients start around the first meeting, or long after healing.
    pub(super) fn begin_meeting(&mut self) {
        let Some(control) = &mut self.control else { return };
        let rng = &mut control.operator;
        let holds_data = rng.chance(300);
        let party = Party { holds_data, cluster: ClusterId(u128::from(rng.below(u64::MAX))) };
        let from = rng.between(SECOND / 2, 3 * SECOND);
        let is_quiet = rng.chance(300);
        let clients_at =
            if is_quiet { GIVEN_WAY + SECOND } else { (from + rng.below(SECOND)).saturating_sub(SECOND / 2) };
        let until = if is_quiet { u64::MAX } else { from + rng.between(2 * SECOND, 12 * SECOND) };
        let writes_at = rng.chance(300).then(|| from + rng.below(2 * SECOND));
        let (over_at, gone, sealed_since) = (None, BTreeSet::new(), None);
        let met = (from, until);
        control.stranger = Some(Stranger {
            party,
            writes_at,
            met,
            clients_at,
            is_over: false,
            known_until: 0,
            over_at,
            gone,
            sealed_since,
        });
        self.queue.push(from, super::super::Event::Control(Event::Meet));
        self.queue.push(clients_at, super::super::Event::Control(Event::BeginClients));
    }

    /// Some nodes of this cluster learn of the other one, which decides whether it gives way.
    pub(super) fn meet_stranger(&mut self) -> Result<(), Failure> {
        let now = self.now;
        let holds: Vec<bool> = (0..self.nodes.len()).map(|at| self.holds_data(at)).collect();
        let guards = self.setup.guards;
        let Some(control) = &mut self.control else { return Ok(()) };
        let cluster = control.founding.cluster;
        let rng = &mut control.operator;
        let (pause, seen, told) = (rng.between(SECOND / 5, SECOND), rng.index(holds.len()), rng.below(u64::MAX));
        let decides = rng.chance(500);
        let Some(stranger) = &mut control.stranger else { return Ok(()) };
        if stranger.writes_at.is_some_and(|at| at <= now) && !stranger.is_over {
            stranger.party.holds_data = true;
        }
        let is_met = (stranger.met.0..stranger.met.1).contains(&now) && !stranger.is_over;
        // The other cluster learns of this one from a single node.
        let mine = Party { holds_data: holds[seen], cluster };
        if is_met && decides && stranger.party.gives_way(mine, guards) {
            (stranger.is_over, stranger.known_until) = (true, now + REMEMBERED);
            self.trace.line(now, |out| write!(out, "the other cluster gives way"));
        }
        self.meetings += u64::from(is_met && !stranger.is_over);
        let (party, is_met) = (stranger.party, is_met && !stranger.is_over || now < stranger.known_until);
        for (node, holds_data) in holds.into_iter().enumerate() {
            if self.nodes[node].is_alive() && told >> node & 3 != 0 {
                let mine = Party { holds_data, cluster };
                let by = (is_met && mine.gives_way(party, guards)).then_some(party.cluster);
                let event = Event::Met { node, id: self.ids[node], by };
                self.queue.push(now + 1, super::super::Event::Control(event));
            }
        }
        self.queue.push(now + pause, super::super::Event::Control(Event::Meet));
        self.meet_gone_nodes();
        self.check_liveness()
    }

    /// Nodes that have moved inform others of this cluster that it has given way.
    fn meet_gone_nodes(&mut self) {
        let Some(stranger) = self.control.as_ref().and_then(|control| control.stranger.as_ref()) else { return };
        let by = stranger.party.cluster;
        let meets = |at: &usize| {
            let reached = |&other: &usize| !self.is_broken(*at, other) && !self.network.is_cut(*at, other);
            self.nodes[*at].is_alive() && stranger.gone.iter().any(reached)
        };
        for node in (0..self.nodes.len()).filter(meets).collect::<Vec<_>>() {
            let event = Event::GaveWay { node, id: self.ids[node], by };
            self.queue.push(self.now + 1, super::super::Event::Control(event));
        }
    }

    pub(super) fn gave_way(&mut self, node: usize, by: ClusterId) {
        self.hand_in(node, NodeInput::GaveWay { by });
    }

    /// Moves a node to the other cluster, which ends it here.
    pub(super) fn join_stranger(&mut self, node: usize) {
        if let Some(stranger) = self.control.as_mut().and_then(|control| control.stranger.as_mut()) {
            stranger.gone.insert(node);
            self.trace.line(self.now, |out| write!(out, "n{node} belongs to another cluster"));
            self.end_life(node);
        }
    }

    pub(super) fn has_joined_stranger(&self, node: usize) -> bool {
        let stranger = self.control.as_ref().and_then(|control| control.stranger.as_ref());
        stranger.is_some_and(|stranger| stranger.gone.contains(&node))
    }

    /// A live node that does not know that this cluster is over.
    fn unaware(&self) -> Option<usize> {
        let control = self.control.as_ref()?;
        let is_aware = |at: usize| {
            let state = control.nodes[at].decider.state();
            state.is_over || state.gives_way().is_some()
        };
        (0..self.nodes.len()).find(|&at| self.nodes[at].is_alive() && !is_aware(at))
    }

    pub(super) fn outranked(&mut self, node: usize, by: Option<ClusterId>) {
        self.hand_in(node, NodeInput::Outranked { by });
    }

    pub(in super::super) fn is_given_up(&self) -> bool {
        self.control.as_ref().is_some_and(|control| control.stranger.is_some() && control.configs().is_over())
    }

    fn holds_data(&self, node: usize) -> bool {
        self.control.as_ref().is_some_and(|control| control.nodes[node].decider.state().holds_data)
    }

    /// Checks that a cluster that is over has committed nothing, and that the clusters have not given way to each
    /// other. Ends the run once all nodes had time to learn of it, including nodes that were disconnected.
    pub(super) fn check_given_way(&mut self) -> Result<(), Failure> {
        let Some(control) = &self.control else { return Ok(()) };
        let Some(stranger) = &control.stranger else { return Ok(()) };
        if !control.configs().is_over() {
            return Ok(());
        }
        let fail = |what: String| Err(Failure::new(Oracle::Lost, what));
        if let Some((chain, last)) = self.committed() {
            return fail(format!("the cluster gave way although update {last} of chain {chain} is committed"));
        }
        if stranger.is_over {
            return fail("the clusters have given way to each other".into());
        }
        let (over_at, wait) = (stranger.over_at.unwrap_or(self.now), self.lease_and_drift() * LEARNING_LEASES);
        if self.now >= over_at.max(HEALED) + wait {
            if let Some(node) = self.unaware() {
                return Err(Failure::new(Oracle::Liveness, format!("n{node} did not learn that its cluster gave way")));
            }
            self.gave_way = true;
            self.counts.gave_way = 1;
            self.phase = super::super::Phase::End;
            return Ok(());
        }
        let now = self.now;
        if let Some(stranger) = self.control.as_mut().and_then(|control| control.stranger.as_mut()) {
            stranger.over_at.get_or_insert(now);
        }
        Ok(())
    }

    fn committed(&self) -> Option<(usize, Sequence)> {
        let all = self.oracles.iter().enumerate().map(|(chain, oracle)| (chain, oracle.committed_up_to()));
        all.into_iter().find(|&(_, last)| last > Sequence::ZERO)
    }

    /// Checks that after healing an outranked empty cluster gives way in time, and no chain stays sealed.
    fn check_liveness(&mut self) -> Result<(), Failure> {
        let (now, is_empty, longest) = (self.now, self.committed().is_none(), self.lease_and_drift() * SEAL_LEASES);
        let guards = self.setup.guards;
        let Some(control) = &mut self.control else { return Ok(()) };
        let (is_sealed, is_over) = (control.configs().iter().any(ChainConfig::is_sealed), control.configs().is_over());
        let mine = Party { holds_data: false, cluster: control.founding.cluster };
        let Some(stranger) = &mut control.stranger else { return Ok(()) };
        stranger.sealed_since = is_sealed.then(|| stranger.sealed_since.unwrap_or(now).max(HEALED));
        if is_over {
            return Ok(());
        }
        let fail = |what: &str| Err(Failure::new(Oracle::Liveness, what));
        if stranger.sealed_since.is_some_and(|since| now > since + longest) {
            return fail("a chain stayed sealed");
        }
        let is_met = (stranger.met.0..stranger.met.1).contains(&now) && !stranger.is_over;
        if is_met && is_empty && now > GIVEN_WAY && now < stranger.clients_at && mine.gives_way(stranger.party, guards)
        {
            return fail("an empty cluster did not give way");
        }
        Ok(())
    }
}
