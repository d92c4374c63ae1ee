//! The nodes that have renewed in this term, and the members to be removed.

use std::collections::{BTreeMap, BTreeSet};

use super::known_node::KnownNode;
use crate::{MemberId, Timestamp, control::message::Renewal, guards::Guards};

#[derive(Clone, Debug)]
pub(super) struct Nodes {
    /// When the observation began: with the term, or after a pause of this node.
    since: Timestamp,
    nodes: BTreeMap<MemberId, KnownNode>,
    /// Per node: when the latest message of the log that it has answered was sent.
    answered: BTreeMap<MemberId, Timestamp>,
    /// Members to be removed, which get no lease, each with the last round that began before its fence.
    fenced: BTreeMap<MemberId, u64>,
    /// The newest round in which a quorum has confirmed that this node leads; 0: none in this term.
    confirmed: u64,
}

impl Nodes {
    pub(super) fn new(since: Timestamp) -> Self {
        Self { since, nodes: BTreeMap::new(), answered: BTreeMap::new(), fenced: BTreeMap::new(), confirmed: 0 }
    }

    /// During a pause this node received nothing, and messages that arrive after it may be as old as the pause. So the
    /// leader restarts its observation, as if its term had just begun (trap 42).
    pub(super) fn wake(&mut self, now: Timestamp) {
        self.since = now;
        self.nodes.values_mut().for_each(|seen| seen.wake(now));
    }

    pub(super) fn on_renewal(&mut self, now: Timestamp, renewal: Renewal, guards: Guards) {
        let seen = self.nodes.entry(renewal.me.id).or_insert_with(|| KnownNode::new(renewal.me.clone(), now));
        seen.on_renewal(now, renewal, guards);
    }

    pub(super) fn get_mut(&mut self, id: MemberId) -> Option<&mut KnownNode> {
        self.nodes.get_mut(&id)
    }

    /// A round has ended. `answered`: per node, when the latest message of the log that it has answered was sent.
    pub(super) fn on_round(&mut self, round: u64, leads: bool, answered: BTreeMap<MemberId, Timestamp>) {
        for (id, sent) in answered {
            let latest = self.answered.entry(id).or_insert(sent);
            *latest = sent.max(*latest);
        }
        if leads {
            self.confirmed = round;
        }
    }

    /// Fences the members that should be removed, and ends the fences of others unless `keeps_all`. `round`: the last
    /// one that has begun.
    pub(super) fn fence(&mut self, gone: BTreeSet<MemberId>, keeps_all: bool, round: u64) {
        self.fenced.retain(|id, _| keeps_all || gone.contains(id));
        for id in gone {
            self.fenced.entry(id).or_insert(round);
        }
    }

    pub(super) fn since(&self) -> Timestamp {
        self.since
    }

    pub(super) fn get(&self, id: MemberId) -> Option<&KnownNode> {
        self.nodes.get(&id)
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (MemberId, &KnownNode)> {
        self.nodes.iter().map(|(&id, seen)| (id, seen))
    }

    /// The last round that began before the member's fence; `None`: it isn't fenced.
    pub(super) fn fence_of(&self, id: MemberId) -> Option<u64> {
        self.fenced.get(&id).copied()
    }

    pub(super) fn confirmed(&self) -> u64 {
        self.confirmed
    }

    pub(super) fn answers(&self) -> &BTreeMap<MemberId, Timestamp> {
        &self.answered
    }
}
