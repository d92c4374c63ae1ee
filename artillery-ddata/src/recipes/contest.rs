//! Drives a contender for a lock or an election: makes the calls that its machine asks for.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use artillery_core::internal::watch;
use artillery_proto::recipes::{
    Contender, QueueStep,
    renewal::{Renewal, RenewedKey},
};
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    FencingToken, LockError,
    error::without_condition,
    renewer::{NextRenewal, Renewed, Renewing},
};
use crate::{
    ClusterId, Error, Kv, ReadMode, Refusal, RequestId, Timestamp, Version,
    api::{Query, Reply, Write},
    control::chain_of_prefix,
    error::{Advice, NotApplied, Unknown},
    kv::{DEFAULT_TIMEOUT, no_read, outcome},
    rpc::router::{CallAnswer, HowToRead, HowToWrite, from_now},
};

/// How long one query waits for the end of the predecessor.
const WATCH_TIMEOUT: Duration = Duration::from_secs(10);
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// One contender, and the renewals of its key.
pub(super) struct Contest {
    kv: Kv,
    state: Mutex<ContestState>,
    /// Changes with each report of a renewal, and when the caller cancels.
    changed: watch::Sender<()>,
}

struct ContestState {
    contender: Contender,
    cluster: ClusterId,
    /// The renewals of its key.
    renewing: Option<Renewing>,
    /// A write that may have put a key.
    unsettled: Option<RequestId>,
    is_given_up: bool,
}

impl Contest {
    /// A contender in a cluster that is known.
    pub(super) fn new(kv: Kv, cluster: ClusterId, contender: Contender) -> Arc<Self> {
        let state = ContestState { contender, cluster, renewing: None, unsettled: None, is_given_up: false };
        Arc::new(Self { kv, state: Mutex::new(state), changed: watch::Sender::new(()) })
    }

    fn lock(&self) -> MutexGuard<'_, ContestState> {
        // No code that holds the lock can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn kv(&self) -> &Kv {
        &self.kv
    }

    pub(super) fn token(&self) -> FencingToken {
        let state = self.lock();
        FencingToken::new(state.cluster, state.contender.version().unwrap_or_default())
    }

    pub(super) fn key(&self) -> Bytes {
        self.lock().contender.key().unwrap_or_default()
    }

    fn now(&self) -> Timestamp {
        self.kv.router.clock().now()
    }

    /// How much longer the lock is certainly held; zero if it isn't.
    pub(super) fn held_for(&self) -> Duration {
        let mut state = self.lock();
        let now = self.now();
        state.contender.lapse(now);
        if state.contender.is_held(now) { state.contender.lease().until() - now } else { Duration::ZERO }
    }

    /// Waits until the lock is no longer held.
    pub(super) async fn lost(&self) {
        let mut changed = self.changed.subscribe();
        loop {
            let left = self.held_for();
            if left.is_zero() {
                return;
            }
            // A timer doesn't advance while the machine is suspended.
            let _ = timeout_at(from_now(left.min(MAX_PAUSE)), changed.changed()).await;
        }
    }

    /// Deletes its key, so that the next contender holds.
    ///
    /// # Errors
    /// [`LockError::Lost`] if the lock was no longer held. [`LockError::Call`] if the key may still exist: then it
    /// expires.
    pub(super) async fn release(&self) -> Result<(), LockError> {
        let (key, was_held) = (self.key(), !self.held_for().is_zero());
        self.lock().renewing = None;
        self.kv.delete(key).await?;
        self.give_up();
        if was_held { Ok(()) } else { Err(LockError::Lost) }
    }

    pub(super) fn give_up(&self) {
        self.lock().is_given_up = true;
        self.changed.send_replace(());
    }

    /// Deletes any key that it has put. Without an answer of the cluster, the key expires.
    pub(super) async fn leave(&self) {
        let (key, unsettled, prefix) = {
            let mut state = self.lock();
            state.renewing = None;
            (state.contender.key(), state.unsettled.take(), state.contender.prefix())
        };
        if let Some(key) = key {
            let _ = self.kv.delete(key).await;
        }
        if let Some(id) = unsettled
            && let Ok(crate::kv::Resolution::Applied(done)) = self.kv.resolve(id).await
        {
            let _ = self.kv.delete(crate::api::sequential_key(&prefix, done.version)).await;
        }
    }
}

impl Contest {
    /// Returns whether it holds; `false`: another contender is first, and `tries` was set.
    pub(super) async fn run(self: &Arc<Self>, deadline: Instant, tries: bool) -> Result<bool, LockError> {
        let (mut last, mut pause, mut history) = (None, MIN_PAUSE, None);
        let (mut changed, mut placements) = (self.changed.subscribe(), 0_u32);
        loop {
            changed.borrow_and_update();
            let (step, is_behind) = {
                let mut state = self.lock();
                if state.is_given_up || Instant::now() >= deadline {
                    return Err(LockError::TimedOut { last });
                }
                if self.kv.is_stopped() {
                    return Err(Error::not_applied(NotApplied::Stopped).into());
                }
                (state.contender.next(self.now()), state.contender.is_behind())
            };
            if tries && is_behind {
                return Ok(false);
            }
            let done = match step {
                QueueStep::Place(write) => {
                    // Its key expired. With a time to live that is too short it always does.
                    if placements > 0 {
                        let _ = timeout_at(deadline, sleep(MIN_PAUSE * placements.min(50))).await;
                    }
                    placements = placements.saturating_add(1);
                    self.place(write, deadline).await
                }
                QueueStep::Ask(query, mode) => self.ask(query, mode, &mut history, &mut changed, deadline).await,
                QueueStep::Confirm => {
                    self.confirm(&mut changed, deadline).await;
                    Ok(())
                }
                QueueStep::Hold(_) => return Ok(true),
                QueueStep::Lost => return Err(LockError::Lost),
            };
            match done {
                Ok(()) => pause = MIN_PAUSE,
                Err(error) if error.way_on() == Advice::Change => return Err(error.into()),
                Err(error) => {
                    last = Some(error);
                    let _ = timeout_at(deadline, sleep(pause)).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                }
            }
        }
    }

    fn attempt_timeout(&self, deadline: Instant) -> Duration {
        self.kv.timeout().min(deadline.saturating_duration_since(Instant::now()))
    }

    /// Puts its key. Repeats the write under its id while its outcome is unknown: a second key would queue behind the
    /// first one.
    async fn place(self: &Arc<Self>, write: Write, deadline: Instant) -> Result<(), Error> {
        // The time to live counts from the first attempt.
        let (sent, mut request_id) = (self.now(), None);
        loop {
            let how = HowToWrite { timeout: self.attempt_timeout(deadline), session: None, request_id };
            let written = self.kv.router.write(write.clone(), how).await;
            let written = written.and_then(|(answer, id)| outcome(answer, id).map_err(without_condition));
            let error = match written {
                Ok(done) => {
                    self.placed(done.version, sent);
                    return Ok(());
                }
                Err(error) => error,
            };
            let (id, is_settled) = match &error {
                Error::OutcomeUnknown { reason: Unknown::SessionExpired, .. } => (None, true),
                Error::OutcomeUnknown { request_id, .. } => (Some(*request_id), false),
                // A former history may have the key, the present one doesn't.
                Error::Refused { reason: Refusal::OtherHistory | Refusal::Barred, .. } if request_id.is_some() => {
                    self.lock().unsettled = None;
                    return Ok(());
                }
                _ => (request_id, request_id.is_none()),
            };
            self.lock().unsettled = id;
            if is_settled {
                return Err(error);
            }
            request_id = id;
            if self.kv.is_stopped() {
                return Err(Error::not_applied(NotApplied::Stopped));
            }
            if self.lock().is_given_up || Instant::now() >= deadline {
                return Err(error);
            }
            let _ = timeout_at(deadline, sleep(MIN_PAUSE)).await;
        }
    }

    fn placed(self: &Arc<Self>, version: Version, sent: Timestamp) {
        let mut state = self.lock();
        state.unsettled = None;
        state.contender.placed(version, sent, self.now());
        let Some(key) = state.contender.key() else { return };
        let lease = *state.contender.lease();
        let contest = Arc::downgrade(self);
        let report = move |outcome, _, sent| match contest.upgrade() {
            Some(contest) => contest.renewed(version, outcome, sent),
            None => NextRenewal::Never,
        };
        let renewed = Renewed {
            key: RenewedKey { key, ttl: lease.ttl(), value: None },
            due: lease.renew_at(),
            timeout: lease.renewal_timeout().min(DEFAULT_TIMEOUT),
            report: Arc::new(report),
        };
        let former = state.renewing.replace(Renewing::begin(&self.kv, renewed));
        drop(state);
        drop(former);
    }

    fn renewed(&self, version: Version, outcome: Renewal, sent: Timestamp) -> NextRenewal {
        let mut state = self.lock();
        // The clock is read under the lock: an older reading could extend a lease that a caller saw ended.
        state.contender.renewed(version, outcome, sent, self.now());
        let next = match outcome {
            _ if state.contender.version() != Some(version) || state.contender.is_lost() => NextRenewal::Never,
            Renewal::Renewed => NextRenewal::At(state.contender.lease().renew_at()),
            _ => NextRenewal::Retry,
        };
        drop(state);
        self.changed.send_replace(());
        next
    }

    /// Waits for the outcome of a renewal.
    async fn confirm(&self, changed: &mut watch::Receiver<()>, deadline: Instant) {
        if let Some(renewing) = &self.lock().renewing {
            renewing.hurry();
        }
        // The renewals end without a report when this node or client stops.
        let _ = timeout_at(deadline.min(from_now(MAX_PAUSE)), changed.changed()).await;
        // A renewal may be refused at once, again and again.
        let _ = timeout_at(deadline, sleep(MIN_PAUSE)).await;
    }

    /// Makes a read. A watch ends early if a renewal finds that its own key is gone.
    async fn ask(
        &self,
        query: Query,
        mode: ReadMode,
        history: &mut Option<ClusterId>,
        changed: &mut watch::Receiver<()>,
        deadline: Instant,
    ) -> Result<(), Error> {
        let router = &self.kv.router;
        let is_watch = matches!(query, Query::Changes(_));
        // The position of a watch is valid in the history of the look before it only (trap 59).
        let bound = history.filter(|_| is_watch);
        let routing = match router.routing_of(bound, deadline).await {
            Ok(routing) => routing,
            Err(error) => return self.after(error),
        };
        *history = Some(routing.history_id());
        let prefix = query.bounds().next().cloned().unwrap_or_default();
        let chain = chain_of_prefix(&prefix, routing.chains.len() as u32).unwrap_or_default();
        let how = HowToRead { mode, timeout: self.kv.timeout(), session: None };
        let until = deadline.min(from_now(if is_watch { WATCH_TIMEOUT } else { self.kv.timeout() }));
        let key = self.key();
        let mut read = std::pin::pin!(router.read_in(&routing, chain, query, &how, None, until));
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut read => break answer,
                _ = changed.changed(), if is_watch => {
                    let state = self.lock();
                    if state.is_given_up || state.contender.key() != Some(key.clone()) {
                        return Ok(());
                    }
                }
            }
        };
        match answer {
            Ok(CallAnswer { reply: Reply::Page(page), .. }) => self.lock().contender.looked(&page),
            Ok(CallAnswer { reply: Reply::Changes(changes), .. }) => self.lock().contender.changed(&changes),
            Ok(CallAnswer { reply, node, .. }) => return self.after(no_read(&reply, node)),
            Err(Error::NotApplied { reason: NotApplied::TimedOut }) if is_watch => {}
            Err(error) => return self.after(error),
        }
        Ok(())
    }

    fn after(&self, error: Error) -> Result<(), Error> {
        if let Error::Refused { reason: Refusal::Compacted { .. } | Refusal::OtherHistory, .. } = error {
            self.lock().contender.look_again();
            return Ok(());
        }
        Err(error)
    }
}
