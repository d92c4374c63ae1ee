//! The CRAQ state machine of one member of one chain, sans-IO: no clock, no socket, no task.
//!
//! A [`ChainRunner`](crate::runner::ChainRunner) drives it. This file holds the state of a member, the inputs that
//! change it, and its status.
//!
//! Local clean reads don't pass through here at all: [`Gate`] serves them from any thread.

mod acks;
mod chain_position;
mod checkpoint;
mod client_sessions;
mod close;
mod commit;
mod durable;
mod ends;
#[cfg(feature = "mutants")]
mod fork;
mod full_members;
mod gate;
mod hashed_pages;
mod history;
mod incoming;
mod links;
mod log_matching;
mod ordering;
mod portion;
mod promote;
mod put_off;
mod reads;
mod removal;
mod resolve;
mod restore;
mod resync;
mod snapshot_reads;
mod stream;
mod throughput;
mod tick;
mod types;
mod unreplicated;
mod watch;
mod write_behind;
mod writes;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::Arc,
};

use acks::Acks;
use chain_position::ChainPosition;
use client_sessions::Sessions;
use close::Closing;
pub use durable::JournalBatch;
use durable::JournalState;
pub(crate) use durable::{RECORD_BYTES, checkpoint_bytes};
#[cfg(feature = "mutants")]
pub use gate::Begun;
pub use gate::{Gate, NotLocal, ReadCounters};
use history::UpdateHistory;
use incoming::Incoming;
use links::{Cursor, PeerLink};
use ordering::Joining;
use promote::PromotedTail;
use reads::{PendingRead, Reads};
pub use restore::{ChainRestore, RestoreError, RestoreSurvey, RestoredChain};
pub use resync::ResyncProgress;
use resync::{Resyncs, SnapshotReceiver, SnapshotSender};
use snapshot_reads::Snapshots;
pub use throughput::ChainProgress;
use throughput::ThroughputMonitor;
pub use types::*;
use unreplicated::UnreplicatedRecords;
pub use unreplicated::{REREPLICATION_MILLIS, Rereplication, SettledRecords};
use watch::Watchers;
use write_behind::WriteBehindStore;
use writes::{Waiter, Writes};

use crate::{
    ChainConfig, ChainId, Epoch, MemberId, Role, Sequence, Timestamp,
    api::{Refusal, Reply},
    message::{self, ChainFrame, ChainMessage},
    store::{Size, Store},
    types::update::Update,
};

/// One member of one chain.
pub struct Replica {
    me: MemberId,
    chain: ChainId,
    settings: ReplicaSettings,
    store: WriteBehindStore,
    gate: Arc<Gate>,
    config: Option<Arc<ChainConfig>>,
    /// The newest epoch that was entered, or whose configuration doesn't name this member. Older ones are ignored.
    newest: Epoch,
    place: ChainPosition,
    history: UpdateHistory,
    watermark: Sequence,
    lease: Timestamp,
    /// The last sequence of our history when the epoch opened here; `None`: it is not open here.
    open_upto: Option<Sequence>,
    /// The epoch opens here once our history reaches this sequence, which came with the predecessor's `open`.
    open_awaits: Option<Sequence>,
    connected: BTreeSet<MemberId>,
    peers: BTreeMap<MemberId, PeerLink>,
    /// The predecessor hasn't shown yet that it knows where our history stands.
    needs_resume: bool,
    /// In this epoch our history is known to be a prefix of the head's. The head knows it. Another member knows it once
    /// a predecessor that knows it says that it follows, or sends behind our end. From then on our history is never
    /// cut.
    is_prefix: bool,
    /// An update came before the ones that it follows.
    gap: bool,
    /// The update behind our history, if it comes in pieces and has begun to.
    incoming: Option<Incoming>,
    /// The joiner that counts as the tail in the rest of this epoch.
    promotion: Option<PromotedTail>,
    /// The head is closed: it orders nothing for a moment.
    closing: Option<Closing>,
    pace: ThroughputMonitor,
    /// When the joiner behind this tail was heard last in this epoch, or when the epoch was entered. Only reports show
    /// it.
    joiner_heard: Timestamp,
    acks: Acks,
    /// The snapshot that is sent to the joiner behind us.
    outgoing: Option<SnapshotSender>,
    /// The number of the newest snapshot that was begun for a joiner.
    snapshot_number: u64,
    /// The snapshot that is received.
    filling: Option<Box<SnapshotReceiver>>,
    /// Updates from before a snapshot, until they are freed.
    past: VecDeque<Update>,
    /// The number of the newest snapshot that the source has begun in this epoch.
    snapshot_seen: u64,
    resyncs: Resyncs,
    writes: Writes,
    /// The write that is ordered next, while it is being put together.
    assembling: Option<Box<Joining>>,
    sessions: Sessions,
    reads: Reads,
    snapshots: Snapshots,
    watchers: Watchers,
    outputs: VecDeque<ReplicaOutput>,
    next_heartbeat: Timestamp,
    halted: Option<Halt>,
    /// `None`: the member keeps no journal.
    journal: Option<Box<JournalState>>,
    /// Until then a word of a peer that it has no room may count.
    full_until: Timestamp,
    /// `None`: no restart has found anything in a journal.
    unreplicated: Option<Box<UnreplicatedRecords>>,
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica")
            .field("me", &self.me)
            .field("last", &self.history.last())
            .field("watermark", &self.watermark)
            .field("open_upto", &self.open_upto)
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
        let journal = settings.durable.then(Box::default);
        let mut replica = Self {
            me,
            chain,
            settings,
            store: WriteBehindStore::new(store, gate.clone()),
            gate,
            config: None,
            newest: Epoch(0),
            place: ChainPosition::default(),
            history: UpdateHistory::default(),
            watermark: Sequence::ZERO,
            lease: Timestamp::ZERO,
            open_upto: None,
            open_awaits: None,
            connected: BTreeSet::new(),
            peers: BTreeMap::new(),
            needs_resume: false,
            is_prefix: false,
            gap: false,
            incoming: None,
            promotion: None,
            closing: None,
            pace: ThroughputMonitor::default(),
            joiner_heard: Timestamp::ZERO,
            acks: Acks::default(),
            outgoing: None,
            snapshot_number: 0,
            filling: None,
            past: VecDeque::new(),
            snapshot_seen: 0,
            resyncs: Resyncs::default(),
            writes: Writes::default(),
            assembling: None,
            sessions: Sessions::default(),
            reads: Reads::default(),
            snapshots: Snapshots::of(me),
            watchers: Watchers::default(),
            outputs: VecDeque::new(),
            next_heartbeat: Timestamp::ZERO,
            halted: None,
            journal,
            full_until: Timestamp::ZERO,
            unreplicated: None,
        };
        // A chain is born with an empty checkpoint.
        replica.begin_checkpoint();
        replica
    }

    /// Takes in an input at `now`.
    pub(crate) fn handle(&mut self, now: Timestamp, input: ReplicaInput) {
        #[cfg(any(test, feature = "mutants"))]
        self.gate.note_time(now);
        if !self.is_unsettled() {
            self.next_heartbeat = now + self.settings.heartbeat;
        }
        match input {
            ReplicaInput::Enter(config) => self.enter(now, config),
            ReplicaInput::Expelled(epoch) => self.expelled(epoch),
            ReplicaInput::Connected(peer) => self.connected(peer),
            ReplicaInput::Disconnected(peer) => self.disconnected(peer),
            ReplicaInput::Receive { from, frame } => self.receive(now, from, frame),
            ReplicaInput::Write { token, request, write, deadline, wall_clock } => {
                self.write(now, Waiter { token, deadline, replayed: false }, request, write, wall_clock);
            }
            ReplicaInput::Read { token, query, mode, floor, deadline } => {
                self.read(now, PendingRead { token, query, mode, floor, deadline });
            }
            ReplicaInput::Lease(until) => {
                self.lease = if allows!(self.settings.guards, IgnoreLease) { Timestamp::MAX } else { until };
                self.gate.lease(self.lease);
            }
            ReplicaInput::Close { epoch, until } => self.close(now, epoch, until),
            ReplicaInput::Served(at) => self.reads.shown = self.reads.shown.max(Some(at.min(now))),
            ReplicaInput::Durable(upto) => self.durable(now, upto),
            ReplicaInput::Tick => self.tick(now),
        }
        self.follow_up(now);
    }

    /// Runs after each input, and after each step of a write that is put together.
    fn follow_up(&mut self, now: Timestamp) {
        self.evict_sessions(now);
        self.order_barriers(now);
        self.say_closed();
        self.look_at_pace(now);
    }

    /// The chain of which it is a member.
    pub fn chain(&self) -> ChainId {
        self.chain
    }

    /// What the driver is to do next.
    pub(crate) fn poll_output(&mut self) -> Option<ReplicaOutput> {
        self.outputs.pop_front()
    }

    /// The other members of the configuration entered last. A write waits until the successor has the update and the
    /// head knows of its commit, so these two come first.
    pub(crate) fn peers(&self) -> impl Iterator<Item = MemberId> + '_ {
        let first = [self.place.successor, self.place.head];
        let others = self.peers.keys().filter(move |&&id| !first.contains(&Some(id)));
        first.into_iter().flatten().filter(|id| self.peers.contains_key(id)).chain(others.copied())
    }

    /// How the replica stands.
    pub fn status(&self) -> Status {
        self.status_of(self.store.size(self.chain))
    }

    /// The status without the size of the store, which takes locks: for checks after every step.
    #[cfg(feature = "mutants")]
    pub fn unmeasured_status(&self) -> Status {
        self.status_of(Size::default())
    }

    /// Up to where this member is durable, if it has entered this epoch, has not halted, and keeps a journal.
    #[cfg(feature = "mutants")]
    pub fn durable_in(&self, epoch: Epoch) -> Option<Sequence> {
        let is_there = self.config.as_ref().is_some_and(|config| config.epoch == epoch) && self.halted.is_none();
        self.held_here().filter(|_| is_there)
    }

    fn status_of(&self, size: Size) -> Status {
        Status {
            config: self.config.clone(),
            open: self.is_open(),
            last: self.history.last(),
            watermark: self.watermark,
            in_flight: self.history.in_flight(),
            backlog: self.history.backlog(),
            parked_reads: self.reads.len(),
            waiting_writes: self.writes.len(),
            sessions: self.sessions.len(),
            sessions_bytes: self.sessions.bytes(),
            pending_sessions_bytes: self.sessions.pending_bytes(),
            snapshots: self.snapshots.len(),
            watchers: self.watchers.len(),
            reads: ReadCounts { version_queries: self.reads.queries.sent(), ..self.reads.counters },
            expelled: self.is_expelled().then_some(self.newest),
            resyncs_full: self.resyncs.full,
            resyncs_partial: self.resyncs.partial,
            receiving: self.filling.as_ref().map(|filling| filling.come()),
            sending: self.outgoing.as_ref().map(SnapshotSender::sent),
            halted: self.halted.clone(),
            durable: self.held_here(),
            rereplication: self.rereplication(),
            size,
            full: self.fullness(),
        }
    }

    /// The history kept here, oldest first, for invariant checks. Committed updates may have been dropped already.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = &Update> + ExactSizeIterator + '_ {
        self.history.updates().iter()
    }

    /// Moves to a newer configuration that names this member; it may skip some (docs/DESIGN.md §5.4).
    fn enter(&mut self, now: Timestamp, config: Arc<ChainConfig>) {
        let newer = config.epoch > self.newest;
        if config.chain != self.chain || !newer || config.role(self.me).is_none() || self.halted.is_some() {
            return;
        }
        self.gate.serve(None);
        self.end_outgoing();
        self.newest = config.epoch;
        self.place = ChainPosition::of(&config, self.me);
        self.peers = config
            .members
            .iter()
            .filter(|member| member.id != self.me)
            .map(|member| (member.id, PeerLink::new(self.connected.contains(&member.id))))
            .collect();
        self.leave_epoch();
        if allows!(self.settings.guards, LoseInFlight)
            && let Some(id) = self.place.successor.filter(|&id| config.role(id) == Some(Role::Serving))
            && let Some(peer) = self.peers.get_mut(&id)
        {
            peer.cursor = peer.connected.then(|| Cursor::at(self.history.last().sequence.next()));
        }
        if allows!(self.settings.guards, RollBackFirst) {
            let keep = self.history.version_at(self.watermark).unwrap_or_default();
            self.cut(now, message::Truncate { said: self.history.last(), keep });
        }
        self.pace.begin(now);
        self.joiner_heard = now;
        self.rereplication_begins(now);
        self.event(ReplicaEvent::Entered(config.epoch));
        let (epoch, mode) = (config.epoch, config.mode);
        self.config = Some(config);
        if self.filling.is_some() && self.place.serves() {
            return self.halt(Halt::NotWhole);
        }
        if self.place.is_head {
            self.open(now);
        }
        if self.place.serves_local_reads(mode) {
            self.gate.serve(Some(epoch));
        }
        self.restart_reads(now);
    }

    fn is_open(&self) -> bool {
        self.open_upto.is_some()
    }

    /// Opens the epoch here (rule 5.5): every update held before may be committed, once all members hold it.
    fn open(&mut self, now: Timestamp) {
        let Some(config) = self.config.as_ref() else { return };
        let epoch = config.epoch;
        self.open_upto = Some(self.history.last().sequence);
        self.event(ReplicaEvent::Opened(epoch));
        self.due_for(self.place.successor);
        self.due_for(self.place.predecessor);
        self.follow_heard(now);
        self.commit_as_tail(now);
        self.peers.values_mut().for_each(|peer| peer.due |= peer.owed);
        self.consider_promotion(now);
    }

    /// Stops serving for good: local readers first, then all waiting requests.
    fn halt(&mut self, why: Halt) {
        if self.halted.is_some() {
            return;
        }
        self.gate.serve(None);
        self.incoming = None;
        self.end_outgoing();
        self.halted = Some(why.clone());
        self.reply_all_reads(&Reply::Refused(Refusal::NoChain));
        self.refuse_watchers();
        self.give_up_joining(Refusal::NoChain);
        self.expire_writes(Timestamp::MAX);
        self.event(ReplicaEvent::Halted(why));
    }

    fn reply(&mut self, token: Token, reply: Reply) {
        self.outputs.push_back(ReplicaOutput::Reply(token, reply));
    }

    fn event(&mut self, event: ReplicaEvent) {
        self.outputs.push_back(ReplicaOutput::Event(event));
    }

    fn frame(&self, config: &ChainConfig, message: ChainMessage) -> ChainFrame {
        ChainFrame { chain: self.chain, epoch: config.epoch, index: config.index, message }
    }
}
