//! A handle to a chain for the rest of the node: local reads, and access to the chain's task.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use artillery_core::internal::clock::NodeClock;
use artillery_proto::runner::{self, WriteLine};
use bytes::Bytes;
use tokio::{
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot,
    },
    time::Instant,
};

use super::answering::Answering;
use crate::{
    ChainId, Sequence,
    api::{Refusal, Reply, Write},
    budget::{self, Budget, Share},
    replica::{Gate, NotLocal, ReplicaSettings},
    store::{Held, Store},
};

/// The destination of the reply to one request. Replying never waits, since the creator of a responder reserves
/// capacity for the reply.
pub(crate) enum Responder {
    Caller(oneshot::Sender<Reply>),
    Stream(Answering),
}

impl Responder {
    pub(crate) fn reply(self, reply: Reply) {
        match self {
            // If the receiver is dropped, the caller no longer waits: drop the reply.
            Self::Caller(caller) => drop(caller.send(reply)),
            Self::Stream(answering) => answering.reply(reply),
        }
    }
}

pub(crate) type ReadRequest = runner::ReadRequest<Responder>;

pub(crate) type WriteRequest = runner::WriteRequest<Responder>;

/// A write that waits in line. If it is dropped before it is passed to the chain's task, nothing was applied.
pub(crate) type InLine = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A chain that this node is a member of. Clones refer to the same chain.
#[derive(Clone)]
pub(crate) struct ChainHandle {
    pub(crate) chain: ChainId,
    pub(crate) clock: NodeClock,
    pub(crate) gate: Arc<Gate>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) reads: RequestQueue<ReadRequest>,
    pub(crate) writes: Lines,
}

#[derive(Clone)]
pub(crate) struct Lines {
    pub(crate) small: RequestQueue<WriteRequest>,
    pub(crate) large: RequestQueue<WriteRequest>,
    /// Determines whether a write is small or large.
    pub(crate) settings: Arc<ReplicaSettings>,
}

impl Lines {
    /// Two queues, each of at most `requests` requests and `bytes` bytes.
    pub(crate) fn new(requests: usize, bytes: usize, settings: &ReplicaSettings) -> (Self, WriteQueues) {
        let (small, small_queue) = RequestQueue::new(requests, bytes);
        let (large, large_queue) = RequestQueue::new(requests, bytes);
        (
            Self { small, large, settings: Arc::new(settings.clone()) },
            WriteQueues { small: small_queue, large: large_queue },
        )
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.small.waiting_bytes() + self.large.waiting_bytes()
    }
}

pub(crate) struct WriteQueues {
    pub(crate) small: mpsc::Receiver<Queued<WriteRequest>>,
    pub(crate) large: mpsc::Receiver<Queued<WriteRequest>>,
}

impl WriteQueues {
    /// The next write: from `lines[0]` if it has one, otherwise from the other line. The large line is used only if
    /// `room_for_large`. `None` once all senders are dropped. Cancel-safe.
    pub(crate) async fn next(
        &mut self,
        lines: [WriteLine; 2],
        room_for_large: bool,
    ) -> Option<(WriteLine, Queued<WriteRequest>)> {
        let (small, large) = (&mut self.small, &mut self.large);
        let small = async { Some((WriteLine::Small, small.recv().await?)) };
        let large = async {
            if room_for_large { Some((WriteLine::Large, large.recv().await?)) } else { std::future::pending().await }
        };
        tokio::pin!(small, large);
        if lines[0] == WriteLine::Small {
            tokio::select! { biased; write = small => write, write = large => write }
        } else {
            tokio::select! { biased; write = large => write, write = small => write }
        }
    }

    /// The next write of a line, if one is queued.
    pub(crate) fn try_next(&mut self, line: WriteLine) -> Option<Queued<WriteRequest>> {
        match line {
            WriteLine::Small => self.small.try_recv().ok(),
            WriteLine::Large => self.large.try_recv().ok(),
        }
    }
}

/// Passes one kind of request to a chain's task, bounded by number and by bytes.
pub(crate) struct RequestQueue<T> {
    sender: mpsc::Sender<Queued<T>>,
    room: Budget,
}

/// A request that takes a share of its queue's bytes.
pub(crate) trait SizedRequest {
    /// Its size in the queue, in bytes.
    fn bytes(&self) -> usize;
}

impl SizedRequest for ReadRequest {
    fn bytes(&self) -> usize {
        budget::of_query(&self.query)
    }
}

impl SizedRequest for WriteRequest {
    fn bytes(&self) -> usize {
        budget::of_write(&self.write)
    }
}

pub(crate) struct Queued<T> {
    pub(crate) request: T,
    _share: Share,
}

impl From<Queued<ReadRequest>> for ReadRequest {
    fn from(queued: Queued<ReadRequest>) -> Self {
        queued.request
    }
}

impl From<Queued<WriteRequest>> for WriteRequest {
    fn from(queued: Queued<WriteRequest>) -> Self {
        queued.request
    }
}

impl<T> Clone for RequestQueue<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), room: self.room.clone() }
    }
}

impl<T: SizedRequest> RequestQueue<T> {
    pub(crate) fn new(requests: usize, bytes: usize) -> (Self, mpsc::Receiver<Queued<T>>) {
        let (sender, receiver) = mpsc::channel(requests);
        (Self { sender, room: Budget::new(bytes) }, receiver)
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.room.taken()
    }

    /// Queues the request if there is capacity now and no earlier request waits. Otherwise, and if the receiver was
    /// dropped, returns it.
    fn try_send(&self, request: T) -> Result<(), T> {
        let Some(_share) = self.room.try_take(request.bytes()) else { return Err(request) };
        self.sender.try_send(Queued { request, _share }).map_err(|error| match error {
            TrySendError::Full(queued) | TrySendError::Closed(queued) => queued.request,
        })
    }

    /// Waits for capacity, then queues the request. Returns it if the receiver was dropped. A cancelled call has queued
    /// nothing.
    async fn send(&self, request: T) -> Result<(), T> {
        let _share = self.room.take(request.bytes()).await;
        self.sender.send(Queued { request, _share }).await.map_err(|error| error.0.request)
    }
}

impl ChainHandle {
    /// A local clean read: no task, no allocation, and no lock except that of its key.
    pub(crate) fn local(&self, key: &[u8]) -> Result<Option<Held>, NotLocal> {
        self.gate.read(&*self.store, key, || self.clock.now())
    }

    /// How long a key that was read here will stay; `None`: it doesn't expire.
    pub(crate) fn expires_in(&self, held: &Held) -> Option<Duration> {
        Some(held.expiry()?.left(self.chain_time()))
    }

    pub(crate) fn chain_time(&self) -> u64 {
        self.gate.chain_time(self.clock.now())
    }

    /// A deadline by the chain's clock.
    pub(crate) fn deadline(&self, deadline: Instant) -> artillery_core::Timestamp {
        self.clock.now() + deadline.saturating_duration_since(Instant::now())
    }

    /// Passes a read to the chain's task if there is capacity now. Otherwise, and if the task has ended, returns the
    /// request.
    pub(crate) fn try_read(&self, request: ReadRequest) -> Option<ReadRequest> {
        self.reads.try_send(request).err()
    }

    /// Passes a read to the chain's task; waits while the queue is full. The caller must bound the wait. A cancelled
    /// call has queued nothing. If the task has ended, the read is refused.
    pub(crate) async fn read(&self, request: ReadRequest) {
        if let Err(request) = self.reads.send(request).await {
            request.caller.reply(Reply::Refused(Refusal::NoChain));
        }
    }

    /// Passes a write to the chain's task; waits while its line is full. Otherwise like [`read`](Self::read): a
    /// cancelled call has applied nothing.
    pub(crate) async fn write(&self, request: WriteRequest) {
        if let Err(request) = self.line(&request.write).send(request).await {
            request.caller.reply(Reply::Refused(Refusal::NoChain));
        }
    }

    /// Like [`write`](Self::write) if there is capacity now. Otherwise, and if the task has ended, returns the request.
    pub(crate) fn try_write(&self, request: WriteRequest) -> Option<WriteRequest> {
        self.line(&request.write).try_send(request).err()
    }

    fn line(&self, write: &Write) -> &RequestQueue<WriteRequest> {
        let value =
            |key: &Bytes| self.store.read(self.chain, key, Sequence::MAX).ok().flatten().and_then(|held| held.value);
        match WriteLine::of(write, &self.writes.settings, |key| value(key).map_or(0, |value| value.len())) {
            WriteLine::Small => &self.writes.small,
            WriteLine::Large => &self.writes.large,
        }
    }

    /// Queues a write in its line, behind the writes that wait already. The caller must await the returned future.
    /// `None` if the write was passed to the chain's task at once.
    pub(crate) async fn line_up(&self, request: WriteRequest) -> Option<InLine> {
        let handle = self.clone();
        let mut waiting: InLine = Box::pin(async move { handle.write(request).await });
        // Poll once now: a future takes its place in line at its first poll.
        let ready = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_ready())).await;
        (!ready).then_some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use artillery_core::Timestamp;
    use tokio::time::timeout;

    use super::*;
    use crate::{
        Version,
        store::{MemoryStore, StoreBatch, StoreOp},
    };

    const ROOM: usize = 128 << 10;

    fn write(key: &'static str, bytes: usize) -> WriteRequest {
        let (answer, _) = oneshot::channel();
        let write = Write::put(key.into(), vec![0; bytes].into());
        WriteRequest {
            request: None,
            history: None,
            write,
            deadline: Timestamp::MAX,
            caller: Responder::Caller(answer),
        }
    }

    /// A chain with a window so large that a write of [`ROOM`] bytes is small.
    fn chain() -> (ChainHandle, WriteQueues) {
        let chain = ChainId(0);
        let (reads, _) = RequestQueue::new(16, ROOM);
        let (writes, receiver) = Lines::new(16, ROOM, &ReplicaSettings::default());
        let gate = Arc::new(Gate::new(chain));
        let (clock, store) = (NodeClock::default(), Arc::new(MemoryStore::with_seed(1)));
        (ChainHandle { chain, clock, gate, store, reads, writes }, receiver)
    }

    async fn next(queue: &mut mpsc::Receiver<Queued<WriteRequest>>) -> String {
        let queued = timeout(Duration::from_secs(30), queue.recv()).await.expect("no write arrives").unwrap();
        queued.request.write.keys().map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    #[tokio::test]
    async fn writes_of_any_size_are_served_in_order() {
        let (handle, queues) = chain();
        let mut queue = queues.small;
        assert!(handle.try_write(write("full", ROOM)).is_none());
        let mut waiting = Vec::new();
        for (key, bytes) in [("1", 10), ("2", 10), ("large 3", ROOM / 2), ("4", 10), ("large 5", ROOM / 2), ("6", 10)] {
            let back = handle.try_write(write(key, bytes)).expect("there is no capacity");
            waiting.push(handle.line_up(back).await.expect("there is still no capacity"));
        }
        // The order in which the tasks start must not matter.
        waiting.into_iter().rev().for_each(|waiting| drop(tokio::spawn(waiting)));
        tokio::task::yield_now().await;
        let mut order = Vec::new();
        while order.len() < 7 {
            order.push(next(&mut queue).await);
            tokio::task::yield_now().await;
            // Capacity that is too small for the first in line must not go to a later write.
            if order.len() < 4 {
                assert!(handle.try_write(write("jumps the queue", 1)).is_some(), "after {order:?}");
            }
        }
        assert_eq!(order, ["full", "1", "2", "large 3", "4", "large 5", "6"]);
    }

    #[tokio::test]
    async fn a_small_write_waits_behind_no_large_one() {
        let (handle, mut queues) = chain();
        let large = ReplicaSettings::default().window / 16;
        let put = |value: usize| {
            handle.store.apply(&StoreBatch {
                chain: ChainId(0),
                keep_from: Sequence::ZERO,
                ops: [StoreOp::Put {
                    key: "long".into(),
                    held: Held::new(Version::new(1, 1), Some(vec![0; value].into())),
                }]
                .into_iter()
                .collect(),
            })
        };
        put(large).unwrap();
        let append = |key: &'static str| WriteRequest {
            write: Write::append(key.into(), vec![0; ROOM].into()),
            ..write(key, 0)
        };
        assert!(handle.try_write(append("long")).is_none());
        assert!(handle.try_write(append("long")).is_some(), "the large line is full");
        assert!(handle.try_write(append("short")).is_none(), "the small line isn't full");
        assert_eq!(next(&mut queues.large).await, "long");
        assert_eq!(next(&mut queues.small).await, "short");
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_nothing_behind() {
        let (handle, queues) = chain();
        let mut queue = queues.small;
        assert!(handle.try_write(write("full", ROOM)).is_none());
        let given_up = handle.line_up(write("large", ROOM)).await.unwrap();
        let waiting = tokio::spawn(handle.line_up(write("small", 10)).await.unwrap());
        drop(given_up);
        assert_eq!(next(&mut queue).await, "full");
        assert_eq!(next(&mut queue).await, "small");
        waiting.await.unwrap();
        assert!(handle.line_up(write("room again", 10)).await.is_none());
    }
}
