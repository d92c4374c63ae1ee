//! A registration that this process keeps.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use artillery_core::internal::watch;
use artillery_proto::{
    guards::Guards,
    recipes::{
        KeyLease, RegisterStep, Registrant,
        renewal::{Renewal, RenewedKey},
    },
};
use bytes::Bytes;
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{sleep, timeout_at},
};

use super::{
    RegistrationError,
    error::without_condition,
    leaving::{Leaving, LeavingTask},
    renewer::{NextRenewal, Renewed, Renewing, Report},
};
use crate::{
    Error, Kv, RequestId, Timestamp, Version,
    api::Computed,
    error::{Advice, NotApplied, Unknown},
    kv::{DEFAULT_TIMEOUT, WriteError, outcome},
    rpc::router::{HowToWrite, from_now},
};

const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a key that has expired is put again.
const RESTORE_PAUSE: Duration = Duration::from_millis(200);

/// A registered instance of this process. A task renews its key, and puts it again if it expired, for instance because
/// the cluster couldn't be reached for too long. Dropping the registration removes the instance, without waiting for the
/// result.
#[must_use = "the instance is removed when its registration is dropped"]
pub struct Registration {
    kept: Arc<Kept>,
    commands: mpsc::Sender<Command>,
}

/// The state that a registration, its task and its renewals share.
struct Kept {
    kv: Kv,
    key: Bytes,
    renewed: Mutex<RenewedState>,
    /// Notified when a renewal finds that the key is gone, or has another value.
    ended: Notify,
    last_error: watch::Sender<Option<Error>>,
    replaced: watch::Sender<bool>,
    /// Set when the registration is dropped: the end of the node or client waits for the removal.
    leaving: Mutex<Option<LeavingTask>>,
}

struct RenewedState {
    lease: KeyLease,
    /// The version of the last acknowledged write or renewal.
    version: Version,
    outcome: Renewal,
}

enum Command {
    Update(Bytes, oneshot::Sender<Result<(), RegistrationError>>),
    Remove(oneshot::Sender<Result<(), Error>>),
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
        let renewed = RenewedState { lease, version: Version::NONE, outcome: Renewal::Renewed };
        let registrant = Registrant::new(key.clone(), value, ttl);
        let kept = Arc::new(Kept {
            key,
            renewed: Mutex::new(renewed),
            ended: Notify::new(),
            last_error: watch::Sender::new(None),
            replaced: watch::Sender::new(false),
            leaving: Mutex::default(),
            kv,
        });
        let (commands, received) = mpsc::channel(1);
        let (registered, done) = oneshot::channel();
        let task = RegistrationTask { kept: kept.clone(), registrant, commands: received };
        kept.kv.runtime().spawn(task.run(registered));
        // If this call ends early, the dropped registration removes the key.
        let registration = Self { kept, commands };
        match timeout_at(deadline, done).await {
            Ok(Ok(registered)) => registered.map(|()| registration),
            Ok(Err(_)) => Err(Error::not_applied(NotApplied::Stopped)),
            Err(_) => Err(registration.kept.last_error()),
        }
    }

    /// Changes the value of the instance. Updates of one registration take effect in order.
    ///
    /// # Errors
    /// [`RegistrationError`]. A value that is refused, for instance for its size, changes nothing. If the timeout of the
    /// handle expires, the new value is still written in the background; the error is that of the last attempt.
    pub async fn update(&self, value: impl Into<Bytes>) -> Result<(), RegistrationError> {
        let (reply, done) = oneshot::channel();
        self.ask(Command::Update(value.into(), reply), done).await?
    }

    /// Removes the instance, unless another process has registered under its id. If a renewal is in flight, the instance
    /// may stay for its time to live.
    ///
    /// # Errors
    /// Those of [`Kv::delete`]. If the removal wasn't applied, the instance disappears after its time to live.
    pub async fn deregister(self) -> Result<(), Error> {
        let (reply, done) = oneshot::channel();
        self.ask(Command::Remove(reply), done).await?
    }

    async fn ask<T>(&self, command: Command, done: oneshot::Receiver<T>) -> Result<T, Error> {
        let deadline = from_now(self.kept.kv.timeout());
        let asked = async {
            self.commands.send(command).await.ok()?;
            done.await.ok()
        };
        match timeout_at(deadline, asked).await {
            Ok(Some(done)) => Ok(done),
            Ok(None) => Err(Error::not_applied(NotApplied::Stopped)),
            Err(_) => Err(self.kept.last_error()),
        }
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
        // The task ends when its commands do, and drops this.
        *self.kept.leaving() = Some(Leaving::begin(&self.kept.kv.router));
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("key", &self.kept.key).finish_non_exhaustive()
    }
}

impl Kept {
    fn renewed(&self) -> MutexGuard<'_, RenewedState> {
        // No code that holds the lock can panic halfway through a change.
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaving(&self) -> MutexGuard<'_, Option<LeavingTask>> {
        // No code that holds the lock can panic halfway through a change.
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last_error(&self) -> Error {
        self.last_error.borrow().clone().unwrap_or(Error::not_applied(NotApplied::TimedOut))
    }

    fn report(&self, outcome: Renewal, version: Option<Version>, sent: Timestamp) -> NextRenewal {
        let mut state = self.renewed();
        match outcome {
            Renewal::Renewed => {
                state.lease.acknowledge(sent, self.kv.router.clock().now());
                state.version = version.unwrap_or(state.version);
                NextRenewal::At(state.lease.renew_at())
            }
            Renewal::Unknown => NextRenewal::Retry,
            Renewal::Gone | Renewal::Replaced => {
                state.outcome = outcome;
                drop(state);
                self.ended.notify_one();
                NextRenewal::Never
            }
        }
    }
}

/// The only writer of the key: each write ends before the next one begins.
struct RegistrationTask {
    kept: Arc<Kept>,
    registrant: Registrant,
    commands: mpsc::Receiver<Command>,
}

impl RegistrationTask {
    async fn run(mut self, registered: oneshot::Sender<Result<(), Error>>) {
        let first = self.settle().await;
        let is_registered = first.is_ok();
        if registered.send(first).is_ok() && is_registered {
            self.keep().await;
        }
        if self.registrant.is_present() {
            let _ = self.remove().await;
        }
        self.kept.leaving().take();
    }

    /// Renews the key and obeys, until the registration is dropped or the instance removed.
    async fn keep(&mut self) {
        loop {
            let renewing = match self.registrant.next() {
                RegisterStep::Renew(key) => Some(self.renew(key)),
                RegisterStep::Stop => {
                    self.kept.replaced.send_replace(true);
                    None
                }
                RegisterStep::Write(_) => None,
            };
            let kept = self.kept.clone();
            tokio::select! {
                biased;
                command = self.commands.recv() => {
                    drop(renewing);
                    match command {
                        None => return,
                        Some(Command::Update(value, reply)) => {
                            let updated = self.update(value).await;
                            let _ = reply.send(updated);
                        }
                        Some(Command::Remove(reply)) => {
                            let removed = self.remove().await;
                            self.registrant.removed();
                            let _ = reply.send(removed);
                            return;
                        }
                    }
                }
                () = kept.ended.notified() => {
                    drop(renewing);
                    let outcome = kept.renewed().outcome;
                    self.registrant.renewed(outcome);
                    // A time to live that is too short always ends before its renewal.
                    sleep(RESTORE_PAUSE).await;
                    let _ = self.settle().await;
                }
                () = sleep(MAX_PAUSE), if matches!(self.registrant.next(), RegisterStep::Write(_)) => {
                    let _ = self.settle().await;
                }
            }
        }
    }

    fn renew(&self, key: RenewedKey) -> Renewing {
        let kept = Arc::downgrade(&self.kept);
        let report: Report = Arc::new(move |outcome, version, sent| match kept.upgrade() {
            Some(kept) => kept.report(outcome, version, sent),
            None => NextRenewal::Never,
        });
        let lease = self.kept.renewed().lease;
        let timeout = lease.renewal_timeout().min(DEFAULT_TIMEOUT);
        Renewing::begin(&self.kept.kv, Renewed { key, due: lease.renew_at(), timeout, report })
    }

    async fn update(&mut self, value: Bytes) -> Result<(), RegistrationError> {
        self.registrant.update(value);
        let settled = self.settle().await;
        if settled.is_err() && self.registrant.refused() {
            // The key may have expired during the attempts.
            let _ = self.settle().await;
        }
        settled?;
        if self.registrant.is_replaced() { Err(RegistrationError::Replaced) } else { Ok(()) }
    }

    /// Makes the write that the registrant needs, until its outcome is certain. Without that, a late attempt could undo
    /// a later write.
    ///
    /// # Errors
    /// The write can't be made, or the registration was dropped.
    async fn settle(&mut self) -> Result<(), Error> {
        let (mut id, mut sent, mut pause) = (None, self.kept.kv.router.clock().now(), MIN_PAUSE);
        while let RegisterStep::Write(write) = self.registrant.next() {
            let timeout = self.kept.kv.timeout().min(DEFAULT_TIMEOUT);
            let how = HowToWrite { timeout, session: None, request_id: id };
            let written = self.kept.kv.router.write(write, how).await.map_err(WriteError::from);
            match written.and_then(|(answer, id)| outcome(answer, id)).map_err(without_condition) {
                Ok(done) => {
                    self.written(&done.result, done.version, sent);
                    (id, sent) = (None, self.kept.kv.router.clock().now());
                }
                Err(error) => {
                    id = self.failed(&error, id)?;
                    self.kept.last_error.send_replace(Some(error));
                    if self.commands.is_closed() || self.kept.kv.is_stopped() {
                        return Err(Error::not_applied(NotApplied::Stopped));
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                    if id.is_none() {
                        sent = self.kept.kv.router.clock().now();
                    }
                }
            }
        }
        self.kept.last_error.send_replace(None);
        Ok(())
    }

    fn written(&mut self, result: &Computed, version: Version, sent: Timestamp) {
        match result {
            Computed::Nothing => self.registrant.written(None),
            Computed::Ran(groups) => self.registrant.written(Some(groups)),
            _ => return self.registrant.forgotten(),
        }
        let mut state = self.kept.renewed();
        state.lease.acknowledge(sent, self.kept.kv.router.clock().now());
        state.version = version;
    }

    /// Returns the id under which the write must be repeated; `None`: its outcome is certain.
    fn failed(&mut self, error: &Error, id: Option<RequestId>) -> Result<Option<RequestId>, Error> {
        match error {
            Error::OutcomeUnknown { reason: Unknown::SessionExpired, .. } => {
                self.registrant.forgotten();
                Ok(None)
            }
            Error::OutcomeUnknown { request_id, .. } => Ok(Some(*request_id)),
            // Another history has begun, or the id was barred: the write isn't in the present history and never will be.
            Error::Refused { .. } if id.is_some() && error.way_on() == Advice::Change => {
                self.registrant.forgotten();
                Ok(None)
            }
            _ if error.way_on() == Advice::Change => Err(error.clone()),
            _ => Ok(id),
        }
    }

    /// Deletes the key, if no other process has written it.
    async fn remove(&mut self) -> Result<(), Error> {
        let version = self.kept.renewed().version;
        match self.kept.kv.compare_and_delete(&self.kept.key, version).await {
            Ok(_) | Err(WriteError::Conflict(_)) => Ok(()),
            Err(WriteError::Call(error)) => Err(error),
        }
    }
}
