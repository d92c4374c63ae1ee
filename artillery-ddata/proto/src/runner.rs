//! Runs the replica of one chain. The runner decides the order of inputs, the clock reading of each, what is put off,
//! and when a reply may leave. Sans-IO.
//!
//! The contract with a driver, which keeps sockets, tasks and timers:
//!
//! - Receive all waiting inputs into a [`Turn`], and hand it to [`ChainRunner::take`]. At [`ChainRunner::next_tick`]
//!   hand over an empty turn.
//! - A turn may end before all of it is taken in. Act as after any other turn, and let the other tasks of the thread run.
//!   Then hand the rest over again, with the newest lease, what has become durable, and the node's orders, and receive
//!   further frames and requests behind the rest. Let other tasks run, too, whenever the turn
//!   [is over](ChainRunner::is_over): a node that is busy with a chain still has to renew its lease.
//! - Act on [`ChainRunner::poll_output`] until it returns nothing, and then pass [`ChainRunner::poll_word`] to the
//!   node.
//! - For each member of the configuration ([`ChainRunner::peers`]), whenever its link can take more, send messages:
//!   [`ChainRunner::poll_control`] always first, then [`ChainRunner::poll_updates`] as far as the link has room, and
//!   last, on a stream of its own, [`ChainRunner::poll_snapshot`]. The runner has no queue per link: controls are built
//!   from the present state, updates are read from the history by a cursor.
//! - Write what [`ChainRunner::poll_journal`] returns, as far as the journal has room, and hand over in a turn what has become
//!   durable.
//! - When all of that is on its way and no input waits, call [`ChainRunner::settle`], which does the work put off.
//!   However busy the chain is, call [`ChainRunner::settle_in_time`].

#[cfg(feature = "mutants")]
mod fork;
mod output;
mod slice;
#[cfg(test)]
mod tests;
mod turn;
mod write_line;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use slab::Slab;

use self::slice::Slice;
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
        RestoredChain, Token,
    },
    store::Store,
};

/// The most writes that are taken in before messages are sent.
const WRITES: usize = 256;
/// After this many small writes a large one has its turn.
const SMALL_WRITES: u32 = 256;
/// The longest time for which work is put off.
const MAX_DEFERRAL: Duration = Duration::from_millis(1);

/// One replica and the callers that wait for it. `C` is how a caller is answered.
pub struct ChainRunner<C> {
    replica: Replica,
    /// The callers that wait for a reply, each with the history in which its request is valid.
    callers: Slab<(C, Option<ClusterId>)>,
    /// The history of the newest configuration that is known here, also of one that doesn't name this member: or it would refuse
    /// requests of that history as of another one, and their clients would give their sessions up.
    history: Option<ClusterId>,
    /// The store was restored from a disk, and may belong to any history until a configuration is known here.
    is_restored: bool,
    /// The store was filled in another history than that of the present epoch, or in one that isn't known.
    is_foreign: bool,
    /// The newest lease that was offered.
    offered: Lease,
    /// Only leases of this stretch count; `None`: the node has resigned.
    stretch: Option<u64>,
    /// Why this node gives way. While it is set, no request is served.
    yields: Option<Refusal>,
    /// Words for the node, which leave after the replica's outputs.
    words: VecDeque<Word>,
    /// Callers whose requests were refused before they reached the replica.
    refused: VecDeque<(C, Refusal)>,
    open: Option<Epoch>,
    halted: Option<Halt>,
    /// Small writes that were taken in since the last large one.
    small_writes: u32,
    /// Since when work is put off.
    behind_since: Option<Timestamp>,
    slice: Slice,
    guards: Guards,
    /// The reading of the turn before, by which the mutant `KeepReading` decides.
    #[cfg(any(test, feature = "mutants"))]
    kept: Option<Timestamp>,
}

impl<C> std::fmt::Debug for ChainRunner<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChainRunner").field("replica", &self.replica).finish_non_exhaustive()
    }
}

impl<C> ChainRunner<C> {
    /// A member that is in no configuration yet, over an empty part of `store`. It takes leases of the first stretch,
    /// 0.
    pub fn new(
        me: MemberId,
        chain: ChainId,
        settings: ReplicaSettings,
        store: Arc<dyn Store>,
        gate: Arc<Gate>,
    ) -> Self {
        Self {
            guards: settings.guards,
            slice: Slice::of(settings.turn),
            replica: Replica::new(me, chain, settings, store, gate),
            callers: Slab::new(),
            history: None,
            is_restored: false,
            is_foreign: false,
            offered: Lease::default(),
            stretch: Some(0),
            yields: None,
            words: VecDeque::new(),
            refused: VecDeque::new(),
            open: None,
            halted: None,
            small_writes: 0,
            behind_since: None,
            #[cfg(any(test, feature = "mutants"))]
            kept: None,
        }
    }

    /// Takes over what this member's journal held ([`ChainRestore`](crate::replica::ChainRestore)). Call it before the first
    /// turn.
    #[must_use]
    pub fn restored(mut self, restored: RestoredChain) -> Self {
        self.replica.restore(restored);
        self.is_restored = true;
        self
    }

    /// The replica, read-only.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The callers that wait for a reply.
    pub fn callers(&self) -> impl Iterator<Item = &C> {
        self.callers.iter().map(|(_, (caller, _))| caller)
    }

    /// How many callers wait for a reply.
    pub fn waiting(&self) -> usize {
        self.callers.len()
    }

    /// Takes in what was received, until [`ReplicaSettings::turn`] has passed, and leaves the rest in the turn. Returns
    /// whether nothing is left. Then it has also taken in writes that `more` hands out of each [line](WriteLine), as many as
    /// there is room and time for.
    ///
    /// `clock` is read here, after everything was received. By an older reading a member would serve a strong read that
    /// arrived after the end of its lease, when others may have committed newer values without it (docs/DESIGN.md §6,
    /// trap 56). `wall` reads the wall clock, in milliseconds since the Unix epoch.
    ///
    /// The lease comes first in every turn: otherwise a chain that always has requests would never take it (trap 57).
    /// Orders that change or end a configuration come before the requests that depend on it.
    pub fn take<R: Into<ReadRequest<C>>, W: Into<WriteRequest<C>>>(
        &mut self,
        clock: impl Fn() -> Timestamp,
        wall: impl Fn() -> u64,
        turn: &mut Turn<R, W>,
        more: impl FnMut(WriteLine) -> Option<W>,
    ) -> bool {
        let now = self.reading(&clock);
        self.slice.begin(now);
        // A lease comes first: behind requests, of which there always is one more, it would never be taken (trap 57).
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
        self.replica.disk_is_full(turn.disk_full);
        turn.links.drain(..).for_each(|link| self.link(now, link));
        turn.orders.drain(..).for_each(|order| self.order(now, order));
        let (large, small) = (WriteLine::Large, WriteLine::Small);
        let is_whole = self.each(&clock, &mut turn.frames, |this, (from, frame)| this.frame(now, from, frame))
            && self.each(&clock, &mut turn.reads, |this, read| this.read(now, read.into()))
            && self.each(&clock, &mut turn.large_writes, |this, write| this.write_of(large, now, write.into(), wall()))
            && self.each(&clock, &mut turn.writes, |this, write| this.write_of(small, now, write.into(), wall()));
        if is_whole {
            self.take_more(&clock, &wall, more);
        }
        self.replica.handle(clock(), ReplicaInput::Tick);
        is_whole
    }

    /// Takes in inputs of one kind until the turn is over, and leaves the rest. Returns whether nothing is left and the turn
    /// goes on.
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

    /// Takes in writes that weren't received before. Each of them takes room, so the next one is received only after the one
    /// before it was taken in.
    fn take_more<W: Into<WriteRequest<C>>>(
        &mut self,
        clock: &impl Fn() -> Timestamp,
        wall: &impl Fn() -> u64,
        mut more: impl FnMut(WriteLine) -> Option<W>,
    ) {
        for _ in 0..WRITES {
            let mut lines = self.lines().into_iter().filter(|&line| self.has_room(line));
            let Some((line, write)) = lines.find_map(|line| Some((line, more(line)?))) else { break };
            let now = clock();
            self.write_of(line, now, write.into(), wall());
            if self.is_over(now) {
                break;
            }
        }
    }

    /// Whether the turn has taken so long that the other tasks of the thread have to run before the next one.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.slice.is_over(now) && !allows!(self.guards, NeverPause)
    }

    /// The lines in the order in which the next write is taken from them. Small writes come first. After `SMALL_WRITES`
    /// of them a large one comes first, so that neither line waits until the other is empty.
    pub fn lines(&self) -> [WriteLine; 2] {
        if self.small_writes < SMALL_WRITES {
            [WriteLine::Small, WriteLine::Large]
        } else {
            [WriteLine::Large, WriteLine::Small]
        }
    }

    /// Whether a write of this line would be taken in now. If not, leave writes in the driver's queues.
    pub fn has_room(&self, line: WriteLine) -> bool {
        match line {
            WriteLine::Small => self.replica.has_room(),
            WriteLine::Large => self.replica.has_room_for_large(),
        }
    }

    /// When a turn is due even if no input comes.
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
                // A lease of this stretch may have come before.
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
        let token = Token(self.callers.insert((caller, history)) as u64);
        self.replica.handle(now, ReplicaInput::Read { token, query, mode, floor, deadline });
    }

    fn write_of(&mut self, line: WriteLine, now: Timestamp, request: WriteRequest<C>, wall_clock: u64) {
        self.small_writes = if line == WriteLine::Large { 0 } else { self.small_writes.saturating_add(1) };
        self.write(now, request, wall_clock);
    }

    fn write(&mut self, now: Timestamp, request: WriteRequest<C>, wall_clock: u64) {
        let WriteRequest { request, history, write, deadline, caller } = request;
        if let Some(refusal) = self.refuses(history) {
            return self.refused.push_back((caller, refusal));
        }
        let token = Token(self.callers.insert((caller, history)) as u64);
        self.replica.handle(now, ReplicaInput::Write { token, request, write, deadline, wall_clock });
    }

    fn refuses(&self, history: Option<ClusterId>) -> Option<Refusal> {
        // What is held here may have been given up by an operator, until it is found in the chain's history.
        let is_unproven = self.is_foreign && self.replica.is_unproven();
        let is_unknown = history.is_some() && (is_unproven || self.is_restored && self.history.is_none());
        let is_another = || self.is_another(history).then_some(Refusal::OtherHistory);
        self.yields.or_else(is_another).or_else(|| is_unknown.then_some(Refusal::NoChain))
    }

    /// Whether a request belongs to another history than this chain. A floor or a position of one history means nothing
    /// in another: a session would be shown less than it has seen, and a watch would skip changes (docs/DESIGN.md
    /// §5.12, traps 58, 59).
    fn is_another(&self, history: Option<ClusterId>) -> bool {
        !allows!(self.guards, MixHistories) && history.zip(self.history).is_some_and(|(asked, mine)| asked != mine)
    }

    /// The next output for the driver.
    pub fn poll_output(&mut self) -> Option<RunnerOutput<C>> {
        if let Some((caller, refusal)) = self.refused.pop_front() {
            return Some(RunnerOutput::Reply(caller, Reply::Refused(refusal)));
        }
        while let Some(said) = self.replica.poll_output() {
            match said {
                Said::Reply(token, reply) => {
                    let Some((caller, history)) = self.callers.try_remove(token.0 as usize) else { continue };
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

    /// The next word to the node. Ask for it once [`poll_output`](Self::poll_output) returns nothing: by then what the
    /// word reports is done, and callers have their replies.
    pub fn poll_word(&mut self) -> Option<Word> {
        self.words.pop_front()
    }

    /// Whether words to the node wait.
    pub fn has_words(&self) -> bool {
        !self.words.is_empty()
    }

    /// Enqueues a word once: a repeated word isn't queued again while it waits.
    fn say(&mut self, word: Word) {
        if !self.words.contains(&word) {
            self.words.push_back(word);
        }
    }

    fn note(&mut self, event: &ReplicaEvent) {
        match event {
            ReplicaEvent::Opened(epoch) => self.open = Some(*epoch),
            ReplicaEvent::Entered(_) | ReplicaEvent::Expelled(_) => self.open = None,
            ReplicaEvent::Halted(why) => self.halted = Some(why.clone()),
            ReplicaEvent::Closed(_) => self.say(Word::Closed),
            _ => {}
        }
    }

    /// How the chain stands. Valid once [`poll_output`](Self::poll_output) returns nothing.
    pub fn standing(&self) -> ChainReadiness {
        ChainReadiness { open: self.open, halted: self.halted.clone(), progress: self.replica.progress() }
    }

    /// The epoch in which the chain is open here; `None`: it isn't open.
    pub fn is_open(&self) -> Option<Epoch> {
        self.open
    }

    /// The peers in the order in which to ask for messages to them.
    pub fn peers(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.replica.peers()
    }

    /// A control frame for this peer, if one is due.
    pub fn poll_control(&mut self, now: Timestamp, to: MemberId) -> Option<ChainFrame> {
        self.replica.poll_control(now, to)
    }

    /// Updates for this peer, of about `room` bytes.
    pub fn poll_updates(&mut self, now: Timestamp, to: MemberId, room: usize) -> Option<ChainFrame> {
        self.replica.poll_updates(now, to, room)
    }

    /// A part of a snapshot for this peer, of about `room` bytes.
    pub fn poll_snapshot(&mut self, now: Timestamp, to: MemberId, room: usize) -> Option<ChainFrame> {
        self.replica.poll_snapshot(now, to, room)
    }

    /// What to write into the journal next, of about `room` bytes. Ask for it whenever the journal can take more; members in
    /// memory have nothing for it. Once it is durable, [`Turn::durable`] says so.
    pub fn poll_journal(&mut self, room: usize) -> Option<JournalBatch> {
        self.replica.poll_journal(room)
    }

    /// Whether work is put off, which [`settle`](Self::settle) does.
    pub fn is_behind(&self) -> bool {
        self.replica.is_behind()
    }

    /// Whether the work put off had better wait for a moment, for instance while another member works on the same
    /// update.
    pub fn is_between(&self) -> bool {
        self.replica.is_between()
    }

    /// Does the work that was put off, or a step of it. Poll outputs and messages afterwards.
    pub fn settle(&mut self, clock: impl Fn() -> Timestamp) {
        self.replica.settle(clock());
    }

    /// Does the work that was put off if it has waited for `MAX_DEFERRAL`, since local readers take the slow path until
    /// it is done. Returns whether the last of it was done now: then poll outputs and messages.
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

/// Whether a turn has inputs beside a lease and links.
fn has_requests<R, W>(turn: &Turn<R, W>) -> bool {
    !(turn.orders.is_empty() && turn.frames.is_empty() && turn.reads.is_empty() && turn.writes.is_empty())
}

/// The reply to a request during which another history began. Values of the new history mean nothing in the request's
/// own, so a read is refused. Whether the request's own history holds a write is unknown, so a write is expired.
fn of_another_history(reply: Reply) -> Reply {
    match reply {
        Reply::Committed(_) => Reply::Expired,
        Reply::Refused(_) | Reply::Expired => reply,
        _ => Reply::Refused(Refusal::OtherHistory),
    }
}
