//! All stores that served a chain last are lost permanently, and an operator accepts that (docs/DESIGN.md §5.8). The
//! operator repeats the order even while nothing is lost. In that case it must be refused.

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

/// Stores are lost at least this long before healing.
const LAST: u64 = 10 * SECOND;
const CHAIN: ChainId = ChainId(0);

#[derive(Debug)]
pub(in super::super) struct Loss {
    /// The first epoch without the lost updates.
    epoch: Epoch,
    /// When the first member entered this epoch, on the clients' clock.
    moment: u64,
    /// The clients' history before this moment.
    before: History,
}

impl World {
    /// Ends all members of the chain and destroys their disks, unless the log could not continue.
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

    /// The nodes whose stores serve the chain. `None` if one of them is down, if too few voters would remain, or while
    /// a decision is pending.
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

    pub(super) fn want_reopening(&mut self) {
        let Some(control) = &mut self.control else { return };
        let pause = control.operator.between(SECOND / 10, SECOND);
        let is_lost = |of: &ChainConfig| of.serving().all(|id| self.lacking.has_lost_disk(id));
        // A change of leader or of joiners cancels an order, so it is repeated.
        if self.now > HEALED - LAST / 2 && !control.configs().get(CHAIN).is_some_and(is_lost) {
            return;
        }
        self.queue.push(self.now + pause, super::super::Event::Control(Event::WantReopening));
        // An operator gives the order only if no missing store can return: each member is up or has lost its disk.
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

    /// Checks a leader that accepts a loss: no store that served the chain last may report to it, unless that store has
    /// lost unsynced data.
    pub(super) fn check_loss(&mut self, leader: usize, change: &ConfigChange) {
        let ConfigChange::AcceptLoss(change) = change else { return };
        let heard = self.heard_of(leader);
        let Some(control) = &self.control else { return };
        let Some(before) = control.configs().get(change.config.chain).filter(|before| before.epoch == change.replaces)
        else {
            return;
        };
        // A store that has lost unsynced data is certainly missing something.
        let may_lack_nothing = |id: &MemberId| !self.lacking.has_lost_power(*id);
        let is_heard = |id: &MemberId| heard.iter().any(|life| life.shares_store(*id));
        let there = before.serving().find(|id| may_lack_nothing(id) && is_heard(id));
        if let Some(there) = there {
            let what = format!("n{leader} accepts a loss although the store of {there} reports to it");
            self.claim(Failure::new(Oracle::Lost, what));
        }
    }

    /// Records the loss when the first serving member enters the epoch that accepted it. The committed updates that are
    /// missing there are lost, as clients may observe from this moment on. Nothing else may be lost.
    pub(in super::super) fn note_loss(&mut self, index: usize, slot: usize) {
        let Some(loss) = self.control.as_ref().and_then(|control| control.configs().loss(ChainId(slot as u32))) else {
            return;
        };
        let replica = self.nodes[index].slots[slot].runner.replica();
        // A joiner may enter the epoch before the member that holds the remaining data.
        let serves = |id: MemberId| id == self.ids[index];
        let entered =
            replica.status().config.is_some_and(|config| config.epoch >= loss.epoch && config.serving().any(serves));
        if !entered || self.loss.as_ref().is_some_and(|known| known.epoch >= loss.epoch) {
            return;
        }
        let lost = self.oracles[slot].lose(loss.epoch, replica.status().last, replica.history());
        self.accepted += 1;
        self.trace.line(self.now, |out| write!(out, "n{index} continues: {lost} committed updates are lost"));
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

    /// Whether an operator has accepted a loss of a chain that no serving member has entered yet.
    pub(in super::super) fn has_unseen_loss(&self, chain: ChainId) -> bool {
        let accepted = self.control.as_ref().and_then(|control| control.configs().loss(chain));
        accepted.is_some_and(|loss| self.loss.as_ref().is_none_or(|seen| seen.epoch < loss.epoch))
    }

    /// Whether a replica's content includes updates lost by an accepted loss, so that it no longer belongs to the
    /// chain.
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

    /// Whether an operation called at `called` and ending now spans the loss.
    pub(in super::super) fn spans_loss(&self, chain: usize, called: u64) -> bool {
        chain == CHAIN.0 as usize && self.loss.as_ref().is_some_and(|loss| called < loss.moment)
    }

    /// Records operations that span the loss in both histories. In the earlier one the outcome of their writes is
    /// unknown. In the later one, a write that was kept is acknowledged, and the outcome of any other is unknown. Reads
    /// are dropped, since they may show the state before the loss.
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

    pub(in super::super) fn history_before_loss(&self) -> Option<&History> {
        self.loss.as_ref().map(|loss| &loss.before)
    }

    pub(in super::super) fn has_lost(&self, chain: usize) -> bool {
        chain == CHAIN.0 as usize && self.loss.is_some()
    }

    /// Whether a version from before an accepted loss is no longer in the log.
    pub(in super::super) fn is_lost(&self, chain: usize, version: artillery_proto::Version) -> bool {
        let slot = CHAIN.0 as usize;
        let is_old = self.loss.as_ref().is_some_and(|loss| version.epoch < loss.epoch);
        chain == slot && is_old && !self.oracles[slot].has_committed(version)
    }
}

impl Loss {
    /// The part of an earlier operation that remains known after the loss. A write that was kept keeps its answer.
    /// Otherwise its outcome is unknown, since a late copy of its request may apply it again. That includes writes
    /// recorded as barred or without effect, because the record may be lost, and the remaining store may even hold an
    /// attempt that the chain had dropped. Reads are omitted.
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
