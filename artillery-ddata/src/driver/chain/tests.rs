//! Requests that arrive while a chain's task is in the middle of a turn, and other tasks that run between the parts of
//! a turn.

use std::{
    pin::pin,
    sync::{Mutex, OnceLock},
    task::{Context, Wake, Waker},
};

use super::*;
use crate::{
    ChainId, ClusterId,
    api::{Query, ReadMode, ReadPath, ReadReply, Reply},
    driver::fake::{config, member},
    replica::ReplicaSettings,
    store::MemoryStore,
};

const MINUTE: Duration = Duration::from_secs(60);

/// The task of a chain with given members and leases.
struct Rig {
    handle: ChainHandle,
    inlets: Inlets,
    leases: watch::Sender<Lease>,
    _words: mpsc::Receiver<(ChainId, Word)>,
}

impl Rig {
    async fn start(members: &[MemberId]) -> Self {
        Self::with(members, ReplicaSettings::default()).await
    }

    async fn with(members: &[MemberId], settings: ReplicaSettings) -> Self {
        let leases = watch::Sender::new(Lease::default());
        let (say, mut words) = mpsc::channel(8);
        let (task, handle, inlets) = task(ChainParts {
            me: members[0],
            chain: ChainId(0),
            clock: NodeClock::default(),
            rule: Rule::Log { leases: leases.subscribe(), words: say },
            settings,
            store: Arc::new(MemoryStore::with_seed(7)),
            queue_bytes: 1 << 20,
            journal: None,
            standing: watch::Sender::new(ChainReadiness::default()),
        });
        tokio::spawn(task.run());
        let upto = LogIndex(1);
        let order = ChainOrder::Enter { config: Arc::new(config(members, 1)), history: ClusterId(1), upto };
        assert!(inlets.orders.send(Ordered { order, lanes: BTreeMap::new() }).await.is_ok());
        assert_eq!(words.recv().await, Some((ChainId(0), Word::ActsBy(upto))));
        Self { handle, inlets, leases, _words: words }
    }

    async fn lease(&self, lease: Lease) {
        self.leases.send_replace(lease);
        while self.handle.gate.lease_until() != lease.until {
            tokio::task::yield_now().await;
        }
    }

    /// Has the chain's task call the function after it has processed a turn's inputs, before it sends output and
    /// receives further requests.
    async fn in_the_middle_of_a_turn<T: Send + Sync + 'static>(
        &self,
        meanwhile: impl Fn() -> T + Send + Sync + 'static,
    ) -> T {
        let (asker, answer) = oneshot::channel();
        let called = Arc::new(Meanwhile { call: meanwhile, result: Mutex::new(None) });
        let waker = Waker::from(called.clone());
        let mut answer = pin!(answer);
        assert!(answer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(self.inlets.commands.send(ChainCommand::Status(asker)).await.is_ok());
        loop {
            tokio::task::yield_now().await;
            if let Some(result) = called.result.lock().unwrap().take() {
                return result;
            }
        }
    }
}

struct Meanwhile<F, T> {
    call: F,
    result: Mutex<Option<T>>,
}

impl<T: Send, F: Fn() -> T + Send + Sync> Wake for Meanwhile<F, T> {
    fn wake(self: Arc<Self>) {
        *self.result.lock().unwrap() = Some((self.call)());
    }
}

/// Passes a read to the chain's task. The queue must have capacity.
fn ask(handle: &ChainHandle, mode: ReadMode) -> oneshot::Receiver<Reply> {
    let (caller, reply) = oneshot::channel();
    let (deadline, caller) = (artillery_core::internal::clock::now() + MINUTE, Responder::Caller(caller));
    let request = ReadRequest { query: Query::Key("k".into()), mode, floor: None, history: None, deadline, caller };
    assert!(handle.try_read(request).is_none(), "there is no space");
    reply
}

/// The reply to a read that arrives in the middle of a turn, no earlier than `from`.
async fn asked_late(rig: &Rig, mode: ReadMode, from: Timestamp) -> oneshot::Receiver<Reply> {
    let handle = rig.handle.clone();
    let ask_late = move || {
        while artillery_core::internal::clock::now() < from {
            std::thread::yield_now();
        }
        ask(&handle, mode)
    };
    rig.in_the_middle_of_a_turn(ask_late).await
}

/// The path of a strong read that arrives in the middle of a turn, after the lease has ended.
async fn served_after_the_lease() -> ReadPath {
    let rig = Rig::start(&[member("alone")]).await;
    let now = artillery_core::internal::clock::now();
    let until = now + Duration::from_millis(100);
    rig.lease(Lease { until, asked: now, stretch: 0 }).await;
    match asked_late(&rig, ReadMode::Strong, until).await.await.unwrap() {
        Reply::Read(ReadReply { way, .. }) => way,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_strong_read_after_the_lease_ended_is_not_served_by_it() {
    assert_eq!(served_after_the_lease().await, ReadPath::Chain);
}

#[tokio::test]
async fn a_bounded_read_beyond_its_age_waits_for_the_tail() {
    let rig = Rig::start(&[member("head"), member("tail")]).await;
    let (now, age) = (artillery_core::internal::clock::now(), Duration::from_millis(100));
    // The lease has ended already, so that only the age decides.
    rig.lease(Lease { until: now, asked: now, stretch: 0 }).await;
    let mut reply = asked_late(&rig, ReadMode::Bounded { versions: 0, age }, now + age * 2).await;
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    assert!(reply.try_recv().is_err(), "the read was answered without the tail");
}

/// Sends another read as soon as it has a reply.
struct Reader {
    handle: ChainHandle,
    leases: watch::Sender<Lease>,
    reply: Mutex<Reading>,
    /// The number of reads after which the chain had taken the lease; `None`: it never did.
    taken: OnceLock<Option<usize>>,
}

#[derive(Default)]
struct Reading {
    reads: usize,
    reply: Option<oneshot::Receiver<Reply>>,
}

const LEASE: Lease = Lease { until: Timestamp::MAX, asked: Timestamp::ZERO, stretch: 0 };
/// The lease is sent at this read.
const BEFORE: usize = 10;
/// The test ends after this number of reads.
const IN_ALL: usize = 5_000;

impl Wake for Reader {
    fn wake(self: Arc<Self>) {
        let mut reading = self.reply.lock().unwrap();
        reading.reads += 1;
        if reading.reads == BEFORE {
            self.leases.send_replace(LEASE);
        }
        let is_taken = self.handle.gate.lease_until() == LEASE.until;
        if is_taken || reading.reads == IN_ALL {
            let _ = self.taken.set(is_taken.then_some(reading.reads));
            return;
        }
        let mut reply = ask(&self.handle, ReadMode::Eventual);
        assert!(pin!(&mut reply).poll(&mut Context::from_waker(&Waker::from(self.clone()))).is_pending());
        reading.reply = Some(reply);
    }
}

/// The number of reads after which the chain takes the lease, while another read always waits. `None`: it never took
/// the lease.
async fn reads_until_the_lease_is_taken() -> Option<usize> {
    let rig = Rig::start(&[member("alone")]).await;
    let reader = Arc::new(Reader {
        handle: rig.handle.clone(),
        leases: rig.leases.clone(),
        reply: Mutex::default(),
        taken: OnceLock::new(),
    });
    Waker::from(reader.clone()).wake();
    loop {
        tokio::task::yield_now().await;
        if let Some(&taken) = reader.taken.get() {
            return taken;
        }
    }
}

#[tokio::test]
async fn a_chain_that_always_has_reads_takes_its_lease() {
    assert_eq!(reads_until_the_lease_is_taken().await, Some(BEFORE + 1));
}

/// The number of times another task runs until the last of many simultaneous requests has its reply.
async fn runs_beside(turn: Duration) -> usize {
    let rig = Rig::with(&[member("alone")], ReplicaSettings { turn, ..ReplicaSettings::default() }).await;
    rig.lease(LEASE).await;
    let mut replies: Vec<_> = (0..REQUESTS_AT_ONCE).map(|_| ask(&rig.handle, ReadMode::Eventual)).collect();
    let mut runs = 0;
    while let Err(oneshot::error::TryRecvError::Empty) = replies[REQUESTS_AT_ONCE - 1].try_recv() {
        runs += 1;
        tokio::task::yield_now().await;
    }
    runs
}

const REQUESTS_AT_ONCE: usize = 50;

#[tokio::test]
async fn other_tasks_run_between_the_parts_of_a_long_turn() {
    let ran = runs_beside(Duration::ZERO).await;
    assert!(ran >= REQUESTS_AT_ONCE - 1, "they ran {ran} times");
    let ran = runs_beside(Duration::MAX).await;
    assert!(ran < REQUESTS_AT_ONCE / 2, "they ran {ran} times during a turn that never ends");
}
