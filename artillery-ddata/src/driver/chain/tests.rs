//! What decides about requests that come while the task of a chain is at work.

use std::{
    pin::pin,
    sync::{Mutex, OnceLock},
    task::{Context, Wake, Waker},
};

use super::*;
use crate::{
    ChainId, Sequence,
    driver::fake::{config, member},
    replica::{Changes, Query, Read, ReadMode, Settings, Watch, Way, Write},
    store::MemoryStore,
};

const MINUTE: Duration = Duration::from_secs(60);

/// A history, and the one that a recovery begins.
const FIRST: ClusterId = ClusterId(1);
const RECOVERED: ClusterId = ClusterId(2);

/// The task of a chain that has these members, and acts by leases.
struct Rig {
    handle: ChainHandle,
    commands: mpsc::Sender<Command>,
    leases: watch::Sender<control::Lease>,
    _wishes: mpsc::Receiver<control::Command>,
}

impl Rig {
    async fn start(members: &[MemberId]) -> Self {
        Self::without(None, members).await
    }

    /// One in which a guard is left out.
    async fn without(mutant: Option<Mutant>, members: &[MemberId]) -> Self {
        let leases = watch::Sender::new(control::Lease::default());
        let (wishes, _wishes) = mpsc::channel(8);
        let (mut task, handle, commands) = task(Parts {
            me: members[0],
            chain: ChainId(0),
            rule: Rule::Log { leases: leases.subscribe(), wishes },
            settings: Settings::default(),
            store: Arc::new(MemoryStore::with_seed(7)),
            queue_bytes: 1 << 20,
            standing: watch::Sender::new(Standing::default()),
        });
        task.mutant = mutant;
        tokio::spawn(task.run());
        let rig = Self { handle, commands, leases, _wishes };
        rig.enter(config(members, 1), FIRST).await;
        rig
    }

    async fn enter(&self, config: ChainConfig, history: ClusterId) {
        let (done, entered) = oneshot::channel();
        let command = Command::Enter { config: Arc::new(config), history, lanes: BTreeMap::new(), done };
        assert!(self.commands.send(command).await.is_ok());
        entered.await.unwrap();
    }

    async fn put(&self) -> Reply {
        let (caller, reply) = oneshot::channel();
        let write = Write::Put { key: "k".into(), value: "v".into() };
        let deadline = clock::now() + MINUTE;
        self.handle.write(WriteRequest { request: None, write, deadline, responder: Responder::Caller(caller) }).await;
        reply.await.unwrap()
    }

    async fn lease(&self, lease: control::Lease) {
        self.leases.send_replace(lease);
        while self.handle.gate.lease_until() != lease.until {
            tokio::task::yield_now().await;
        }
    }

    /// Has the task of the chain call `meanwhile` itself, in the middle of a turn.
    async fn in_the_middle_of_a_turn<T: Send + Sync + 'static>(
        &self,
        meanwhile: impl Fn() -> T + Send + Sync + 'static,
    ) -> T {
        let (asker, answer) = oneshot::channel();
        let called = Arc::new(Meanwhile { call: meanwhile, result: Mutex::new(None) });
        let waker = Waker::from(called.clone());
        let mut answer = pin!(answer);
        assert!(answer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(self.commands.send(Command::Status(asker)).await.is_ok());
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

/// Hands in a read, for which there is room.
fn ask(handle: &ChainHandle, mode: ReadMode) -> oneshot::Receiver<Reply> {
    ask_in(None, handle, mode, Query::Key("k".into()), None)
}

/// The same for one that belongs to a history.
fn ask_in(
    history: Option<ClusterId>,
    handle: &ChainHandle,
    mode: ReadMode,
    query: Query,
    floor: Option<Sequence>,
) -> oneshot::Receiver<Reply> {
    let (caller, reply) = oneshot::channel();
    let deadline = clock::now() + MINUTE;
    let request = ReadRequest { query, mode, floor, history, deadline, responder: Responder::Caller(caller) };
    assert!(handle.try_read(request).is_none(), "there is room");
    reply
}

/// The reply to a read that comes in the middle of a turn, `from` this moment on.
async fn asked_late(rig: &Rig, mode: ReadMode, from: Timestamp) -> oneshot::Receiver<Reply> {
    let handle = rig.handle.clone();
    let ask_late = move || {
        while clock::now() < from {
            std::thread::yield_now();
        }
        ask(&handle, mode)
    };
    rig.in_the_middle_of_a_turn(ask_late).await
}

/// How a strong read is served that comes in the middle of a turn, when the lease is over.
async fn served_after_the_lease(mutant: Option<Mutant>) -> Way {
    let rig = Rig::without(mutant, &[member("alone")]).await;
    let now = clock::now();
    let until = now + Duration::from_millis(100);
    rig.lease(control::Lease { until, asked: now }).await;
    match asked_late(&rig, ReadMode::Strong, until).await.await.unwrap() {
        Reply::Read(Read { way, .. }) => way,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_strong_read_that_comes_after_the_end_of_the_lease_is_not_served_by_it() {
    assert_eq!(served_after_the_lease(None).await, Way::Chain);
    assert_eq!(served_after_the_lease(Some(Mutant::KeepReading)).await, Way::Local);
}

#[tokio::test]
async fn a_bounded_read_that_comes_when_the_member_has_heard_nothing_for_longer_is_not_served_as_it_is() {
    let rig = Rig::start(&[member("head"), member("tail")]).await;
    let (now, age) = (clock::now(), Duration::from_millis(100));
    // The lease is over already, so that only the age decides.
    rig.lease(control::Lease { until: now, asked: now }).await;
    let mut reply = asked_late(&rig, ReadMode::Bounded { versions: 0, age }, now + age * 2).await;
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    assert!(reply.try_recv().is_err(), "it waits for the tail");
}

/// Asks again as soon as it has a reply.
struct Reader {
    handle: ChainHandle,
    leases: watch::Sender<control::Lease>,
    reply: Mutex<Reading>,
    /// Told after how many reads the chain acted by the lease.
    taken: OnceLock<Option<usize>>,
}

#[derive(Default)]
struct Reading {
    reads: usize,
    reply: Option<oneshot::Receiver<Reply>>,
}

const LEASE: control::Lease = control::Lease { until: Timestamp::MAX, asked: Timestamp::ZERO };
/// Reads before the lease comes, and in all.
const BEFORE: usize = 10;
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

/// After how many reads the lease is taken, if it is, when there always is another one.
async fn reads_until_the_lease_is_taken(mutant: Option<Mutant>) -> Option<usize> {
    let rig = Rig::without(mutant, &[member("alone")]).await;
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
async fn a_chain_that_always_has_a_read_takes_its_lease() {
    assert_eq!(reads_until_the_lease_is_taken(None).await, Some(BEFORE + 1));
    assert_eq!(reads_until_the_lease_is_taken(Some(Mutant::LeaseLast)).await, None);
}

/// Goes on under a new history with one write, and comes to the fourth.
async fn recover_and_write(rig: &Rig) {
    rig.enter(config(&[member("alone")], 1 << 20), RECOVERED).await;
    for _ in 0..3 {
        rig.put().await;
    }
}

/// What a watch hears that waits behind the third change of one history, of which the next history has only the first.
async fn heard_of_the_fourth_change(mutant: Option<Mutant>) -> Reply {
    let rig = Rig::without(mutant, &[member("alone")]).await;
    rig.put().await;
    let query = Query::Changes(Watch { prefix: "".into(), after: Some(Sequence(3)) });
    let heard = ask_in(Some(FIRST), &rig.handle, ReadMode::Eventual, query, None);
    recover_and_write(&rig).await;
    heard.await.unwrap()
}

#[tokio::test]
async fn a_watch_that_waits_while_another_history_begins_is_refused() {
    assert_eq!(heard_of_the_fourth_change(None).await, Reply::Refused(Refusal::OtherHistory));
    let passed_over = heard_of_the_fourth_change(Some(Mutant::MixHistories)).await;
    assert!(matches!(&passed_over, Reply::Changes(Changes { records, .. }) if records.len() == 1), "{passed_over:?}");
}

/// What a session reads that has seen the fourth change of one history, when its member has gone on with another.
async fn read_behind_the_fourth_change(mutant: Option<Mutant>, before: bool) -> Reply {
    let rig = Rig::without(mutant, &[member("alone")]).await;
    rig.put().await;
    let ask = || ask_in(Some(FIRST), &rig.handle, ReadMode::Eventual, Query::Key("k".into()), Some(Sequence(4)));
    let asked = before.then(ask);
    recover_and_write(&rig).await;
    asked.unwrap_or_else(ask).await.unwrap()
}

#[tokio::test]
async fn a_session_of_another_history_is_refused() {
    for before in [false, true] {
        let reply = read_behind_the_fourth_change(None, before).await;
        assert_eq!(reply, Reply::Refused(Refusal::OtherHistory), "asked before the recovery: {before}");
        let shown = read_behind_the_fourth_change(Some(Mutant::MixHistories), before).await;
        assert!(matches!(shown, Reply::Read(_)), "{shown:?}");
    }
}
