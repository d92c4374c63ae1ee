//! One task per chain: feeds the replica, and moves what it says into lanes and to callers.

use std::{collections::BTreeMap, sync::Arc};

use artillery_core::{MemberId, Timestamp, clock};
use slab::Slab;
use tokio::sync::{Notify, mpsc, oneshot};

use super::{
    handle::{ChainHandle, Queue, Queued, ReadRequest, Responder, WriteRequest},
    lanes::{Lanes, LinkState, UPDATES_ROOM},
};
use crate::{
    ChainConfig,
    replica::{Event, Gate, Input, Output, Replica, Settings, Status, Token},
    store::Store,
    wire::message::ChainFrame,
};

/// Frames from peers that wait for the task; each is of about [`UPDATES_ROOM`] bytes at most.
const FRAMES: usize = 64;
/// Reads, and writes, that wait for the task; [`Parts::queue_bytes`] bounds their bytes.
const REQUESTS: usize = 1024;
/// Of each kind of input, how many are taken in before something is sent.
const BATCH: usize = 256;

/// A peer's frame, or a question.
#[allow(clippy::large_enum_variant, reason = "nearly all commands are frames; a box would be one more allocation each")]
pub(crate) enum Command {
    Frame { from: MemberId, frame: ChainFrame },
    Status(oneshot::Sender<Status>),
}

/// Everything that a chain's task needs.
pub(crate) struct Parts {
    pub(crate) me: MemberId,
    pub(crate) config: Arc<ChainConfig>,
    pub(crate) settings: Settings,
    pub(crate) store: Arc<dyn Store>,
    /// To every other member.
    pub(crate) lanes: BTreeMap<MemberId, Lanes>,
    /// Bytes of reads, and of writes, that wait for the task.
    pub(crate) queue_bytes: usize,
    /// Told when the epoch is open here, or the replica has halted.
    pub(crate) events: mpsc::Sender<Event>,
}

/// Starts the task; it ends when all its senders are gone.
pub(crate) fn spawn(parts: Parts) -> (ChainHandle, mpsc::Sender<Command>) {
    let chain = parts.config.chain;
    let gate = Arc::new(Gate::new(chain));
    let (commands, command_queue) = mpsc::channel(FRAMES);
    let (reads, read_queue) = Queue::new(REQUESTS, parts.queue_bytes);
    let (writes, write_queue) = Queue::new(REQUESTS, parts.queue_bytes);
    let handle = ChainHandle { chain, gate: gate.clone(), store: parts.store.clone(), reads, writes };
    let wake = Arc::new(Notify::new());
    let lanes: BTreeMap<_, _> = parts.lanes.into_iter().map(|(id, lanes)| (id, Peer::new(lanes))).collect();
    lanes.values().for_each(|peer| peer.lanes.wake(&wake));
    let task = Task {
        replica: Replica::new(parts.me, chain, parts.settings, parts.store, gate),
        peers: lanes,
        responders: Slab::new(),
        commands: command_queue,
        reads: read_queue,
        writes: write_queue,
        wake,
        events: parts.events,
    };
    tokio::spawn(task.run(parts.config));
    (handle, commands)
}

struct Peer {
    lanes: Lanes,
    updates: mpsc::Sender<ChainFrame>,
    /// The state of its link that the replica was told.
    seen: LinkState,
}

impl Peer {
    fn new(lanes: Lanes) -> Self {
        let updates = lanes.add_updates();
        Self { lanes, updates, seen: LinkState::default() }
    }
}

struct Task {
    replica: Replica,
    peers: BTreeMap<MemberId, Peer>,
    responders: Slab<Responder>,
    commands: mpsc::Receiver<Command>,
    reads: mpsc::Receiver<Queued<ReadRequest>>,
    writes: mpsc::Receiver<Queued<WriteRequest>>,
    wake: Arc<Notify>,
    events: mpsc::Sender<Event>,
}

impl Task {
    async fn run(mut self, config: Arc<ChainConfig>) {
        let now = clock::now();
        // In a configuration that never changes nobody is ever fenced, so the lease never ends.
        self.replica.handle(now, Input::Lease(Timestamp::MAX));
        self.replica.handle(now, Input::Enter(config));
        let wake = self.wake.clone();
        let (mut commands, mut reads, mut writes) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            self.follow_links();
            self.flush();
            let room = self.replica.has_room();
            let tick = self.replica.next_tick();
            let pause = tick.map_or(std::time::Duration::ZERO, |at| at - clock::now());
            tokio::select! {
                // Of whatever is ready something is taken in below: nobody is starved, and a run can be made again.
                biased;
                taken = self.commands.recv_many(&mut commands, BATCH) => if taken == 0 { return },
                taken = self.reads.recv_many(&mut reads, BATCH) => if taken == 0 { return },
                taken = self.writes.recv_many(&mut writes, 1), if room => if taken == 0 { return },
                () = wake.notified() => {}
                () = tokio::time::sleep(pause), if tick.is_some() => {}
            }
            if self.responders.len() > 1 {
                // Others wait already: whoever is about to hand something in may share what is sent next.
                tokio::task::yield_now().await;
            }
            let now = clock::now();
            commands.drain(..).for_each(|command| self.command(now, command));
            reads.drain(..).for_each(|read| self.read(now, read));
            writes.drain(..).for_each(|write| self.write(now, write));
            self.take_what_is_ready(now);
            self.replica.handle(now, Input::Tick);
        }
    }

    /// Whatever has come meanwhile shares the frames that are sent next.
    fn take_what_is_ready(&mut self, now: Timestamp) {
        for _ in 0..BATCH {
            let Ok(command) = self.commands.try_recv() else { break };
            self.command(now, command);
        }
        for _ in 0..BATCH {
            let Ok(read) = self.reads.try_recv() else { break };
            self.read(now, read);
        }
        for _ in 0..BATCH {
            if !self.replica.has_room() {
                break;
            }
            let Ok(write) = self.writes.try_recv() else { break };
            self.write(now, write);
        }
    }

    fn command(&mut self, now: Timestamp, command: Command) {
        match command {
            Command::Frame { from, frame } => self.replica.handle(now, Input::Receive { from, frame }),
            // Whoever asked may have gone.
            Command::Status(asker) => drop(asker.send(self.replica.status())),
        }
    }

    fn read(&mut self, now: Timestamp, queued: Queued<ReadRequest>) {
        let request = queued.request;
        let token = Token(self.responders.insert(request.responder) as u64);
        let ReadRequest { query, mode, floor, deadline, .. } = request;
        self.replica.handle(now, Input::Read { token, query, mode, floor, deadline });
    }

    fn write(&mut self, now: Timestamp, queued: Queued<WriteRequest>) {
        let request = queued.request;
        let token = Token(self.responders.insert(request.responder) as u64);
        let WriteRequest { request, write, deadline, .. } = request;
        self.replica.handle(now, Input::Write { token, request, write, deadline, wall_clock: clock::wall() });
    }

    fn follow_links(&mut self) {
        let now = clock::now();
        for peer in self.peers.values_mut() {
            let state = peer.lanes.state();
            if state == peer.seen {
                continue;
            }
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
                    if let Some(responder) = self.responders.try_remove(token.0 as usize) {
                        responder.reply(reply);
                    }
                }
                Output::Event(event) => self.tell(event),
                // Nobody changes this configuration, and nobody joins it.
                Output::Promote { .. } => {}
            }
        }
        let now = clock::now();
        for (&id, peer) in &self.peers {
            if let Ok(room) = peer.lanes.control.try_reserve()
                && let Some(frame) = self.replica.poll_control(now, id)
            {
                room.send(frame);
            }
            while let Ok(room) = peer.updates.try_reserve() {
                let Some(frame) = self.replica.poll_updates(now, id, UPDATES_ROOM) else { break };
                room.send(frame);
            }
        }
    }

    fn tell(&self, event: Event) {
        match &event {
            Event::Halted(why) => tracing::error!(%why, "this member stopped serving"),
            event => tracing::info!(?event, "chain"),
        }
        // The queue has room for all events of an epoch; a node that is stopping doesn't read them.
        drop(self.events.try_send(event));
    }
}
