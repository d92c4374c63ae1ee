//! A registration that this process keeps.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use artillery_core::internal::clock;
use artillery_proto::{
    guards::Guards,
    recipes::{KeyLease, RegisterStep, Registrant, renewal::Renewal},
};
use bytes::Bytes;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use super::{
    RegistrationError,
    error::without_condition,
    renewer::{NextRenewal, Renewed, Renewing},
};
use crate::{
    Error, Kv,
    api::{Computed, Write},
    error::{Advice, Unknown},
    kv::{WriteError, outcome},
    rpc::router::{HowToWrite, from_now},
};

const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// A registered instance of this process. Its key is renewed in the background, and put again if it expired, for
/// instance because the cluster couldn't be reached for too long. Dropping it removes the instance, without waiting for
/// the result.
#[must_use = "the instance is removed when its registration is dropped"]
pub struct Registration {
    kept: Arc<KeptRegistration>,
    is_removed: bool,
}

struct KeptRegistration {
    kv: Kv,
    key: Bytes,
    state: Mutex<RegistrationState>,
    /// Held during a write, so that updates take effect in order.
    writing: tokio::sync::Mutex<()>,
    replaced: watch::Sender<bool>,
}

struct RegistrationState {
    registrant: Registrant,
    lease: KeyLease,
    renewing: Option<Renewing>,
    is_removed: bool,
}

impl Registration {
    pub(super) async fn begin(
        kv: Kv,
        key: Bytes,
        value: Bytes,
        ttl: Duration,
        timeout: Duration,
    ) -> Result<Self, Error> {
        kv.router.begin_call().await?;
        let deadline = from_now(timeout);
        let drift_ppm = kv.router.routing(deadline).await?.drift_ppm;
        let lease = KeyLease::new(ttl, drift_ppm, Guards::ALL);
        let state = RegistrationState {
            registrant: Registrant::new(key.clone(), value, lease),
            lease,
            renewing: None,
            is_removed: false,
        };
        let (writing, replaced) = (tokio::sync::Mutex::default(), watch::Sender::new(false));
        let kept = Arc::new(KeptRegistration { kv, key, state: Mutex::new(state), writing, replaced });
        let registration = Self { kept, is_removed: false };
        registration.kept.write(deadline).await?;
        Ok(registration)
    }

    /// Changes the value of the instance.
    ///
    /// # Errors
    /// [`RegistrationError`]. A value that is refused, for instance for its size, changes nothing. After any other error
    /// of the call the new value is still written in the background.
    pub async fn update(&self, value: impl Into<Bytes>) -> Result<(), RegistrationError> {
        let value = value.into();
        let former = self.kept.set(value.clone()).await;
        let written = self.kept.write(from_now(self.kept.kv.timeout())).await;
        if let Err(error) = &written {
            if error.way_on() == Advice::Change {
                self.kept.revert(&value, former).await;
            }
            self.kept.restore();
        }
        written?;
        if self.is_replaced() { Err(RegistrationError::Replaced) } else { Ok(()) }
    }

    /// Removes the instance, unless another process has registered under its id.
    ///
    /// # Errors
    /// Those of [`Kv::delete`]. If the removal wasn't applied, the instance disappears after its time to live.
    pub async fn deregister(mut self) -> Result<(), Error> {
        let removed = self.kept.remove().await;
        self.is_removed = removed.is_ok();
        removed
    }

    /// Whether another process has registered under this id since. Then this registration ends.
    pub fn is_replaced(&self) -> bool {
        *self.kept.replaced.borrow()
    }

    /// Waits until another process registers under this id.
    pub async fn replaced(&self) {
        // The sender is in `kept`.
        let _ = self.kept.replaced.subscribe().wait_for(|replaced| *replaced).await;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.is_removed {
            let kept = self.kept.clone();
            self.kept.kv.runtime().spawn(async move { kept.remove().await });
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("key", &self.kept.key).finish_non_exhaustive()
    }
}

impl KeptRegistration {
    fn lock(&self) -> MutexGuard<'_, RegistrationState> {
        // No code that holds the lock can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the value to be written, and returns the former one.
    async fn set(&self, value: Bytes) -> Bytes {
        let _writing = self.writing.lock().await;
        let mut state = self.lock();
        state.renewing = None;
        state.registrant.update(value)
    }

    /// Returns to the former value, unless a later update has replaced the refused one.
    async fn revert(&self, refused: &Bytes, former: Bytes) {
        let _writing = self.writing.lock().await;
        self.lock().registrant.revert(refused, former);
    }

    /// Writes the key, until the outcome is certain or the deadline has passed, and begins its renewals.
    async fn write(self: &Arc<Self>, deadline: Instant) -> Result<(), Error> {
        let _writing = self.writing.lock().await;
        let mut pause = MIN_PAUSE;
        loop {
            let write = {
                let state = self.lock();
                match state.registrant.next() {
                    RegisterStep::Write(write) if !state.is_removed => write,
                    _ => return Ok(()),
                }
            };
            let timeout = self.kv.timeout().min(deadline.saturating_duration_since(Instant::now()));
            let Err(error) = self.attempt(write, timeout).await else { continue };
            if error.way_on() == Advice::Change || Instant::now() + pause >= deadline || self.kv.is_stopped() {
                return Err(error);
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn attempt(self: &Arc<Self>, write: Write, timeout: Duration) -> Result<(), Error> {
        let sent = clock::now();
        let how = HowToWrite { timeout, session: None, request_id: None };
        let written = self.kv.router.write(write, how).await;
        let written = written.map_err(WriteError::from).and_then(|(answer, id)| outcome(answer, id));
        let mut state = self.lock();
        match written {
            Ok(done) => match done.result {
                Computed::Ran(groups) => state.registrant.written(Some(&groups)),
                Computed::Nothing => state.registrant.written(None),
                _ => {
                    state.registrant.doubt();
                    return Err(Error::unknown(Unknown::ResultsLost(done.version), done.request_id));
                }
            },
            Err(error) => {
                let error = without_condition(error);
                if error.is_outcome_unknown() {
                    state.registrant.doubt();
                }
                return Err(error);
            }
        }
        state.lease.acknowledge(sent, clock::now());
        self.keep(&mut state);
        Ok(())
    }

    /// Begins the renewals, or ends the registration if it was replaced.
    fn keep(self: &Arc<Self>, state: &mut RegistrationState) {
        let key = match state.registrant.next() {
            RegisterStep::Renew(key) => key,
            RegisterStep::Stop => {
                self.replaced.send_replace(true);
                return;
            }
            RegisterStep::Write(_) => return,
        };
        let kept = Arc::downgrade(self);
        let report = move |outcome, sent, now| match kept.upgrade() {
            Some(kept) => kept.renewed(outcome, sent, now),
            None => NextRenewal::Never,
        };
        let (due, timeout) = (state.lease.renew_at(), state.lease.renewal_timeout());
        state.renewing = Some(Renewing::begin(&self.kv, Renewed { key, due, timeout, report: Arc::new(report) }));
    }

    fn renewed(self: &Arc<Self>, outcome: Renewal, sent: crate::Timestamp, now: crate::Timestamp) -> NextRenewal {
        let mut state = self.lock();
        state.registrant.renewed(outcome);
        match outcome {
            Renewal::Renewed => {
                state.lease.acknowledge(sent, now);
                NextRenewal::At(state.lease.renew_at())
            }
            Renewal::Unknown => NextRenewal::Retry,
            Renewal::Gone | Renewal::Replaced => {
                let is_replaced = state.registrant.is_replaced();
                drop(state);
                if is_replaced {
                    self.replaced.send_replace(true);
                } else {
                    self.restore();
                }
                NextRenewal::Never
            }
        }
    }

    /// Puts the key again in the background, as long as the registration exists and wasn't replaced.
    fn restore(self: &Arc<Self>) {
        let kept = Arc::downgrade(self);
        self.kv.runtime().spawn(async move {
            while let Some(kept) = kept.upgrade() {
                if kept.kv.is_stopped() {
                    return;
                }
                match kept.write(from_now(MAX_PAUSE)).await {
                    Ok(()) => return,
                    Err(error) if error.way_on() == Advice::Change => return,
                    Err(_) => sleep(MAX_PAUSE).await,
                }
            }
        });
    }

    async fn remove(&self) -> Result<(), Error> {
        let _writing = self.writing.lock().await;
        let removal = {
            let mut state = self.lock();
            state.renewing = None;
            state.is_removed = true;
            state.registrant.removal()
        };
        let how = HowToWrite { timeout: self.kv.timeout(), session: None, request_id: None };
        match self
            .kv
            .router
            .write(removal, how)
            .await
            .map_err(WriteError::from)
            .and_then(|(answer, id)| outcome(answer, id))
        {
            Ok(_) | Err(WriteError::Conflict(_)) => Ok(()),
            Err(WriteError::Call(error)) => Err(error),
        }
    }
}
