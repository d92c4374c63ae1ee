//! Observes every handle of a test's cluster: records calls and answers, and drops answers.

pub(crate) mod book;

use std::{
    collections::{BTreeSet, VecDeque},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use artillery_core::internal::{clock, simulated::Network};
use bytes::Bytes;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout_at},
};

use self::book::{Ask, Book, BookLine};
use super::channel::Question;
use crate::{
    ChainId, Error, NodeId, RequestId, Sequence,
    api::{Query, ReadMode, ReadPath, ReadReply, Reply, Write},
    message::request::Operation,
    store::Held,
};

/// The fate of a write whose caller gets no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fate {
    /// The write was applied, and its answer was lost.
    Applied,
    /// The write isn't applied yet, since its request was delayed. The request arrives later, and has no effect if its
    /// request id is settled before.
    Late,
    /// The write is never applied: the request was lost.
    Lost,
}

/// The most calls by a handle of an ended process at one time. A program without an endless loop makes far fewer.
const MAX_LATE_CALLS: u32 = 100_000;

/// The approximate maximum delay of a late or duplicated request.
const MAX_LATENESS: Duration = Duration::from_secs(2);

/// Sends a request, until a deadline, and drops the answer.
pub(crate) type Courier = Arc<dyn Fn(Question, Instant) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

pub(crate) struct Witness {
    state: Mutex<WitnessState>,
    network: Network,
    /// Notified when a node resumes, or when a late request was delivered.
    changed: Notify,
    courier: OnceLock<Courier>,
}

#[derive(Debug, Default)]
struct WitnessState {
    book: Book,
    fates: VecDeque<Fate>,
    /// Probabilities that a write gets a [`Fate`], and that its request is duplicated.
    losses: f64,
    doubles: f64,
    paused: BTreeSet<NodeId>,
    /// The number of requests that the courier still has to deliver.
    to_bring: usize,
}

impl Witness {
    pub(crate) fn new(network: Network) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), network, changed: Notify::new(), courier: OnceLock::new() })
    }

    fn lock(&self) -> MutexGuard<'_, WitnessState> {
        // No code that holds the lock can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn with_book<T>(&self, f: impl FnOnce(&mut Book) -> T) -> T {
        f(&mut self.lock().book)
    }

    pub(crate) fn employ(&self, courier: Courier) {
        // Set once, when the cluster is created.
        let _ = self.courier.set(courier);
    }

    pub(crate) fn next_fate(&self, fate: Fate) {
        self.lock().fates.push_back(fate);
    }

    pub(crate) fn set_chances(&self, losses: f64, doubles: f64) {
        let mut state = self.lock();
        (state.losses, state.doubles) = (losses, doubles);
        if losses == 0.0 {
            state.fates.clear();
        }
    }

    pub(crate) fn pause(&self, node: NodeId) {
        self.lock().paused.insert(node);
    }

    pub(crate) fn resume(&self, node: NodeId) {
        self.lock().paused.remove(&node);
        self.changed.notify_waiters();
    }

    pub(crate) fn resume_all(&self) {
        self.lock().paused.clear();
        self.changed.notify_waiters();
    }

    pub(crate) async fn all_brought(&self) {
        self.until(|state| state.to_bring == 0).await;
    }

    /// Waits until `wanted` holds. Waiters are woken in order, unlike those of a `watch`, so that a run is
    /// reproducible.
    async fn until(&self, wanted: impl Fn(&WitnessState) -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on, no notification is missed.
            changed.as_mut().enable();
            if wanted(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    /// The fate of a write that is about to be sent, if it is late or lost. `Applied` stays queued until the answer
    /// arrives.
    fn fate(&self) -> Option<Fate> {
        let mut state = self.lock();
        self.draw(&mut state);
        match state.fates.front() {
            Some(Fate::Applied) | None => None,
            Some(_) => state.fates.pop_front(),
        }
    }

    /// Whether a write that is about to be sent will be late or lost. Its fate stays queued.
    fn holds_up(&self) -> bool {
        let mut state = self.lock();
        self.draw(&mut state);
        !matches!(state.fates.front(), Some(Fate::Applied) | None)
    }

    fn draw(&self, state: &mut WitnessState) {
        if state.fates.is_empty() && state.losses > 0.0 && self.network.chance() < state.losses {
            let fate = match (self.network.chance() * 3.0) as u32 {
                0 => Fate::Applied,
                1 => Fate::Late,
                _ => Fate::Lost,
            };
            state.fates.push_back(fate);
        }
    }

    fn takes_answer(&self) -> bool {
        let mut state = self.lock();
        let takes = state.fates.front() == Some(&Fate::Applied);
        if takes {
            state.fates.pop_front();
        }
        takes
    }

    fn doubles(&self) -> bool {
        let chance = self.lock().doubles;
        chance > 0.0 && self.network.chance() < chance
    }

    fn bring(self: &Arc<Self>, question: Question, at: Instant) {
        let Some(courier) = self.courier.get().cloned() else { return };
        self.lock().to_bring += 1;
        let witness = self.clone();
        tokio::spawn(async move {
            sleep_until(at).await;
            courier(question, Instant::now() + Duration::from_secs(5)).await;
            witness.lock().to_bring -= 1;
            witness.changed.notify_waiters();
        });
    }

    fn moment_up_to(&self, longest: Duration) -> Duration {
        Duration::from_millis(1) + longest.mul_f64(self.network.chance())
    }
}

/// Observes the calls of one handle and its clones.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    witness: Arc<Witness>,
    client: u32,
    /// The node whose process contains the handle.
    home: Option<NodeId>,
    /// The time of the last call after that process had ended, and the number of such calls at that time.
    late_calls: Arc<Mutex<Option<(Instant, u32)>>>,
}

impl Observer {
    pub(crate) fn new(witness: Arc<Witness>, client: u32, home: Option<NodeId>) -> Self {
        Self { witness, client, home, late_calls: Arc::default() }
    }

    /// Counts a call by a handle of an ended process.
    ///
    /// # Panics
    /// After [`MAX_LATE_CALLS`] at one time. Such calls take no time, so a loop of them would never end.
    pub(crate) fn called_after_end(&self) {
        let now = Instant::now();
        let mut late_calls = self.late_calls.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = late_calls.filter(|(at, _)| *at == now).map_or(0, |(_, calls)| calls) + 1;
        *late_calls = Some((now, calls));
        assert!(
            calls <= MAX_LATE_CALLS,
            "a handle of a stopped node was called {MAX_LATE_CALLS} times at one time: return from the loop when a call fails with \
             NotApplied::Stopped, also as the reason of an unknown outcome (Unknown::NotMade)"
        );
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.home.is_some_and(|home| self.witness.lock().paused.contains(&home))
    }

    pub(crate) fn begin(&self, ask: Ask, id: Option<RequestId>) -> ObservedCall {
        let line = self.witness.with_book(|book| book.begin(self.client, clock::now(), ask, id));
        ObservedCall { witness: self.witness.clone(), line }
    }

    pub(crate) fn begin_local(&self, key: &[u8]) -> LocalRead {
        LocalRead { observer: self.clone(), key: Bytes::copy_from_slice(key) }
    }

    /// Called before an attempt. Returns whether the attempt ends unanswered, which takes until its deadline.
    pub(crate) async fn before(&self, question: &Question, deadline: Instant) -> bool {
        if self.is_paused() {
            let is_awake = |state: &WitnessState| self.home.is_none_or(|home| !state.paused.contains(&home));
            let _ = timeout_at(deadline, self.witness.until(is_awake)).await;
        }
        if !is_numbered(question) {
            return false;
        }
        let Some(fate) = self.witness.fate() else { return false };
        if fate == Fate::Late {
            self.witness.bring(question.clone(), deadline + self.witness.moment_up_to(MAX_LATENESS));
        }
        sleep_until(deadline).await;
        true
    }

    /// Called before a write that is polled in place. Returns whether the write must wait or is never sent.
    pub(crate) fn holds_up(&self) -> bool {
        self.is_paused() || self.witness.holds_up()
    }

    /// Called after an answer to an attempt. Returns whether the answer is lost, which takes the rest of the call's
    /// time.
    pub(crate) async fn after(&self, question: &Question, reply: &Reply, deadline: Instant) -> bool {
        let lost = self.takes_away(question, reply);
        if lost {
            sleep_until(deadline).await;
        }
        lost
    }

    /// Like [`after`](Self::after), for a call that is polled in place and waits by itself.
    pub(crate) fn takes_away(&self, question: &Question, reply: &Reply) -> bool {
        if !is_numbered(question) || !matches!(reply, Reply::Committed(_) | Reply::Conflict { .. }) {
            return false;
        }
        if self.witness.doubles() {
            self.witness.bring(question.clone(), Instant::now() + self.witness.moment_up_to(MAX_LATENESS));
        }
        self.witness.takes_answer()
    }
}

/// Whether the request is a write with a request id. Settling an id is not treated as a write.
fn is_numbered(question: &Question) -> bool {
    match &question.operation {
        Operation::Write { request: Some(_), write, .. } => *write != Write::Resolve,
        _ => false,
    }
}

/// A call in progress. If it is dropped, its outcome stays unknown.
#[derive(Debug)]
pub(crate) struct ObservedCall {
    witness: Arc<Witness>,
    line: BookLine,
}

impl ObservedCall {
    pub(crate) fn end(self, chain: ChainId, outcome: Result<&Reply, &Error>, id: Option<RequestId>) {
        self.witness.with_book(|book| book.end(self.line, clock::now(), chain, outcome, id));
    }
}

pub(crate) struct LocalRead {
    observer: Observer,
    key: Bytes,
}

impl LocalRead {
    pub(crate) fn end_local(self, chain: ChainId, held: &Option<Held>, as_of: Sequence) {
        let ask = Ask::Read { query: Query::Key(self.key), mode: ReadMode::Strong, floor: None };
        let held = held.clone().filter(|held| held.value.is_some());
        let reply = Reply::Read(ReadReply { held, clean: true, way: ReadPath::Local, as_of, chain_time: 0 });
        self.observer.begin(ask, None).end(chain, Ok(&reply), None);
    }
}

impl std::fmt::Debug for Witness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Witness").finish_non_exhaustive()
    }
}
