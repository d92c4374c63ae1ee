//! Runs the replica of one chain: which input is taken in first, with which reading of the clock, what is put off, and when
//! a reply may leave. Sans-IO.
//!
//! The contract with a driver, which keeps sockets, tasks and timers:
//!
//! - Receive what is there into a [`Turn`], and have it taken in ([`ChainRunner::take`]); at [`ChainRunner::next_tick`] take
//!   in an empty one.
//! - Do what it says ([`ChainRunner::poll_output`]) until there is nothing more, and then tell the node
//!   ([`ChainRunner::poll_word`]).
//! - For each member of the configuration ([`ChainRunner::peers`]) and whenever its link can take more, take messages:
//!   [`ChainRunner::poll_control`] always first, then [`ChainRunner::poll_updates`] as far as the link has room, and last, on a
//!   stream of its own, [`ChainRunner::poll_snapshot`]. Nothing is queued here per link: controls are built from the present
//!   state, updates are read from the history by a cursor.
//! - When all that is on its way, and nothing else has happened, have it do what it put off ([`ChainRunner::settle`]), and
//!   however busy it is, [`ChainRunner::settle_in_time`].

#[cfg(feature = "mutants")]
mod fork;
mod output;
#[cfg(test)]
mod tests;
mod turn;
mod write_line;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use slab::Slab;

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
    replica::{Gate, Halt, Replica, ReplicaEvent, ReplicaInput, ReplicaOutput as Said, ReplicaSettings, Token},
    store::Store,
};

/// Writes that are taken in one after the other before anything is sent.
const WRITES: usize = 256;
/// So many small writes may be taken in before a large one has its turn.
const SMALL_WRITES: u32 = 256;
/// Nothing is put off for longer.
const MAX_DEFERRAL: Duration = Duration::from_millis(1);

/// One replica and the callers that wait for it. `C` is how a caller is answered.
pub struct ChainRunner<C> {
    replica: Replica,
    /// The callers that wait for a reply, and in which history alone it means something to them.
    callers: Slab<(C, Option<ClusterId>)>,
    /// The history of the configuration entered last.
    history: Option<ClusterId>,
    /// The newest lease that was offered.
    offered: Lease,
    /// Leases of this stretch count; `None`: the node has resigned.
    stretch: Option<u64>,
    /// The cluster that succeeds this one, for which nothing is served here any more.
    successor: Option<ClusterId>,
    /// What is to be said, behind what the replica says.
    words: VecDeque<Word>,
    /// Callers whose requests didn't come to the replica.
    refused: VecDeque<(C, Refusal)>,
    open: Option<Epoch>,
    halted: Option<Halt>,
    /// Writes that were taken in since the last one from the line of large ones.
    small_writes: u32,
    /// Since when something is put off.
    behind_since: Option<Timestamp>,
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
    /// A member that is in no configuration yet, over an empty part of `store`. It takes leases of the first stretch, 0.
    pub fn new(
        me: MemberId,
        chain: ChainId,
        settings: ReplicaSettings,
        store: Arc<dyn Store>,
        gate: Arc<Gate>,
    ) -> Self {
        Self {
            guards: settings.guards,
            replica: Replica::new(me, chain, settings, store, gate),
            callers: Slab::new(),
            history: None,
            offered: Lease::default(),
            stretch: Some(0),
            successor: None,
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

    /// The replica, to look at.
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

    /// Takes in everything that was received, and leaves the turn empty; then as many of the writes that `more` hands out of
    /// each [line](WriteLine) as there is room for.
    ///
    /// `clock` is read here, behind the receipt of all of it: by an older reading a member would serve a strong read that
    /// arrived after the end of its lease, when others may have committed newer values without it (docs/DESIGN.md §6, trap
    /// 56). `wall` reads the wall clock, in milliseconds since the Unix epoch.
    ///
    /// The lease comes first, in every turn: a chain that always has requests would never take it otherwise (trap 57). What
    /// changes or ends a configuration comes before the requests that it decides about.
    pub fn take<R: Into<ReadRequest<C>>, W: Into<WriteRequest<C>>>(
        &mut self,
        clock: impl Fn() -> Timestamp,
        wall: impl Fn() -> u64,
        turn: &mut Turn<R, W>,
        mut more: impl FnMut(WriteLine) -> Option<W>,
    ) {
        let now = self.reading(&clock);
        // A lease comes first: behind requests, of which there always is one more, it would never be taken (trap 57).
        let waits = allows!(self.guards, LeaseLast) && has_requests(turn);
        if let Some(lease) = turn.lease.take_if(|_| !waits) {
            self.offered = lease;
            self.take_lease(now);
        }
        turn.links.drain(..).for_each(|link| self.link(now, link));
        turn.orders.drain(..).for_each(|order| self.order(now, order));
        turn.frames.drain(..).for_each(|(from, frame)| self.frame(now, from, frame));
        turn.reads.drain(..).for_each(|read| self.read(now, read.into()));
        turn.large_writes.drain(..).for_each(|write| self.write_of(WriteLine::Large, now, write.into(), wall()));
        turn.writes.drain(..).for_each(|write| self.write_of(WriteLine::Small, now, write.into(), wall()));
        // Each write takes room, so the next one is received only when the one before it has been taken in.
        for _ in 0..WRITES {
            let mut lines = self.lines().into_iter().filter(|&line| self.has_room(line));
            let Some((line, write)) = lines.find_map(|line| Some((line, more(line)?))) else { break };
            self.write_of(line, clock(), write.into(), wall());
        }
        self.replica.handle(clock(), ReplicaInput::Tick);
    }

    /// The lines in the order in which the next write is to be taken from them. Small writes come first, and after so many of them a large
    /// one: neither line waits for the other to be empty.
    pub fn lines(&self) -> [WriteLine; 2] {
        if self.small_writes < SMALL_WRITES {
            [WriteLine::Small, WriteLine::Large]
        } else {
            [WriteLine::Large, WriteLine::Small]
        }
    }

    /// Whether a write of this line would be taken in now: otherwise writes stay where they wait.
    pub fn has_room(&self, line: WriteLine) -> bool {
        match line {
            WriteLine::Small => self.replica.has_room(),
            WriteLine::Large => self.replica.has_room_for_large(),
        }
    }

    /// When a turn is wanted even if nothing comes.
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
        if self.stretch.is_some_and(counts) && self.successor.is_none() {
            self.replica.handle(now, ReplicaInput::Lease(until));
            self.replica.handle(now, ReplicaInput::Served(asked));
        }
    }

    fn order(&mut self, now: Timestamp, order: ChainOrder) {
        match order {
            ChainOrder::Enter { config, history, upto } => {
                self.history = Some(history);
                self.replica.handle(now, ReplicaInput::Enter(config));
                self.words.push_back(Word::ActsBy(upto));
            }
            ChainOrder::Expelled { epoch, upto } => {
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
            ChainOrder::Yield { by } => {
                self.successor = Some(by);
                self.replica.handle(now, ReplicaInput::Lease(Timestamp::ZERO));
            }
            ChainOrder::Proceed => {
                self.successor = None;
                self.take_lease(now);
            }
        }
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
        let is_over = self.successor.map(|by| Refusal::Succeeded { by });
        is_over.or_else(|| self.is_another(history).then_some(Refusal::OtherHistory))
    }

    /// Whether a request belongs to another history than this chain. A floor or a position of one says nothing about
    /// another: a session would be shown less than it has seen, and a watch pass over changes (docs/DESIGN.md §5.12, traps
    /// 58, 59).
    fn is_another(&self, history: Option<ClusterId>) -> bool {
        !allows!(self.guards, MixHistories) && history.zip(self.history).is_some_and(|(asked, mine)| asked != mine)
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<RunnerOutput<C>> {
        if let Some((caller, refusal)) = self.refused.pop_front() {
            return Some(RunnerOutput::Reply(caller, Reply::Refused(refusal)));
        }
        while let Some(said) = self.replica.poll_output() {
            match said {
                Said::Reply(token, reply) => {
                    let Some((caller, history)) = self.callers.try_remove(token.0 as usize) else { continue };
                    // It may have waited while another history began.
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

    /// What the chain has to say to its node next, once [`poll_output`](Self::poll_output) has nothing more: what a word
    /// stands for has been done by then, and callers have heard of it.
    pub fn poll_word(&mut self) -> Option<Word> {
        self.words.pop_front()
    }

    /// Whether it has something to say to its node.
    pub fn has_words(&self) -> bool {
        !self.words.is_empty()
    }

    /// What is repeated waits once, however long the node doesn't listen.
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

    /// How the chain stands, once what there is to be done is done.
    pub fn standing(&self) -> ChainReadiness {
        ChainReadiness { open: self.open, halted: self.halted.clone(), progress: self.replica.progress() }
    }

    /// The epoch in which the chain is open here, and whether it halted: what others wait for.
    pub fn is_open(&self) -> Option<Epoch> {
        self.open
    }

    /// The peers to which there may be something to send, in this order.
    pub fn peers(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.replica.peers()
    }

    /// The newest state of acknowledgements, if this peer is to hear of it.
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

    /// Whether something is put off, which [`settle`](Self::settle) does.
    pub fn is_behind(&self) -> bool {
        self.replica.is_behind()
    }

    /// Whether what was put off had better wait for a moment: another member works for the same update now.
    pub fn is_between(&self) -> bool {
        self.replica.is_between()
    }

    /// Does what was put off, or a step of it. There may be something to say and to send.
    pub fn settle(&mut self, clock: impl Fn() -> Timestamp) {
        self.replica.settle(clock());
    }

    /// However busy it is, what was put off isn't so for long: local readers wait for it. Whether the last of it was done now:
    /// there may be something to say.
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

/// Whether a turn brings anything that may go before a lease.
fn has_requests<R, W>(turn: &Turn<R, W>) -> bool {
    !(turn.orders.is_empty() && turn.frames.is_empty() && turn.reads.is_empty() && turn.writes.is_empty())
}

/// The answer to a request during which another history began. What was read there says nothing about the request's own history,
/// and whether that history holds what was written is unknown.
fn of_another_history(reply: Reply) -> Reply {
    match reply {
        Reply::Committed(_) => Reply::Expired,
        Reply::Refused(_) | Reply::Expired => reply,
        _ => Reply::Refused(Refusal::OtherHistory),
    }
}
