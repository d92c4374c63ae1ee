//! One task per chain: feeds the replica, and moves what it says into lanes and to callers.

mod parts;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use artillery_core::{MemberId, Timestamp, clock};
use slab::Slab;
use smallvec::SmallVec;
use tokio::sync::{Notify, mpsc, oneshot, watch};

pub(crate) use self::parts::{Command, Parts, Rule, Standing};
#[cfg(test)]
use super::mutant::Mutant;
use super::{
    control,
    handle::{ChainHandle, Queue, Queued, ReadRequest, Responder, WriteRequest},
    lanes::{Lanes, LinkState, UPDATES_ROOM},
    turn::{Taken, Turn},
};
use crate::{
    ChainConfig, ClusterId, Epoch,
    control::message::Promotion,
    replica::{Event, Gate, Input, Output, Refusal, Replica, Reply, Token},
    wire::message::ChainFrame,
};

/// Frames from peers that wait for the task; each is of about [`UPDATES_ROOM`] bytes at most.
const FRAMES: usize = 64;
/// Reads, and writes, that wait for the task; [`Parts::queue_bytes`] bounds their bytes.
const REQUESTS: usize = 1024;
/// Of each kind of input, how many are taken in before something is sent.
const BATCH: usize = 256;
/// Nothing is put off for longer.
const MOMENT: Duration = Duration::from_millis(1);

/// Starts the task; it ends when all its senders are gone.
pub(crate) fn spawn(parts: Parts) -> (ChainHandle, mpsc::Sender<Command>) {
    let (task, handle, commands) = task(parts);
    tokio::spawn(task.run());
    (handle, commands)
}

fn task(parts: Parts) -> (Task, ChainHandle, mpsc::Sender<Command>) {
    let Parts { me, chain, rule, settings, store, queue_bytes, standing } = parts;
    let gate = Arc::new(Gate::new(chain));
    let (commands, command_queue) = mpsc::channel(FRAMES);
    let (reads, read_queue) = Queue::new(REQUESTS, queue_bytes);
    let (writes, write_queue) = Queue::new(REQUESTS, queue_bytes);
    let handle = ChainHandle { chain, gate: gate.clone(), store: store.clone(), reads, writes };
    let mut task = Task {
        replica: Replica::new(me, chain, settings, store, gate),
        peers: BTreeMap::new(),
        responders: Slab::new(),
        history: None,
        commands: command_queue,
        reads: read_queue,
        writes: write_queue,
        wake: Arc::default(),
        standing,
        leases: None,
        wishes: None,
        done: Vec::new(),
        closed: false,
        behind_since: None,
        #[cfg(test)]
        mutant: None,
    };
    match rule {
        Rule::Fixed { config, history, lanes } => {
            // In a configuration that never changes nobody is ever fenced, so the lease never ends.
            let now = clock::now();
            task.replica.handle(now, Input::Lease(Timestamp::MAX));
            task.replica.handle(now, Input::Served(now));
            task.history = Some(history);
            task.enter(now, config, lanes);
        }
        Rule::Log { leases, wishes } => (task.leases, task.wishes) = (Some(leases), Some(wishes)),
    }
    (task, handle, commands)
}

/// What the task has received for one turn.
type Received = Turn<Command, Queued<ReadRequest>, Queued<WriteRequest>>;

struct Peer {
    lanes: Lanes,
    updates: mpsc::Sender<ChainFrame>,
    snapshots: mpsc::Sender<ChainFrame>,
    /// The state of its link that the replica was told.
    seen: LinkState,
}

impl Peer {
    fn new(lanes: Lanes) -> Self {
        let (updates, snapshots) = (lanes.add_updates(), lanes.add_snapshots());
        Self { lanes, updates, snapshots, seen: LinkState::default() }
    }
}

struct Task {
    replica: Replica,
    peers: BTreeMap<MemberId, Peer>,
    /// The callers that wait for a reply, and in which history alone it means something to them.
    responders: Slab<(Responder, Option<ClusterId>)>,
    /// The history of the configuration entered last.
    history: Option<ClusterId>,
    commands: mpsc::Receiver<Command>,
    reads: mpsc::Receiver<Queued<ReadRequest>>,
    writes: mpsc::Receiver<Queued<WriteRequest>>,
    wake: Arc<Notify>,
    standing: watch::Sender<Standing>,
    /// `None`: the lease doesn't change.
    leases: Option<watch::Receiver<control::Lease>>,
    /// `None`: nobody is ever promoted.
    wishes: Option<mpsc::Sender<control::Command>>,
    /// Told with the next flush.
    done: Vec<oneshot::Sender<()>>,
    /// The head has closed: to be said with the next flush.
    closed: bool,
    /// Since when something is put off.
    behind_since: Option<Timestamp>,
    /// The guard that a test leaves out.
    #[cfg(test)]
    mutant: Option<Mutant>,
}

impl Task {
    async fn run(mut self) {
        let wake = self.wake.clone();
        let mut turn = Received::default();
        #[cfg(test)]
        turn.leave_out(self.mutant);
        loop {
            self.follow_links();
            self.flush();
            if self.settle_in_time() {
                self.flush();
            }
            let room = self.replica.has_room();
            let tick = self.replica.next_tick();
            let pause = tick.map_or(Duration::ZERO, |at| at - clock::now());
            tokio::select! {
                // Of whatever is ready something is taken in below: nobody is starved, and a run can be made again.
                biased;
                taken = self.commands.recv_many(&mut turn.commands, BATCH) => if taken == 0 { return },
                taken = self.reads.recv_many(&mut turn.reads, BATCH) => if taken == 0 { return },
                taken = self.writes.recv_many(&mut turn.writes, 1), if room => if taken == 0 { return },
                () = wake.notified() => {}
                lease = renewed(&mut self.leases) => turn.lease = Some(lease),
                () = tokio::time::sleep(pause), if tick.is_some() => {}
                () = until_said(self.replica.is_between()), if self.replica.is_behind() => {
                    self.replica.settle();
                    continue;
                }
            }
            if self.responders.len() > 1 {
                // Others wait already: whoever is about to hand something in may share what is sent next.
                tokio::task::yield_now().await;
            }
            self.receive_what_is_ready(&mut turn);
            turn.act(clock::now, |now, taken| self.act(now, taken));
            self.write_what_is_ready(&mut turn);
            self.replica.handle(clock::now(), Input::Tick);
        }
    }

    /// However busy it is, what was put off isn't so for long: local readers wait for it. Whether the last of it was done now:
    /// there may be something to say.
    fn settle_in_time(&mut self) -> bool {
        if !self.replica.is_behind() {
            self.behind_since = None;
            return false;
        }
        let now = clock::now();
        if now - *self.behind_since.get_or_insert(now) >= MOMENT {
            self.replica.settle();
            self.behind_since = None;
            return !self.replica.is_behind();
        }
        false
    }

    /// Whatever has come meanwhile shares the frames that are sent next.
    fn receive_what_is_ready(&mut self, turn: &mut Received) {
        if let Some(leases) = &mut self.leases
            && leases.has_changed().unwrap_or(false)
        {
            turn.lease = Some(*leases.borrow_and_update());
        }
        turn.commands.extend(std::iter::from_fn(|| self.commands.try_recv().ok()).take(BATCH));
        turn.reads.extend(std::iter::from_fn(|| self.reads.try_recv().ok()).take(BATCH));
    }

    /// Each write takes room, so the next one is received only when the one before it has been acted on.
    fn write_what_is_ready(&mut self, turn: &mut Received) {
        for _ in 0..BATCH {
            if !self.replica.has_room() {
                break;
            }
            let Ok(write) = self.writes.try_recv() else { break };
            turn.writes.push(write);
            turn.act(clock::now, |now, taken| self.act(now, taken));
        }
    }

    fn act(&mut self, now: Timestamp, taken: Taken<Command, Queued<ReadRequest>, Queued<WriteRequest>>) {
        match taken {
            Taken::Lease(lease) => {
                self.replica.handle(now, Input::Lease(lease.until));
                self.replica.handle(now, Input::Served(lease.asked));
            }
            Taken::Command(command) => self.command(now, command),
            Taken::Read(read) => self.read(now, read),
            Taken::Write(write) => self.write(now, write),
        }
    }

    fn command(&mut self, now: Timestamp, command: Command) {
        match command {
            Command::Frame { from, frame } => self.replica.handle(now, Input::Receive { from, frame }),
            // Whoever asked may have gone.
            Command::Status(asker) => drop(asker.send(self.replica.status())),
            Command::Enter { config, history, lanes, done } => {
                self.history = Some(history);
                self.enter(now, config, lanes);
                self.done.push(done);
            }
            Command::Expelled { epoch, done } => {
                self.replica.handle(now, Input::Expelled(epoch));
                self.let_go(now, &BTreeMap::new());
                self.done.push(done);
            }
            Command::Close { epoch, until } => self.replica.handle(now, Input::Close { epoch, until }),
            Command::Resign(done) => {
                self.leases = None;
                self.replica.handle(now, Input::Lease(Timestamp::ZERO));
                self.done.push(done);
            }
            Command::ServeAgain { leases, done } => {
                self.leases = Some(leases);
                self.done.push(done);
            }
        }
    }

    /// Moves to a configuration; peers that stay keep their lanes.
    fn enter(&mut self, now: Timestamp, config: Arc<ChainConfig>, lanes: BTreeMap<MemberId, Lanes>) {
        self.let_go(now, &lanes);
        for (id, lanes) in lanes {
            let wake = &self.wake;
            self.peers.entry(id).or_insert_with(|| {
                lanes.wake(wake);
                Peer::new(lanes)
            });
        }
        self.replica.handle(now, Input::Enter(config));
    }

    /// Forgets all peers but those.
    fn let_go(&mut self, now: Timestamp, stay: &BTreeMap<MemberId, Lanes>) {
        let gone: Vec<_> = self.peers.keys().filter(|id| !stay.contains_key(id)).copied().collect();
        for peer in gone.into_iter().filter_map(|id| self.peers.remove(&id)) {
            if let Some(id) = peer.seen.up {
                self.replica.handle(now, Input::Disconnected(id));
            }
        }
    }

    fn read(&mut self, now: Timestamp, queued: Queued<ReadRequest>) {
        let ReadRequest { query, mode, floor, history, deadline, responder } = queued.request;
        if self.is_another(history) {
            return responder.reply(Reply::Refused(Refusal::OtherHistory));
        }
        let token = Token(self.responders.insert((responder, history)) as u64);
        self.replica.handle(now, Input::Read { token, query, mode, floor, deadline });
    }

    /// Whether a request belongs to another history than this chain. A floor or a position of one says nothing about
    /// another: a session would be shown less than it has seen, and a watch pass over changes (docs/DESIGN.md §5.12, traps
    /// 58, 59).
    fn is_another(&self, history: Option<ClusterId>) -> bool {
        #[cfg(test)]
        if self.mutant == Some(Mutant::MixHistories) {
            return false;
        }
        history.zip(self.history).is_some_and(|(asked, mine)| asked != mine)
    }

    fn write(&mut self, now: Timestamp, queued: Queued<WriteRequest>) {
        let WriteRequest { request, history, write, deadline, responder } = queued.request;
        if self.is_another(history) {
            return responder.reply(Reply::Refused(Refusal::OtherHistory));
        }
        let token = Token(self.responders.insert((responder, history)) as u64);
        self.replica.handle(now, Input::Write { token, request, write, deadline, wall_clock: clock::wall() });
    }

    fn follow_links(&mut self) {
        for peer in self.peers.values_mut() {
            let state = peer.lanes.state();
            if state == peer.seen {
                continue;
            }
            let now = clock::now();
            if let Some(gone) = peer.seen.up {
                self.replica.handle(now, Input::Disconnected(gone));
            }
            if let Some(here) = state.up {
                self.replica.handle(now, Input::Connected(here));
            }
            peer.seen = state;
        }
    }

    /// Replies first, then controls, then updates, as far as there is room; where there is none, the lane wakes us.
    fn flush(&mut self) {
        while let Some(output) = self.replica.poll_output() {
            match output {
                Output::Reply(token, reply) => {
                    if let Some((responder, history)) = self.responders.try_remove(token.0 as usize) {
                        // It may have waited while another history began.
                        let is_late = self.is_another(history);
                        responder.reply(if is_late { of_another_history(reply) } else { reply });
                    }
                }
                Output::Event(event) => self.tell(event),
                Output::Promote { epoch, member } => self.wish(epoch, member),
            }
        }
        let progress = self.replica.progress();
        self.standing.send_if_modified(|standing| {
            standing.progress = progress;
            false
        });
        self.hurry();
        // Whoever waited for this may have gone.
        for done in self.done.drain(..) {
            let _ = done.send(());
        }
        let now = clock::now();
        let peers: SmallVec<[MemberId; 8]> = self.replica.peers().collect();
        for id in peers {
            let Some(peer) = self.peers.get(&id) else { continue };
            if let Ok(room) = peer.lanes.control.try_reserve()
                && let Some(frame) = self.replica.poll_control(now, id)
            {
                room.send(frame);
            }
            while let Ok(room) = peer.updates.try_reserve() {
                let Some(frame) = self.replica.poll_updates(now, id, UPDATES_ROOM) else { break };
                room.send(frame);
            }
            while let Ok(room) = peer.snapshots.try_reserve() {
                let Some(frame) = self.replica.poll_snapshot(now, id, UPDATES_ROOM) else { break };
                room.send(frame);
            }
        }
    }

    /// Asks for a promotion. What there is no room for now is asked for again.
    fn wish(&self, epoch: Epoch, member: MemberId) {
        if let Some(wishes) = &self.wishes {
            let wish = Promotion { chain: self.replica.chain(), epoch, member };
            drop(wishes.try_send(control::Command::Promote(wish)));
        }
    }

    /// Whoever has the members change places waits for the word that the head has closed.
    fn hurry(&mut self) {
        if std::mem::take(&mut self.closed)
            && let Some(wishes) = &self.wishes
        {
            // Without room it is said with the next renewal.
            drop(wishes.try_send(control::Command::Hurry));
        }
    }

    fn tell(&mut self, event: Event) {
        match &event {
            Event::Halted(why) => tracing::error!(%why, "this member stopped serving"),
            Event::Closed(_) => self.closed = true,
            event => tracing::info!(?event, "chain"),
        }
        self.standing.send_if_modified(|standing| match event {
            Event::Opened(epoch) => standing.open.replace(epoch) != Some(epoch),
            Event::Entered(_) | Event::Expelled(_) => standing.open.take().is_some(),
            Event::Halted(why) => standing.halted.replace(why).is_none(),
            _ => false,
        });
    }
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

/// Returns when what was said has left, and, if somebody else is at work for it, has had time to get there.
async fn until_said(is_between: bool) {
    if is_between {
        tokio::time::sleep(MOMENT).await;
    } else {
        tokio::task::yield_now().await;
    }
}

/// The next lease; waits for ever where there are no more.
async fn renewed(leases: &mut Option<watch::Receiver<control::Lease>>) -> control::Lease {
    if let Some(leases) = leases
        && leases.changed().await.is_ok()
    {
        return *leases.borrow_and_update();
    }
    std::future::pending().await
}
