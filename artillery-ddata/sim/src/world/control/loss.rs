//! All stores that served a chain last are lost for good, and an operator accepts that (docs/DESIGN.md §5.8). The operator gives
//! the order again and again, also while nothing is lost: then it must be refused.

use std::fmt::Write as _;

use artillery_proto::{
    ChainConfig, ChainId, Epoch, MemberId, Sequence,
    control::{
        log::ConfigChange,
        reopening::{NotReopened, Reopened},
    },
    node::NodeInput,
    replica::Status,
};

use super::{Event, World};
use crate::{
    history::{Answer, Call, History, Operation, SeriesAnswer, SeriesCall, SeriesOperation},
    oracle::{Failure, Oracle},
    scenario::{HEALED, SECOND},
};

/// How long before healing stores may be lost.
const LAST: u64 = 10 * SECOND;
const CHAIN: ChainId = ChainId(0);

/// A loss that an operator has accepted.
#[derive(Debug)]
pub(in super::super) struct Loss {
    /// The first epoch in which the lost updates aren't there.
    epoch: Epoch,
    /// When the first member entered it, on the clients' clock.
    moment: u64,
    /// What clients saw before.
    before: History,
}

impl World {
    /// Ends all members of the chain, and takes their disks away, unless the log could not go on.
    pub(super) fn lose_stores(&mut self) {
        if self.now > HEALED - LAST {
            return;
        }
        let lost = self.stores_to_lose().filter(|_| self.loss.is_none());
        let Some(lost) = lost else {
            return self.queue.push(self.now + SECOND / 5, super::super::Event::Control(Event::LoseStores));
        };
        self.trace.line(self.now, |out| write!(out, "the stores of {lost:?} are lost"));
        for node in lost {
            self.end_life(node);
            self.drop_disk(node);
            self.copies[node] = None;
            let Some(control) = &mut self.control else { return };
            let after = control.operator.between(SECOND / 10, 3 * SECOND);
            self.queue.push(self.now + after, super::super::Event::Control(Event::Start(node)));
        }
    }

    /// The nodes with the stores that serve the chain; none, if one of them isn't there now, or too few voters are left.
    fn stores_to_lose(&self) -> Option<Vec<usize>> {
        let control = self.control.as_ref()?;
        let proposes = control.nodes.iter().any(|half| half.decider.proposes());
        if control.group.in_limbo() || control.appends > 0 || proposes || control.group.changes_voters() {
            return None;
        }
        let at = |id: MemberId| self.ids.iter().position(|&other| other == id).filter(|&at| self.nodes[at].is_alive());
        let lost: Option<Vec<usize>> = control.configs().get(CHAIN)?.serving().map(at).collect();
        let lost = lost?;
        let stays = |id: MemberId| at(id).is_some_and(|at| !lost.contains(&at));
        control.group.has_majority_of(stays).then_some(lost)
    }

    /// Asks the leader to open the chain from what is left.
    pub(super) fn want_reopening(&mut self) {
        let Some(control) = &mut self.control else { return };
        let pause = control.operator.between(SECOND / 10, SECOND);
        let is_lost = |of: &ChainConfig| of.serving().all(|id| self.lacking.has_lost_disk(id));
        // Leaders that change, and joiners that come and go, end an order: then it is given again.
        if self.now > HEALED - LAST / 2 && !control.configs().get(CHAIN).is_some_and(is_lost) {
            return;
        }
        self.queue.push(self.now + pause, super::super::Event::Control(Event::WantReopening));
        // An operator gives the order only when no store of these members can come back: each of them lives, or has lost its disk.
        let is_alive =
            |id: MemberId| self.ids.iter().position(|&other| other == id).is_some_and(|at| self.nodes[at].is_alive());
        let comes_back = |id: MemberId| !is_alive(id) && !self.lacking.has_lost_disk(id);
        if self
            .control
            .as_ref()
            .and_then(|control| control.configs().get(CHAIN))
            .is_none_or(|of| of.serving().any(comes_back))
        {
            return;
        }
        let leads = |at: &usize| self.nodes[*at].is_alive() && !self.nodes[*at].paused && self.is_deciding(*at);
        let Some(node) = (0..self.nodes.len()).find(leads) else { return };
        self.hand_in(node, NodeInput::AcceptLoss { token: 0, chain: CHAIN });
    }

    pub(super) fn answered_operator(&mut self, result: &Result<Reopened, NotReopened>) {
        self.trace.line(self.now, |out| write!(out, "the order to open the chain is answered: {result:?}"));
    }

    /// A leader wants to accept a loss: it has heard of no store that served the chain last.
    pub(super) fn check_loss(&mut self, leader: usize, change: &ConfigChange) {
        let ConfigChange::AcceptLoss(change) = change else { return };
        let heard = self.heard_of(leader);
        let Some(control) = &self.control else { return };
        let Some(before) = control.configs().get(change.config.chain).filter(|before| before.epoch == change.replaces)
        else {
            return;
        };
        // One that has lost what it hadn't synced lacks something for certain.
        let may_lack_nothing = |id: &MemberId| !self.lacking.has_lost_power(*id);
        let is_heard = |id: &MemberId| heard.iter().any(|life| life.shares_store(*id));
        let there = before.serving().find(|id| may_lack_nothing(id) && is_heard(id));
        if let Some(there) = there {
            let what = format!("n{leader} accepts a loss, though it has heard of the store of {there}");
            self.claim(Failure::new(Oracle::Lost, what));
        }
    }

    /// The first serving member enters the epoch that an accepted loss has made. What was committed and isn't there is lost, and clients
    /// may see that from now on. Nothing else may be lost.
    pub(in super::super) fn note_loss(&mut self, index: usize, slot: usize) {
        let Some(loss) = self.control.as_ref().and_then(|control| control.configs().loss(ChainId(slot as u32))) else {
            return;
        };
        let replica = self.nodes[index].slots[slot].runner.replica();
        // A joiner may enter it before the member that has what is left.
        let serves = |id: MemberId| id == self.ids[index];
        let entered =
            replica.status().config.is_some_and(|config| config.epoch >= loss.epoch && config.serving().any(serves));
        if !entered || self.loss.as_ref().is_some_and(|known| known.epoch >= loss.epoch) {
            return;
        }
        let lost = self.oracles[slot].lose(loss.epoch, replica.status().last, replica.history());
        self.accepted += 1;
        self.trace.line(self.now, |out| write!(out, "n{index} goes on: {lost} committed updates are lost"));
        let before = std::mem::take(&mut self.histories[slot]);
        let moment = self.moment();
        let mut loss = Loss { epoch: loss.epoch, moment, before: History::default() };
        let oracle = &self.oracles[slot];
        let is_kept = |version| oracle.has_committed(version);
        self.histories[slot] = History {
            operations: before.operations.iter().filter_map(|operation| loss.known_after(operation, is_kept)).collect(),
            series: before.series.iter().filter_map(|operation| loss.series_after(operation, is_kept)).collect(),
            ..History::default()
        };
        loss.before = before;
        self.loss = Some(loss);
    }

    /// Whether an operator has accepted a loss of a chain, and no serving member has entered an epoch since.
    pub(in super::super) fn has_unseen_loss(&self, chain: ChainId) -> bool {
        let accepted = self.control.as_ref().and_then(|control| control.configs().loss(chain));
        accepted.is_some_and(|loss| self.loss.as_ref().is_none_or(|seen| seen.epoch < loss.epoch))
    }

    /// Whether a member has committed what was lost by an accepted loss: what it holds isn't the chain's.
    pub(in super::super) fn is_of_lost_past(&self, index: usize, slot: usize, status: &Status) -> bool {
        let Some(loss) = self.loss.as_ref().filter(|_| slot == CHAIN.0 as usize) else { return false };
        let Some(config) = status.config.as_ref().filter(|config| config.epoch >= loss.epoch) else { return true };
        if config.serving().any(|id| id == self.ids[index]) {
            return false;
        }
        let history = self.nodes[index].slots[slot].runner.replica().history();
        let committed = history.rev().map(|update| update.version).find(|version| version.sequence <= status.watermark);
        status.watermark > Sequence::ZERO && self.is_lost(slot, committed.unwrap_or(status.last))
    }

    /// Whether an operation that was called then spans the loss: it ends after it.
    pub(in super::super) fn spans_loss(&self, chain: usize, called: u64) -> bool {
        chain == CHAIN.0 as usize && self.loss.as_ref().is_some_and(|loss| called < loss.moment)
    }

    /// Takes down operations that span the loss. Before it, the outcome of their writes is unknown. After it, they count as far
    /// as they were kept. What they read may be of before.
    pub(in super::super) fn record_spanning(&mut self, operations: &[Operation], series: &[SeriesOperation]) {
        let slot = CHAIN.0 as usize;
        let (Some(loss), oracle) = (&mut self.loss, &self.oracles[slot]) else { return };
        let epoch = loss.epoch;
        let is_kept = |version: artillery_proto::Version| version.epoch >= epoch || oracle.has_committed(version);
        let history = &mut self.histories[slot];
        history.operations.extend(operations.iter().filter_map(|operation| loss.known_after(operation, is_kept)));
        history.series.extend(series.iter().filter_map(|operation| loss.series_after(operation, is_kept)));
        let nothing = |_| false;
        let earlier = operations.iter().filter_map(|operation| loss.known_after(operation, nothing));
        let earlier: Vec<_> = earlier.collect();
        let earlier_series: Vec<_> =
            series.iter().filter_map(|operation| loss.series_after(operation, nothing)).collect();
        loss.before.operations.extend(earlier);
        loss.before.series.extend(earlier_series);
    }

    /// What clients saw before an accepted loss.
    pub(in super::super) fn history_before_loss(&self) -> Option<&History> {
        self.loss.as_ref().map(|loss| &loss.before)
    }

    /// Whether an operator has accepted a loss of the chain.
    pub(in super::super) fn has_lost(&self, chain: usize) -> bool {
        chain == CHAIN.0 as usize && self.loss.is_some()
    }

    /// Whether a version was acknowledged, and lost by an accepted loss.
    pub(in super::super) fn is_lost(&self, chain: usize, version: artillery_proto::Version) -> bool {
        let slot = CHAIN.0 as usize;
        let is_old = self.loss.as_ref().is_some_and(|loss| version.epoch < loss.epoch);
        chain == slot && is_old && !self.oracles[slot].has_committed(version)
    }
}

impl Loss {
    /// What is known of an earlier operation: a write counts if it was kept. One that wasn't may be applied again, by a late copy
    /// of its request. So may one whose record said that it had changed nothing, or that it was barred: that record may be lost,
    /// and what is left may even hold an attempt that the chain had dropped. A read shows nothing of what is kept.
    fn known_after(
        &self,
        operation: &Operation,
        is_kept: impl Fn(artillery_proto::Version) -> bool,
    ) -> Option<Operation> {
        let answer = match operation.answer {
            Answer::Written(version) | Answer::Took { version, .. } if is_kept(version) => operation.answer,
            _ => Answer::Unknown,
        };
        (operation.call != Call::Read).then_some(Operation { answer, ..*operation })
    }

    fn series_after(
        &self,
        operation: &SeriesOperation,
        is_kept: impl Fn(artillery_proto::Version) -> bool,
    ) -> Option<SeriesOperation> {
        let answer = match &operation.answer {
            SeriesAnswer::Counted { version, .. } if is_kept(*version) => operation.answer.clone(),
            _ => SeriesAnswer::Unknown,
        };
        (operation.call != SeriesCall::Read).then(|| SeriesOperation { answer, ..operation.clone() })
    }
}
