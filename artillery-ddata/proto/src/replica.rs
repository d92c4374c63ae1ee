//! The CRAQ state machine of one member of one chain, without I/O: no clock, no socket, no task.
//!
//! A [`ChainRunner`](crate::runner::ChainRunner) drives it. A member consists of parts, and each part owns its state. A
//! part receives everything else as arguments, and calls only parts below it:
//!
//! ```text
//! replica → head, reads, promotion, resync, sending → peers, upstream → log → gate, membership
//! ```
//!
//! [`Replica`] alone passes effects from part to part. This file has the inputs, the entry and exit of epochs, and the
//! status; `frames` has the frames to and from other members, `progress` the order in which requests, commits and cuts
//! act on the parts. `frames` calls `progress`, never the reverse.
//!
//! Local clean reads don't pass through here at all: [`Gate`] serves them from any thread.

mod ends;
mod frames;
mod gate;
mod head;
mod log;
mod membership;
mod outbox;
mod peers;
mod progress;
mod promotion;
mod reads;
mod resync;
mod sending;
mod throughput;
mod types;
mod unhashed;
mod upstream;

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

#[cfg(feature = "mutants")]
pub use self::gate::Begun;
pub use self::{
    gate::{Gate, NotLocal, ReadCounters},
    log::{ChainRestore, JournalBatch, RestoreError, RestoreSurvey, RestoredChain},
    throughput::ChainProgress,
    types::*,
};
use self::{
    head::{Head, Waiter, WriteInput},
    log::Log,
    membership::{Context, Membership},
    outbox::Outbox,
    peers::Peers,
    promotion::Promotion,
    reads::{PendingRead, Reads},
    resync::{Joiner, Source},
    throughput::ThroughputMonitor,
    upstream::Upstream,
};
pub(crate) use self::{
    log::{RECORD_BYTES, checkpoint_bytes},
    unhashed::Unhashed,
};
use crate::{
    ChainConfig, ChainId, Epoch, MemberId, Role, Sequence, Timestamp,
    api::Refusal,
    message::{Fullness, Truncate},
    store::{Size, Store},
    types::update::Update,
};

#[derive(Hash)]
#[cfg_attr(feature = "mutants", derive(Clone))]
pub struct Replica {
    membership: Membership,
    log: Log,
    upstream: Upstream,
    peers: Peers,
    head: Head,
    reads: Reads,
    source: Source,
    joiner: Joiner,
    promotion: Promotion,
    pace: Unhashed<ThroughputMonitor>,
    outputs: Outbox,
    next_heartbeat: Timestamp,
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica")
            .field("me", &self.membership.me())
            .field("last", &self.log.last())
            .field("watermark", &self.log.watermark())
            .field("open_upto", &self.upstream.open_upto())
            .finish_non_exhaustive()
    }
}

impl Replica {
    /// A member that is in no configuration yet, over an empty part of `store`.
    pub(crate) fn new(
        me: MemberId,
        chain: ChainId,
        settings: ReplicaSettings,
        store: Arc<dyn Store>,
        gate: Arc<Gate>,
    ) -> Self {
        debug_assert_eq!(gate.guards(), settings.guards, "a gate and its replica have the same guards");
        let mut replica = Self {
            log: Log::new(chain, store, gate.clone(), settings.durable),
            membership: Membership::new(me, chain, settings),
            upstream: Upstream::default(),
            peers: Peers::default(),
            head: Head::default(),
            reads: Reads::new(me, gate),
            source: Source::default(),
            joiner: Joiner::default(),
            promotion: Promotion::default(),
            pace: Unhashed::default(),
            outputs: Outbox::default(),
            next_heartbeat: Timestamp::ZERO,
        };
        // A new chain has an empty checkpoint.
        replica.begin_checkpoint();
        replica
    }

    /// Test-only: a copy of this member over `store` and behind `gate`, which are copies of this member's.
    #[cfg(feature = "mutants")]
    pub(crate) fn fork(&self, store: Arc<dyn Store>, gate: Arc<Gate>) -> Self {
        let mut fork = self.clone();
        fork.log.attach(store, gate.clone());
        fork.reads.attach(gate);
        fork
    }

    /// Continues from the content of the journal. Call it before the first input.
    pub(crate) fn restore(&mut self, restored: RestoredChain) {
        self.log.restore(restored);
    }

    pub(crate) fn handle(&mut self, now: Timestamp, input: ReplicaInput) {
        #[cfg(any(test, feature = "mutants"))]
        self.reads.note_time(now);
        if !self.is_unsettled() {
            self.next_heartbeat = now + self.membership.settings().heartbeat;
        }
        let cx = self.membership.at(now);
        match input {
            ReplicaInput::Enter(config) => self.enter(now, config),
            ReplicaInput::Expelled(epoch) => self.expelled(now, epoch),
            ReplicaInput::Connected(peer) => {
                self.peers.connected(peer);
                self.source.link_changed(peer);
            }
            ReplicaInput::Disconnected(peer) => {
                self.peers.disconnected(peer);
                self.source.link_changed(peer);
                if allows!(cx.guards(), ForgetAsked) {
                    self.promotion.end();
                }
            }
            ReplicaInput::Receive { from, frame } => self.receive(now, from, frame),
            ReplicaInput::Write { token, request, write, deadline } => {
                let waiter = Waiter { token, deadline, replayed: false };
                let input = WriteInput { waiter, request, write };
                let ordered = self.head.write(cx, &mut self.log, &self.peers, input, &mut self.outputs);
                self.ordered(now, ordered);
            }
            ReplicaInput::Read { token, query, mode, floor, deadline } => {
                self.read(now, PendingRead { token, query, mode, floor, deadline });
            }
            ReplicaInput::Lease(until) => self.reads.set_lease(cx, until),
            ReplicaInput::Close { epoch, until } => self.head.close(cx, epoch, until, &mut self.outputs),
            ReplicaInput::Served(at) => self.reads.served_at(at.min(now)),
            ReplicaInput::Durable(upto) => self.durable(now, upto),
            ReplicaInput::Tick => self.tick(now),
        }
        self.follow_up(now);
    }

    fn tick(&mut self, now: Timestamp) {
        if self.upstream.ack_is_due(now) {
            self.peers.due(self.membership.place().predecessor);
        }
        if let Some(report) = self.log.unreplicated_mut().report(now) {
            self.outputs.event(ReplicaEvent::Rereplicating(report.into()));
        }
        if now < self.next_heartbeat {
            return;
        }
        self.next_heartbeat = now + self.membership.settings().heartbeat;
        self.head.end_closing(now);
        self.reads.expire(now, &mut self.outputs);
        self.head.expire(now, &mut self.outputs);
        self.reads.expire_snapshots(now, &self.log);
        self.reads.expire_watchers(now, &self.log, &mut self.outputs);
        self.repeat(now);
        self.log.write_watermark();
    }

    /// When the next [`ReplicaInput::Tick`] is due: at the next heartbeat if anything is unsettled, or when a withheld
    /// acknowledgement, a report or the removal of keys is due, whichever is first.
    pub(crate) fn next_tick(&self) -> Option<Timestamp> {
        let heartbeat = self.is_unsettled().then_some(self.next_heartbeat);
        let removal = self.head.next_removal(&self.membership, &self.log);
        let report = self.log.unreplicated().next_report();
        heartbeat.into_iter().chain(self.upstream.next_ack()).chain(report).chain(removal).min()
    }

    fn is_unsettled(&self) -> bool {
        !self.membership.is_halted()
            && (!self.reads.is_idle()
                || !self.head.is_idle()
                || self.may_promote()
                || self.promotion.joiner().is_some()
                || self.log.has_unwritten_watermark()
                || self.log.fullness(&self.membership) != Fullness::Nothing
                || self.peers.iter().any(|(id, link)| self.unsure(id, link).is_some()))
    }

    /// Enters a newer configuration that names this member. Configurations may be skipped (docs/DESIGN.md §5.4).
    fn enter(&mut self, now: Timestamp, config: Arc<ChainConfig>) {
        if !self.membership.may_enter(&config) || self.membership.is_halted() {
            return;
        }
        self.reads.close_gate();
        self.source.end();
        self.membership.enter(config.clone());
        self.peers.enter(self.membership.at(now));
        self.leave_epoch(now);
        let guards = self.membership.guards();
        if allows!(guards, LoseInFlight) {
            self.skip_to_end();
        }
        if allows!(guards, RollBackFirst) {
            let keep = self.log.history().version_at(self.log.watermark()).unwrap_or_default();
            self.cut(now, Truncate { said: self.log.last(), keep });
        }
        self.pace.begin(now);
        self.promotion.hear(now);
        self.log.unreplicated_mut().begin(now);
        self.log.start_chain_time(now);
        self.outputs.event(ReplicaEvent::Entered(config.epoch));
        if self.joiner.is_filling() && self.membership.place().serves() {
            return self.halt(Halt::NotWhole);
        }
        if self.membership.place().is_head {
            self.open(now);
        }
        self.reads.open_gate(self.membership.at(now), &config);
        self.restart_reads(now);
    }

    /// Mutant: treats a serving successor as if it held every update.
    fn skip_to_end(&mut self) {
        let (place, last) = (*self.membership.place(), self.log.last());
        let successor = place.successor.filter(|&id| self.membership.role_of(id) == Some(Role::Serving));
        if let Some(link) = self.peers.get_mut(successor).filter(|link| link.is_connected()) {
            link.stream_mut().skip_to(last);
        }
    }

    /// A newer configuration doesn't name this member (docs/DESIGN.md §5.3, §5.4). The member stops serving local
    /// readers, then refuses all waiting reads; waiting writes expire, since only the chain knows their outcome. It
    /// keeps its history and store for a return, and rolls nothing back: only the chain knows whether updates above our
    /// watermark are committed (trap 37).
    fn expelled(&mut self, now: Timestamp, epoch: Epoch) {
        if epoch <= self.membership.newest() || allows!(self.membership.guards(), ServeWhenExpelled) {
            return;
        }
        self.reads.close_gate();
        self.membership.expel(epoch);
        self.source.end();
        self.peers.clear();
        self.leave_epoch(now);
        self.reads.forget_shown();
        self.reads.refuse_all(&mut self.outputs);
        // Only the chain knows the outcome of these writes.
        self.head.cut(Sequence::ZERO, &mut self.outputs);
        self.outputs.event(ReplicaEvent::Expelled(epoch));
    }

    /// Resets the state that is valid in one epoch only.
    fn leave_epoch(&mut self, now: Timestamp) {
        self.upstream.reset(self.membership.at(now));
        self.head.leave_epoch(&mut self.outputs);
        self.promotion.end();
        self.joiner.leave_epoch();
    }

    /// Stops serving permanently: local readers first, then all waiting requests.
    fn halt(&mut self, why: Halt) {
        if self.membership.is_halted() {
            return;
        }
        self.reads.close_gate();
        self.upstream.drop_incoming();
        self.source.end();
        self.membership.halt(why.clone());
        self.reads.refuse_all(&mut self.outputs);
        self.head.cancel_assembly(Refusal::NoChain, &mut self.outputs);
        self.head.expire(Timestamp::MAX, &mut self.outputs);
        self.outputs.event(ReplicaEvent::Halted(why));
    }

    fn halt_if_failed<T, E: Into<Halt>>(&mut self, result: Result<T, E>) -> Option<T> {
        result.map_err(|why| self.halt(why.into())).ok()
    }

    /// Whether deferred work is left for [`settle`](Self::settle).
    pub(crate) fn is_behind(&self) -> bool {
        !self.membership.is_halted() && (self.log.store().is_behind() || self.has_steps())
    }

    /// Whether there is work that is done in steps, so that other inputs are handled between them.
    fn has_steps(&self) -> bool {
        self.joiner.is_clearing() || self.is_catching_up() || self.head.is_assembling()
    }

    fn is_catching_up(&self) -> bool {
        !self.membership.is_halted() && self.joiner.is_catching_up()
    }

    /// Whether the deferred work should wait: while it doesn't hold local readers back, or while the successor works on
    /// the same update, possibly on the same processor. Work in steps doesn't wait.
    pub(crate) fn is_between(&self) -> bool {
        let place = self.membership.place();
        let others_work = place.successor.is_some() && !place.is_head && !self.log.is_committed();
        !self.has_steps() && (others_work || !self.log.store().is_held())
    }

    /// Does the deferred work. Until it is done, the next input may take longer, and local reads may go through the
    /// replica. A joiner does one step of clearing its store or of applying buffered updates, and a head one step of
    /// assembling a write's values.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        self.catch_up_store(now);
        if self.is_catching_up() {
            self.catch_up(now);
            self.follow_up(now);
        }
        if self.head.is_assembling() {
            self.continue_assembly(now);
            self.follow_up(now);
        }
    }

    pub(crate) fn chain(&self) -> ChainId {
        self.membership.chain()
    }

    pub(crate) fn poll_output(&mut self) -> Option<ReplicaOutput> {
        self.outputs.pop()
    }

    /// The other members of the present configuration, in the order of sending.
    pub(crate) fn peers(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.peers.in_order()
    }

    /// Whether this is no member, or a joiner whose history isn't known yet to be a prefix of the chain's.
    pub(crate) fn is_unproven(&self) -> bool {
        !self.membership.place().serves() && !self.upstream.is_prefix()
    }

    pub(crate) fn has_full_disk(&self) -> bool {
        self.log.has_full_disk()
    }

    /// Notes whether the driver treats this member's disk as full.
    pub(crate) fn set_disk_full(&mut self, is_full: bool) {
        if let Some(journal) = self.log.journal_mut() {
            journal.set_full(is_full);
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.head.has_room(&self.membership, &self.log)
    }

    pub(crate) fn has_room_for_large(&self) -> bool {
        self.head.has_room_for_large(&self.membership, &self.log)
    }

    pub fn status(&self) -> Status {
        self.status_of(self.log.store().size())
    }

    /// The status without the size of the store, whose measurement takes locks: for checks after every step.
    #[cfg(feature = "mutants")]
    pub fn unmeasured_status(&self) -> Status {
        self.status_of(Size::default())
    }

    /// The last durable sequence of this member, if it is in this epoch, has not halted, and keeps a journal.
    #[cfg(feature = "mutants")]
    pub fn durable_in(&self, epoch: Epoch) -> Option<Sequence> {
        let is_in_epoch = self.membership.epoch() == Some(epoch) && !self.membership.is_halted();
        self.log.durable().filter(|_| is_in_epoch)
    }

    fn status_of(&self, size: Size) -> Status {
        let (log, member) = (&self.log, &self.membership);
        Status {
            config: member.config().cloned(),
            open: self.upstream.is_open(),
            last: log.last(),
            watermark: log.watermark(),
            in_flight: log.history().in_flight(),
            backlog: log.history().backlog(),
            parked_reads: self.reads.parked(),
            waiting_writes: self.head.len(),
            sessions: log.sessions().status(),
            snapshots: self.reads.snapshots(),
            watchers: self.reads.watchers(),
            reads: self.reads.counts(),
            expelled: member.is_expelled().then_some(member.newest()),
            resync: ResyncStatus { sending: self.source.sent(), ..self.joiner.status() },
            halted: member.halted().cloned(),
            durable: log.durable(),
            rereplication: *log.unreplicated().so_far(),
            size,
            full: log.fullness(member),
        }
    }

    pub fn progress(&self) -> ChainProgress {
        let (log, member) = (&self.log, &self.membership);
        ChainProgress {
            epoch: member.epoch().unwrap_or(Epoch(0)),
            open: self.upstream.is_open(),
            held: log.last().sequence,
            watermark: log.watermark(),
            pace: *self.pace,
            closed: self.head.is_closed() && log.is_committed(),
            member: member.config().is_some(),
            unheard_since: self.awaits_joiner().then_some(self.promotion.heard()),
            halted: member.is_halted(),
            whole: (!member.is_halted() && !self.joiner.is_filling()).then(|| log.last()),
        }
    }

    /// The history kept here, oldest first, for invariant checks. Older committed updates are trimmed.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = &Update> + ExactSizeIterator + '_ {
        self.log.history().updates().iter()
    }
}
