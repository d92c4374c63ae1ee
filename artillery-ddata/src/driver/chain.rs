//! One task per chain. It feeds input to the chain's runner, and moves the runner's output into lanes and to callers.

mod parts;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use artillery_core::{
    MemberId, Timestamp,
    internal::{clock::NodeClock, watch},
};
pub(crate) use artillery_proto::runner::ChainReadiness;
use artillery_proto::runner::{ChainOrder, ChainRunner, Lease, LinkChange, RunnerOutput, Turn, Word, WriteLine};
use smallvec::SmallVec;
use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc, oneshot},
};

pub(crate) use self::parts::{ChainCommand, ChainParts, Inlets, Ordered, Rule};
use super::{
    journal::{BATCH_BYTES, JournalNews, RunningJournal},
    lanes::{LaneState, Lanes, UPDATES_ROOM},
};
use crate::{
    ChainId,
    control::log::LogIndex,
    local::handle::{ChainHandle, Lines, Queued, ReadRequest, RequestQueue, Responder, WriteQueues, WriteRequest},
    message::ChainFrame,
    replica::{Gate, ReplicaEvent, Rereplication, Status},
};

/// The most frames and status queries that wait for the task. A frame has about [`UPDATES_ROOM`] bytes at most.
const FRAMES: usize = 64;
/// The most orders of the node that wait for the task. The node has at most four pending, not counting orders to close.
const ORDERS: usize = 16;
/// The most reads, small writes and large writes that wait for the task, each. [`ChainParts::queue_bytes`] bounds their
/// bytes.
const REQUESTS: usize = 1024;
/// The most commands, and the most reads, received in one call. A step makes up to two such calls for each. Writes are
/// received one at a time. The runner decides how many inputs it handles before output is sent.
const BATCH: usize = 256;
/// How long deferred work waits while another member works on the same update.
const DEFERRAL: Duration = Duration::from_millis(1);

/// Starts the task in `runtime`. It ends when its inlets or its handles are dropped.
pub(crate) fn spawn(parts: ChainParts, runtime: &Handle) -> (ChainHandle, Inlets) {
    let (task, handle, inlets) = task(parts);
    runtime.spawn(task.run());
    (handle, inlets)
}

fn task(parts: ChainParts) -> (ChainTask, ChainHandle, Inlets) {
    let ChainParts { me, chain, clock, rule, settings, store, queue_bytes, journal, standing } = parts;
    let gate = Arc::new(Gate::new(chain).with_guards(settings.guards));
    let (commands, command_queue) = mpsc::channel(FRAMES);
    let (orders, order_queue) = mpsc::channel(ORDERS);
    let (reads, read_queue) = RequestQueue::new(REQUESTS, queue_bytes);
    let (writes, write_queues) = Lines::new(REQUESTS, queue_bytes, &settings);
    let handle = ChainHandle { chain, clock: clock.clone(), gate: gate.clone(), store: store.clone(), reads, writes };
    let wake = Arc::<Notify>::default();
    let runner = ChainRunner::new(me, chain, settings, store, gate);
    let restored = journal.as_ref().and_then(|journal| journal.add(chain, wake.clone()));
    let runner = match restored {
        Some(restored) => runner.restored(restored),
        None => runner,
    };
    let mut task = ChainTask {
        chain,
        clock,
        runner,
        journal,
        peers: BTreeMap::new(),
        turn: Turn::default(),
        callers: Vec::new(),
        commands: command_queue,
        orders: order_queue,
        reads: read_queue,
        writes: write_queues,
        wake,
        standing,
        leases: None,
        words: None,
    };
    match rule {
        Rule::Fixed { config, history, lanes } => {
            // A fixed configuration never fences a member, so the lease never ends.
            task.turn.lease = Some(Lease { until: Timestamp::MAX, asked: task.clock.now(), stretch: 0 });
            task.ordered(Ordered { order: ChainOrder::Enter { config, history, upto: LogIndex::default() }, lanes });
        }
        Rule::Log { leases, words } => (task.leases, task.words) = (Some(leases), Some(words)),
    }
    (task, handle, Inlets { commands, orders })
}

struct PeerLanes {
    lanes: Lanes,
    updates: mpsc::Sender<ChainFrame>,
    snapshots: mpsc::Sender<ChainFrame>,
    /// The state of the link that was last passed to the runner.
    seen: LaneState,
}

impl PeerLanes {
    fn new(lanes: Lanes) -> Self {
        let (updates, snapshots) = (lanes.add_updates(), lanes.add_snapshots());
        Self { lanes, updates, snapshots, seen: LaneState::default() }
    }
}

struct ChainTask {
    chain: ChainId,
    clock: NodeClock,
    runner: ChainRunner<Responder>,
    peers: BTreeMap<MemberId, PeerLanes>,
    /// Input received for the runner's next turn.
    turn: Turn<Queued<ReadRequest>, Queued<WriteRequest>>,
    callers: Vec<oneshot::Sender<Status>>,
    commands: mpsc::Receiver<ChainCommand>,
    orders: mpsc::Receiver<Ordered>,
    reads: mpsc::Receiver<Queued<ReadRequest>>,
    writes: WriteQueues,
    wake: Arc<Notify>,
    /// `None`: the node has no directory.
    journal: Option<RunningJournal>,
    standing: watch::Sender<ChainReadiness>,
    /// `None`: the lease never changes.
    leases: Option<watch::Receiver<Lease>>,
    /// `None`: the configuration is fixed, and words are dropped.
    words: Option<mpsc::Sender<(ChainId, Word)>>,
}

impl ChainTask {
    async fn run(mut self) {
        let (wake, clock) = (self.wake.clone(), self.clock.clone());
        let (mut commands, mut orders) = (Vec::new(), Vec::new());
        self.take();
        loop {
            self.flush();
            if self.runner.settle_in_time(|| clock.now()) {
                self.flush();
            }
            let (room, room_for_large) =
                (self.runner.has_room(WriteLine::Small), self.runner.has_room(WriteLine::Large));
            let lines = self.runner.lines();
            let (tick, now) = (self.runner.next_tick(), self.clock.now());
            if self.runner.is_over(now) {
                // Yield: the runtime polls sockets and timers, and other tasks run, so that renewals are sent.
                tokio::task::yield_now().await;
            }
            if self.turn.has_inputs() {
                // Further requests are received only once these inputs are handled. Until then, receive no frames
                // either: they would delay waiting requests.
                self.take();
                continue;
            }
            let pause = tick.map_or(Duration::ZERO, |at| at - now);
            tokio::select! {
                // Each turn takes some of every ready input, so none is starved; a fixed order keeps runs reproducible.
                biased;
                taken = self.orders.recv_many(&mut orders, ORDERS) => if taken == 0 { return },
                taken = self.commands.recv_many(&mut commands, BATCH) => if taken == 0 { return },
                taken = self.reads.recv_many(&mut self.turn.reads, BATCH) => if taken == 0 { return },
                write = self.writes.next(lines, room_for_large), if room => match write {
                    Some((WriteLine::Small, write)) => self.turn.writes.push(write),
                    Some((WriteLine::Large, write)) => self.turn.large_writes.push(write),
                    None => return,
                },
                () = wake.notified() => {}
                lease = renewed(&mut self.leases) => self.turn.lease = Some(lease),
                () = room_for_words(&self.words), if self.runner.has_words() => continue,
                () = tokio::time::sleep(pause), if tick.is_some() => {}
                () = until_said(self.runner.is_between()), if self.runner.is_behind() => {
                    self.runner.settle(|| clock.now());
                    continue;
                }
            }
            if self.runner.waiting() > 1 {
                // Several callers wait. Yield, so that other callers that are about to send may share the next frames.
                tokio::task::yield_now().await;
            }
            orders.drain(..).for_each(|order| self.ordered(order));
            commands.drain(..).for_each(|command| self.command(command));
            self.receive_what_is_ready();
            self.take();
        }
    }

    /// Receives the waiting commands and reads, so that their output shares the next frames.
    fn receive_what_is_ready(&mut self) {
        for _ in 0..BATCH {
            let Ok(command) = self.commands.try_recv() else { break };
            self.command(command);
        }
        self.turn.reads.extend(std::iter::from_fn(|| self.reads.try_recv().ok()).take(BATCH));
    }

    /// Receives the newest lease, the waiting orders, and then the changes of links, since orders add peers.
    fn receive_orders(&mut self) {
        if let Some(leases) = &mut self.leases
            && leases.has_changed().unwrap_or(false)
        {
            self.turn.lease = Some(*leases.borrow_and_update());
        }
        for _ in 0..ORDERS {
            let Ok(order) = self.orders.try_recv() else { break };
            self.ordered(order);
        }
        for peer in self.peers.values_mut() {
            let state = peer.lanes.state();
            if state == peer.seen {
                continue;
            }
            self.turn.links.extend(peer.seen.up.map(LinkChange::Down));
            self.turn.links.extend(state.up.map(LinkChange::Up));
            peer.seen = state;
        }
    }

    fn take(&mut self) {
        self.receive_orders();
        if let Some(journal) = &self.journal {
            let JournalNews { durable, checkpoint, full } = journal.news(self.chain);
            (self.turn.durable, self.turn.checkpoint, self.turn.disk_full) = (durable, checkpoint, full);
        }
        let (writes, clock) = (&mut self.writes, &self.clock);
        self.runner.take(|| clock.now(), &mut self.turn, |line| writes.try_next(line));
        for caller in self.callers.drain(..) {
            // The caller may no longer be waiting.
            drop(caller.send(self.runner.replica().status()));
        }
    }

    fn command(&mut self, command: ChainCommand) {
        match command {
            ChainCommand::Frame { from, frame } => self.turn.frames.push((from, frame)),
            ChainCommand::Status(caller) => self.callers.push(caller),
        }
    }

    fn ordered(&mut self, Ordered { order, lanes }: Ordered) {
        if matches!(order, ChainOrder::Enter { .. } | ChainOrder::Expelled { .. }) {
            self.change_peers(lanes);
        }
        self.turn.orders.push(order);
    }

    /// Sets the peers. Peers that stay keep their lanes; those missing from `lanes` are removed.
    fn change_peers(&mut self, lanes: BTreeMap<MemberId, Lanes>) {
        let gone: Vec<_> = self.peers.keys().filter(|id| !lanes.contains_key(id)).copied().collect();
        let gone = gone.into_iter().filter_map(|id| self.peers.remove(&id)?.seen.up);
        self.turn.links.extend(gone.map(LinkChange::Down));
        for (id, lanes) in lanes {
            let wake = &self.wake;
            self.peers.entry(id).or_insert_with(|| {
                lanes.wake(wake);
                PeerLanes::new(lanes)
            });
        }
    }

    /// Sends replies first. Then sends each peer control frames, updates and snapshots, up to the capacity of its lanes.
    /// A lane wakes the task when it has capacity again. Publishes the readiness and the words last, since no peer should
    /// wait for that.
    fn flush(&mut self) {
        while let Some(output) = self.runner.poll_output() {
            match output {
                RunnerOutput::Reply(responder, reply) => responder.reply(reply),
                RunnerOutput::Event(ReplicaEvent::Halted(why)) => tracing::error!(%why, "this member stopped serving"),
                RunnerOutput::Event(ReplicaEvent::Closed(_)) => {}
                RunnerOutput::Event(ReplicaEvent::Rereplicating(so_far)) => log_rereplication(self.chain, &so_far),
                RunnerOutput::Event(event @ ReplicaEvent::SnapshotBegun { .. }) => tracing::info!(?event, "chain"),
                RunnerOutput::Event(event) => tracing::debug!(?event, "chain"),
            }
        }
        if let Some(journal) = &self.journal {
            journal.put(self.chain, || self.runner.poll_journal(BATCH_BYTES));
        }
        let now = self.clock.now();
        let peers: SmallVec<[MemberId; 8]> = self.runner.peers().collect();
        for id in peers {
            let Some(peer) = self.peers.get(&id) else { continue };
            if let Ok(room) = peer.lanes.control.try_reserve()
                && let Some(frame) = self.runner.poll_control(now, id)
            {
                room.send(frame);
            }
            while let Ok(room) = peer.updates.try_reserve() {
                let Some(frame) = self.runner.poll_updates(now, id, UPDATES_ROOM) else { break };
                room.send(frame);
            }
            while let Ok(room) = peer.snapshots.try_reserve() {
                let Some(frame) = self.runner.poll_snapshot(now, id, UPDATES_ROOM) else { break };
                room.send(frame);
            }
        }
        let now_stands = self.runner.standing();
        self.standing.send_if_modified(|standing| {
            let is_news = standing.open != now_stands.open || standing.halted != now_stands.halted;
            *standing = now_stands;
            is_news
        });
        self.say();
    }

    /// Sends the chain's words to the node, up to the capacity of the queue. Drops them if the configuration is fixed.
    fn say(&mut self) {
        let Some(words) = &self.words else {
            while self.runner.poll_word().is_some() {}
            return;
        };
        while self.runner.has_words()
            && let Ok(room) = words.try_reserve()
            && let Some(word) = self.runner.poll_word()
        {
            room.send((self.chain, word));
        }
    }
}

fn log_rereplication(chain: ChainId, so_far: &Rereplication) {
    let Rereplication { left, by_start, by_read, time } = so_far;
    tracing::info!(
        chain = chain.0,
        unreplicated_records = left,
        start = by_start.done,
        read = by_read.done,
        start_superseded = by_start.superseded,
        read_superseded = by_read.superseded,
        ms = time.as_millis() as u64,
        "re-replication"
    );
}

/// Lets other tasks run, so that the output is sent. With `is_between`, pauses, since another member works on the same
/// update.
async fn until_said(is_between: bool) {
    if is_between {
        tokio::time::sleep(DEFERRAL).await;
    } else {
        tokio::task::yield_now().await;
    }
}

/// Returns when the queue to the node has capacity for another word; never, once the queue is closed.
async fn room_for_words(words: &Option<mpsc::Sender<(ChainId, Word)>>) {
    match words {
        Some(words) if words.reserve().await.is_ok() => {}
        _ => std::future::pending().await,
    }
}

/// Waits for the next lease; never returns if the sender was dropped.
async fn renewed(leases: &mut Option<watch::Receiver<Lease>>) -> Lease {
    if let Some(leases) = leases
        && leases.changed().await.is_ok()
    {
        return *leases.borrow_and_update();
    }
    std::future::pending().await
}
