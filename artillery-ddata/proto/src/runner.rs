//! Runs the replica of one chain, without I/O. The runner decides in which order inputs are processed, and with which
//! clock reading.
//!
//! The contract with a driver, which owns sockets, tasks and timers:
//!
//! - Receive all waiting inputs into a [`Turn`], and pass it to [`ChainRunner::take`]. At [`ChainRunner::next_tick`],
//!   pass an empty turn.
//! - A turn may end before all of its inputs are processed. Do everything that follows a turn, and let the thread's
//!   other tasks run. Then pass the rest again with the newest lease, the newest durable batch and new orders. Receive
//!   no further frames or requests until the rest is empty: frames are processed first, so new ones would keep the
//!   waiting requests from being processed. Also let other tasks run whenever [`ChainRunner::is_over`] holds: a node
//!   that is busy with a chain must still renew its lease.
//! - Handle the results of [`ChainRunner::poll_output`] until it returns `None`. Then pass the results of
//!   [`ChainRunner::poll_word`] to the node, before or after the following messages.
//! - Send messages to each of [`ChainRunner::peers`] whenever its link has capacity: [`ChainRunner::poll_control`]
//!   first, then [`ChainRunner::poll_updates`] while the link has capacity, and finally, on a separate stream,
//!   [`ChainRunner::poll_snapshot`]. The runner has no queue per link: control frames are built from the current state,
//!   and updates are read from the history by a cursor.
//! - Write the results of [`ChainRunner::poll_journal`] while the journal has capacity, and report in a turn which
//!   batches have become durable.
//! - When all of that has been sent and no input waits, call [`ChainRunner::settle`], which does deferred work. Also
//!   call [`ChainRunner::settle_in_time`] regularly, however busy the chain is.

mod callers;
mod output;
mod slice;
#[cfg(test)]
mod tests;
mod turn;
mod write_line;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use self::{callers::Callers, slice::Slice};
pub use self::{
    output::{ChainReadiness, RunnerOutput, Word},
    turn::{ChainOrder, Lease, LinkChange, ReadRequest, Turn, WriteRequest},
    write_line::WriteLine,
};
use crate::{
    ChainId, ClusterId, Epoch, MemberId, Timestamp,
    api::{Refusal, Reply},
    control::message::Promotion,
    guards::Guards,
    message::ChainFrame,
    replica::{
        Gate, Halt, JournalBatch, Replica, ReplicaEvent, ReplicaInput, ReplicaOutput as Said, ReplicaSettings,
        RestoredChain, Unhashed,
    },
    store::Store,
};

/// Maximum number of writes that a turn admits in addition to its own, before messages are sent.
const WRITES: usize = 256;
/// Number of small writes after which a large one takes precedence.
const SMALL_WRITES: u32 = 256;
/// Maximum time for which work is deferred.
const MAX_DEFERRAL: Duration = Duration::from_millis(1);

/// One replica and the callers that wait for its replies. `C` identifies a caller to the driver.
#[derive(Hash)]
#[cfg_attr(feature = "mutants", derive(Clone))]
pub struct ChainRunner<C> {
    replica: Replica,
    callers: Callers<C>,
    /// The history of the newest known configuration, even if that does not name this member. Otherwise the member
    /// would reject requests of that history with `OtherHistory`, and clients would drop valid sessions.
    history: Option<ClusterId>,
    /// The store was restored from a disk, and may belong to any history until a configuration is known.
    is_restored: bool,
    /// The store may have been filled in a history other than the present one.
    is_foreign: bool,
    offered: Lease,
    /// Only leases of this stretch are used; `None` while the node has resigned.
    stretch: Option<u64>,
    /// Why this node gives way. No request is served while it is set.
    yields: Option<Refusal>,
    words: VecDeque<Word>,
    refused: VecDeque<(C, Refusal)>,
    /// Derived from the replica's events, like `halted`.
    open: Unhashed<Option<Epoch>>,
    halted: Unhashed<Option<Halt>>,
    /// Small writes admitted since the last large one. Decides only which line has precedence.
    small_writes: Unhashed<u32>,
    behind_since: Option<Timestamp>,
    /// Decides only where turns end, and so when other tasks run. The order of inputs doesn't depend on it.
    slice: Unhashed<Slice>,
    guards: Guards,
    /// The clock reading of the previous turn, which the mutant `KeepReading` uses.
    #[cfg(any(test, feature = "mutants"))]
    kept: Option<Timestamp>,
}

impl<C> std::fmt::Debug for ChainRunner<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChainRunner").field("replica", &self.replica).finish_non_exhaustive()
    }
}

impl<C> ChainRunner<C> {
    /// A member that is in no configuration yet, over an empty part of `store`. It uses leases of the first stretch, 0.
    pub fn new(
        me: MemberId,
        chain: ChainId,
        settings: ReplicaSettings,
        store: Arc<dyn Store>,
        gate: Arc<Gate>,
    ) -> Self {
        Self {
            guards: settings.guards,
            slice: Unhashed(Slice::of(settings.turn)),
            replica: Replica::new(me, chain, settings, store, gate),
            callers: Callers::new(),
            history: None,
            is_restored: false,
            is_foreign: false,
            offered: Lease::default(),
            stretch: Some(0),
            yields: None,
            words: VecDeque::new(),
            refused: VecDeque::new(),
            open: Unhashed(None),
            halted: Unhashed(None),
            small_writes: Unhashed(0),
            behind_since: None,
            #[cfg(any(test, feature = "mutants"))]
            kept: None,
        }
    }

    /// Adopts the state restored from this member's journal ([`ChainRestore`](crate::replica::ChainRestore)). Must be
    /// called before the first turn.
    #[must_use]
    pub fn restored(mut self, restored: RestoredChain) -> Self {
        self.replica.restore(restored);
        self.is_restored = true;
        self
    }

    /// Test-only: a copy of this runner over `store` and behind `gate`, which are copies of this runner's.
    #[cfg(feature = "mutants")]
    pub fn fork(&self, store: Arc<dyn Store>, gate: Arc<Gate>) -> Self
    where
        C: Clone,
    {
        Self { replica: self.replica.fork(store, gate), ..self.clone() }
    }

    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    pub fn callers(&self) -> impl Iterator<Item = &C> {
        self.callers.iter()
    }

    pub fn waiting(&self) -> usize {
        self.callers.len()
    }

    /// Processes the received inputs until [`ReplicaSettings::turn`] has passed, and leaves the rest in the turn. If
    /// nothing is left, it also admits writes that `more` supplies from each [line](WriteLine), while there is space in
    /// the window and time, and returns `true`.
    ///
    /// `clock` is read here, after everything was received. With an older reading, a member could serve a strong read
    /// that arrived after the end of its lease, when others may already have committed newer values without it
    /// (docs/DESIGN.md §6, trap 56).
    ///
    /// Each turn processes the lease first: otherwise a constantly busy chain might never process it (trap 57). Orders
    /// that change or end a configuration precede the requests that depend on it.
    pub fn take<R: Into<ReadRequest<C>>, W: Into<WriteRequest<C>>>(
        &mut self,
        clock: impl Fn() -> Timestamp,
        turn: &mut Turn<R, W>,
        more: impl FnMut(WriteLine) -> Option<W>,
    ) -> bool {
        let now = self.reading(&clock);
        self.slice.begin(now);
        let waits = allows!(self.guards, LeaseLast) && has_requests(turn);
        if let Some(lease) = turn.lease.take_if(|_| !waits) {
            self.offered = lease;
            self.take_lease(now);
        }
        if let Some(upto) = turn.durable.take() {
            self.replica.handle(now, ReplicaInput::Durable(upto));
        }
        if std::mem::take(&mut turn.checkpoint) {
            self.replica.begin_checkpoint();
        }
        if turn.disk_full != self.replica.has_full_disk() {
            self.replica.set_disk_full(turn.disk_full);
        }
        turn.links.drain(..).for_each(|link| self.link(now, link));
        turn.orders.drain(..).for_each(|order| self.order(now, order));
        let (large, small) = (WriteLine::Large, WriteLine::Small);
        let is_whole = self.each(&clock, &mut turn.frames, |this, (from, frame)| this.frame(now, from, frame))
            && self.each(&clock, &mut turn.reads, |this, read| this.read(now, read.into()))
            && self.each(&clock, &mut turn.large_writes, |this, write| this.write(large, now, write.into()))
            && self.each(&clock, &mut turn.writes, |this, write| this.write(small, now, write.into()));
        if is_whole {
            self.take_more(&clock, more);
        }
        self.replica.handle(clock(), ReplicaInput::Tick);
        is_whole
    }

    /// Processes inputs of one kind until the turn is over. Returns whether nothing is left.
    fn each<T>(
        &mut self,
        clock: &impl Fn() -> Timestamp,
        inputs: &mut Vec<T>,
        mut take: impl FnMut(&mut Self, T),
    ) -> bool {
        let mut waiting = inputs.drain(..);
        while let Some(input) = waiting.next() {
            take(self, input);
            if waiting.len() > 0 && self.is_over(clock()) {
                let rest: Vec<T> = waiting.collect();
                inputs.extend(rest);
                return false;
            }
        }
        true
    }

    /// Admits writes beyond those of the turn. Each uses up capacity, so the next one is requested only afterwards.
    fn take_more<W: Into<WriteRequest<C>>>(
        &mut self,
        clock: &impl Fn() -> Timestamp,
        mut more: impl FnMut(WriteLine) -> Option<W>,
    ) {
        for _ in 0..WRITES {
            let mut lines = self.lines().into_iter().filter(|&line| self.has_room(line));
            let Some((line, write)) = lines.find_map(|line| Some((line, more(line)?))) else { break };
            let now = clock();
            self.write(line, now, write.into());
            if self.is_over(now) {
                break;
            }
        }
    }

    /// Whether the turn has used up its time, so that the thread's other tasks must run before the next one.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.slice.is_over(now) && !allows!(self.guards, NeverPause)
    }

    /// The lines in the order in which they supply the next write. Small writes have precedence, but after
    /// `SMALL_WRITES` of them a large one goes first, so that neither line waits until the other is empty.
    pub fn lines(&self) -> [WriteLine; 2] {
        if *self.small_writes < SMALL_WRITES {
            [WriteLine::Small, WriteLine::Large]
        } else {
            [WriteLine::Large, WriteLine::Small]
        }
    }

    /// Whether the replica has capacity for a write of this line. If not, leave writes in the driver's queues.
    pub fn has_room(&self, line: WriteLine) -> bool {
        match line {
            WriteLine::Small => self.replica.has_room(),
            WriteLine::Large => self.replica.has_room_for_large(),
        }
    }

    /// When a turn is due even without input.
    pub fn next_tick(&self) -> Option<Timestamp> {
        self.replica.next_tick()
    }

    fn link(&mut self, now: Timestamp, link: LinkChange) {
        let input = match link {
            LinkChange::Up(peer) => ReplicaInput::Connected(peer),
            LinkChange::Down(peer) => ReplicaInput::Disconnected(peer),
        };
        self.replica.handle(now, input);
    }

    fn frame(&mut self, now: Timestamp, from: MemberId, frame: ChainFrame) {
        self.replica.handle(now, ReplicaInput::Receive { from, frame });
    }

    fn take_lease(&mut self, now: Timestamp) {
        let Lease { until, asked, stretch } = self.offered;
        let counts = |mine| mine == stretch || allows!(self.guards, TakeAnyStretch);
        if self.stretch.is_some_and(counts) && self.yields.is_none() {
            self.replica.handle(now, ReplicaInput::Lease(until));
            self.replica.handle(now, ReplicaInput::Served(asked));
        }
    }

    fn order(&mut self, now: Timestamp, order: ChainOrder) {
        match order {
            ChainOrder::Enter { config, history, upto } => {
                self.goes_by(history);
                self.replica.handle(now, ReplicaInput::Enter(config));
                self.words.push_back(Word::ActsBy(upto));
            }
            ChainOrder::Expelled { epoch, history, upto } => {
                self.goes_by(history);
                self.replica.handle(now, ReplicaInput::Expelled(epoch));
                self.words.push_back(Word::ActsBy(upto));
            }
            ChainOrder::Close { epoch, until } => self.replica.handle(now, ReplicaInput::Close { epoch, until }),
            ChainOrder::Resign => {
                self.stretch = None;
                self.replica.handle(now, ReplicaInput::Lease(Timestamp::ZERO));
                self.words.push_back(Word::Resigned);
            }
            ChainOrder::Resume { stretch } => {
                self.stretch = Some(stretch);
                // A lease of this stretch may have arrived earlier.
                self.take_lease(now);
            }
            ChainOrder::Yield { refusal } => {
                self.yields = Some(refusal);
                self.replica.handle(now, ReplicaInput::Lease(Timestamp::ZERO));
            }
            ChainOrder::Proceed => {
                self.yields = None;
                self.take_lease(now);
            }
        }
    }

    fn goes_by(&mut self, history: ClusterId) {
        self.is_foreign |= self.history.map_or(self.is_restored, |mine| mine != history);
        self.history = Some(history);
    }

    fn read(&mut self, now: Timestamp, request: ReadRequest<C>) {
        let ReadRequest { query, mode, floor, history, deadline, caller } = request;
        if let Some(refusal) = self.refuses(history) {
            return self.refused.push_back((caller, refusal));
        }
        let token = self.callers.add(caller, history);
        self.replica.handle(now, ReplicaInput::Read { token, query, mode, floor, deadline });
    }

    fn write(&mut self, line: WriteLine, now: Timestamp, request: WriteRequest<C>) {
        *self.small_writes = if line == WriteLine::Large { 0 } else { self.small_writes.saturating_add(1) };
        let WriteRequest { request, history, write, deadline, caller } = request;
        if let Some(refusal) = self.refuses(history) {
            return self.refused.push_back((caller, refusal));
        }
        let token = self.callers.add(caller, history);
        self.replica.handle(now, ReplicaInput::Write { token, request, write, deadline });
    }

    fn refuses(&self, history: Option<ClusterId>) -> Option<Refusal> {
        // An operator may have abandoned the updates held here. This is ruled out once they are known to be a prefix of
        // the chain's history.
        let is_unproven = self.is_foreign && self.replica.is_unproven();
        let is_unknown = history.is_some() && (is_unproven || self.is_restored && self.history.is_none());
        let is_another = || self.is_another(history).then_some(Refusal::OtherHistory);
        self.yields.or_else(is_another).or_else(|| is_unknown.then_some(Refusal::NoChain))
    }

    /// Whether a request belongs to another history than this chain. A floor or position of one history means nothing
    /// in another: a session would be shown less than it has seen, and a watch would skip changes (docs/DESIGN.md
    /// §5.12, traps 58, 59).
    fn is_another(&self, history: Option<ClusterId>) -> bool {
        !allows!(self.guards, MixHistories) && history.zip(self.history).is_some_and(|(asked, mine)| asked != mine)
    }

    pub fn poll_output(&mut self) -> Option<RunnerOutput<C>> {
        if let Some((caller, refusal)) = self.refused.pop_front() {
            return Some(RunnerOutput::Reply(caller, Reply::Refused(refusal)));
        }
        while let Some(said) = self.replica.poll_output() {
            match said {
                Said::Reply(token, reply) => {
                    let Some((caller, history)) = self.callers.remove(token) else { continue };
                    // Another history may have begun while the request waited.
                    let is_late = self.is_another(history);
                    return Some(RunnerOutput::Reply(caller, if is_late { of_another_history(reply) } else { reply }));
                }
                Said::Event(event) => {
                    self.note(&event);
                    return Some(RunnerOutput::Event(event));
                }
                Said::Promote { epoch, member } => {
                    let chain = self.replica.chain();
                    self.say(Word::Promote(Promotion { chain, epoch, member }));
                }
            }
        }
        None
    }

    /// The next word to the node. Poll it once [`poll_output`](Self::poll_output) returns `None`, so that callers have
    /// their replies first.
    pub fn poll_word(&mut self) -> Option<Word> {
        self.words.pop_front()
    }

    pub fn has_words(&self) -> bool {
        !self.words.is_empty()
    }

    /// Queues a word unless an equal one is still queued.
    fn say(&mut self, word: Word) {
        if !self.words.contains(&word) {
            self.words.push_back(word);
        }
    }

    fn note(&mut self, event: &ReplicaEvent) {
        match event {
            ReplicaEvent::Opened(epoch) => *self.open = Some(*epoch),
            ReplicaEvent::Entered(_) | ReplicaEvent::Expelled(_) => *self.open = None,
            ReplicaEvent::Halted(why) => *self.halted = Some(why.clone()),
            ReplicaEvent::Closed(_) => self.say(Word::Closed),
            _ => {}
        }
    }

    /// The state of the chain. Valid once [`poll_output`](Self::poll_output) returns `None`.
    pub fn standing(&self) -> ChainReadiness {
        ChainReadiness { open: *self.open, halted: (*self.halted).clone(), progress: self.replica.progress() }
    }

    /// The epoch in which the chain is open here, if it is.
    pub fn is_open(&self) -> Option<Epoch> {
        *self.open
    }

    /// The peers in the order in which messages to them should be polled.
    pub fn peers(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.replica.peers()
    }

    /// A control frame for this peer, if one is due.
    pub fn poll_control(&mut self, now: Timestamp, to: MemberId) -> Option<ChainFrame> {
        self.replica.poll_control(now, to)
    }

    /// The next updates for this peer: as many as fit into `room` bytes, but at least one and at most 4,096, or the
    /// next piece of a large one. Or a report of this member's durable mark or fullness, which peers other than the
    /// successor get, too.
    pub fn poll_updates(&mut self, now: Timestamp, to: MemberId, room: usize) -> Option<ChainFrame> {
        self.replica.poll_updates(now, to, room)
    }

    /// The next part of a snapshot for this peer: as many entries as fit into `room` bytes, but at least one, or the
    /// next piece of a large value.
    pub fn poll_snapshot(&mut self, now: Timestamp, to: MemberId, room: usize) -> Option<ChainFrame> {
        self.replica.poll_snapshot(now, to, room)
    }

    /// The next batch for the journal, which accepts no further record once it has about `room` bytes; always `None`
    /// for a member without a disk. Poll whenever the journal has capacity, and report in [`Turn::durable`] when the
    /// batch is durable.
    pub fn poll_journal(&mut self, room: usize) -> Option<JournalBatch> {
        self.replica.poll_journal(room)
    }

    /// Whether there is deferred work for [`settle`](Self::settle).
    pub fn is_behind(&self) -> bool {
        self.replica.is_behind()
    }

    /// Whether the deferred work should wait briefly, for example while another member processes the same update.
    pub fn is_between(&self) -> bool {
        self.replica.is_between()
    }

    /// Does the deferred work, or a step of it. Poll outputs and messages afterwards.
    pub fn settle(&mut self, clock: impl Fn() -> Timestamp) {
        self.replica.settle(clock());
    }

    /// Does the deferred work if it has waited for `MAX_DEFERRAL`, since local readers take the slow path until it is
    /// done. Returns whether it completed the work. Poll outputs and messages afterwards.
    pub fn settle_in_time(&mut self, clock: impl Fn() -> Timestamp) -> bool {
        if !self.replica.is_behind() {
            self.behind_since = None;
            return false;
        }
        let now = clock();
        if now - *self.behind_since.get_or_insert(now) >= MAX_DEFERRAL {
            self.replica.settle(now);
            self.behind_since = None;
            return !self.replica.is_behind();
        }
        false
    }

    fn reading(&mut self, clock: impl Fn() -> Timestamp) -> Timestamp {
        let now = clock();
        #[cfg(any(test, feature = "mutants"))]
        if allows!(self.guards, KeepReading) {
            return self.kept.replace(now).unwrap_or(now);
        }
        now
    }
}

/// Whether a turn has inputs that a mutant may process before the lease.
fn has_requests<R, W>(turn: &Turn<R, W>) -> bool {
    !(turn.orders.is_empty() && turn.frames.is_empty() && turn.reads.is_empty() && turn.writes.is_empty())
}

/// The reply to a request during which another history began. Values of the new history are meaningless in that of the
/// request, so a read is refused, and so is a write whose condition failed. It is unknown whether the request's own
/// history contains a committed write, so that write expires.
fn of_another_history(reply: Reply) -> Reply {
    match reply {
        Reply::Committed(_) => Reply::Expired,
        Reply::Refused(_) | Reply::Expired => reply,
        _ => Reply::Refused(Refusal::OtherHistory),
    }
}
