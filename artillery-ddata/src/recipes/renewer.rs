//! Renews the keys of all guards and registrations of a process: the keys of a chain that are due at about the same time
//! share one script.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use artillery_proto::recipes::renewal::{MAX_RENEWALS, Renewal, RenewedKey, renewal};
use tokio::{sync::Notify, task::JoinSet, time::sleep};

use crate::{
    ChainId, Error, Kv, Timestamp, Version,
    api::{Computed, Write},
    control::chain_of,
    kv::outcome,
    rpc::router::HowToWrite,
};

/// The bytes of keys and values that one script may have.
const MAX_BYTES: usize = 256 << 10;
/// The shortest time between two renewals of a key.
const MIN_PAUSE: Duration = Duration::from_millis(20);
/// A timer doesn't advance while the machine is suspended, so the clock is read at least this often.
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// A renewal is made this part of its timeout early if it can then share a script.
const EARLY_PART: u32 = 4;

/// What follows an attempt to renew.
pub(super) enum NextRenewal {
    At(Timestamp),
    /// Soon: the outcome is unknown.
    Retry,
    Never,
}

/// Receives the outcome of an attempt, its version if it is known, and when it was sent.
pub(super) type Report = Arc<dyn Fn(Renewal, Option<Version>, Timestamp) -> NextRenewal + Send + Sync>;

/// A key that is kept by renewals.
pub(super) struct Renewed {
    pub(super) key: RenewedKey,
    pub(super) due: Timestamp,
    /// The longest time that an attempt may take.
    pub(super) timeout: Duration,
    pub(super) report: Report,
}

struct Entry {
    renewed: Renewed,
    /// A script with this key was refused: it gets one of its own, so that it doesn't end the others.
    is_alone: bool,
}

/// One for each router.
#[derive(Default)]
pub(super) struct Renewer {
    state: Mutex<RenewerState>,
    wake: Notify,
}

#[derive(Default)]
struct RenewerState {
    renewed: BTreeMap<u64, Entry>,
    last: u64,
    is_running: bool,
}

/// Stops the renewals of a key when it is dropped.
pub(super) struct Renewing {
    renewer: Arc<Renewer>,
    id: u64,
}

impl Renewing {
    pub(super) fn begin(kv: &Kv, renewed: Renewed) -> Self {
        let renewer = kv.router.attached(Renewer::default);
        let mut state = renewer.lock();
        state.last += 1;
        let id = state.last;
        state.renewed.insert(id, Entry { renewed, is_alone: false });
        if !std::mem::replace(&mut state.is_running, true) {
            kv.runtime().spawn(run(renewer.clone(), kv.clone()));
        }
        drop(state);
        renewer.wake.notify_one();
        Self { renewer, id }
    }

    /// Renews the key as soon as possible.
    pub(super) fn hurry(&self) {
        if let Some(entry) = self.renewer.lock().renewed.get_mut(&self.id)
            && entry.renewed.due != Timestamp::MAX
        {
            entry.renewed.due = Timestamp::ZERO;
        }
        self.renewer.wake.notify_one();
    }
}

impl Drop for Renewing {
    fn drop(&mut self) {
        self.renewer.lock().renewed.remove(&self.id);
    }
}

/// The keys of one script, and the outcome of each.
struct Attempt {
    ids: Vec<u64>,
    sent: Timestamp,
    /// `Err`: whether the script was refused.
    outcomes: Result<(Version, Vec<Renewal>), bool>,
}

async fn run(renewer: Arc<Renewer>, kv: Kv) {
    let mut attempts = JoinSet::new();
    while let Some(wait) = renewer.begin(&kv, &mut attempts) {
        tokio::select! {
            biased;
            Some(ended) = attempts.join_next(), if !attempts.is_empty() => {
                if let Ok(attempt) = ended {
                    renewer.end(&kv, attempt);
                }
            }
            () = renewer.wake.notified() => {}
            () = sleep(wait) => {}
        }
    }
}

impl Renewer {
    fn lock(&self) -> MutexGuard<'_, RenewerState> {
        // No code that holds the lock can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the renewals that are due, and returns how long to wait for the next one. `None`: no key is left, or the
    /// handle was stopped.
    fn begin(&self, kv: &Kv, attempts: &mut JoinSet<Attempt>) -> Option<Duration> {
        let mut state = self.lock();
        if state.renewed.is_empty() || kv.is_stopped() {
            state.renewed.clear();
            state.is_running = false;
            return None;
        }
        let now = kv.router.clock().now();
        if state.renewed.values().any(|entry| entry.renewed.due <= now)
            && let Some(routing) = kv.router.known()
        {
            for script in scripts(&mut state.renewed, now, routing.chains.len() as u32) {
                attempts.spawn(script.make(kv.clone()));
            }
        }
        let next = state.renewed.values().map(|entry| entry.renewed.due).min()?;
        Some((next - now).clamp(Duration::from_millis(1), MAX_SLEEP))
    }

    fn end(&self, kv: &Kv, Attempt { ids, sent, outcomes }: Attempt) {
        let (version, outcomes, is_refused) = match outcomes {
            Ok((version, outcomes)) => (Some(version), outcomes, false),
            Err(is_refused) => (None, vec![Renewal::Unknown; ids.len()], is_refused),
        };
        for (id, outcome) in ids.into_iter().zip(outcomes) {
            // The report takes locks of its own, whose holders may begin other renewals.
            let Some(report) = self.lock().renewed.get(&id).map(|entry| entry.renewed.report.clone()) else { continue };
            let next = report(outcome, version, sent);
            let mut state = self.lock();
            let Some(entry) = state.renewed.get_mut(&id) else { continue };
            entry.is_alone |= is_refused;
            let now = kv.router.clock().now();
            match next {
                // With a time to live of almost nothing, a key is always due.
                NextRenewal::At(due) => entry.renewed.due = due.max(now + MIN_PAUSE),
                NextRenewal::Retry => {
                    entry.renewed.due = now + (entry.renewed.timeout / 10).clamp(MIN_PAUSE, MAX_SLEEP)
                }
                NextRenewal::Never => drop(state.renewed.remove(&id)),
            }
        }
    }
}

/// A script that renews keys of one chain.
struct Renewals {
    ids: Vec<u64>,
    write: Write,
    timeout: Duration,
}

/// Keys that may share a script: of one chain, with timeouts of the same order, so that a short one doesn't end the
/// attempts of the others. The last number is the id of a key that needs a script of its own, otherwise 0.
type Shared = (ChainId, u32, u64);

/// The scripts that renew the keys that are due. A key that is being renewed is due at [`Timestamp::MAX`].
fn scripts(entries: &mut BTreeMap<u64, Entry>, now: Timestamp, chains: u32) -> Vec<Renewals> {
    let mut shared = BTreeMap::<Shared, Vec<(u64, RenewedKey, Duration)>>::new();
    for (&id, entry) in entries {
        let Renewed { key, timeout, due, .. } = &mut entry.renewed;
        if *due <= now + *timeout / EARLY_PART {
            *due = Timestamp::MAX;
            let order = timeout.as_millis().max(1).ilog2();
            let alone = if entry.is_alone { id } else { 0 };
            let of = (chain_of(&key.key, chains), order, alone);
            shared.entry(of).or_default().push((id, key.clone(), *timeout));
        }
    }
    let mut scripts = Vec::new();
    for keys in shared.into_values() {
        let mut rest = &keys[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take(MAX_RENEWALS).take_while(|(_, key, _)| {
                bytes += 2 * key.key.len() + key.value.as_ref().map_or(0, |value| value.len());
                bytes <= MAX_BYTES
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            let timeout = now.iter().map(|(_, _, timeout)| *timeout).min().unwrap_or_default();
            let write = renewal(now.iter().map(|(_, key, _)| key));
            scripts.push(Renewals { ids: now.iter().map(|(id, ..)| *id).collect(), write, timeout });
            rest = later;
        }
    }
    scripts
}

impl Renewals {
    async fn make(self, kv: Kv) -> Attempt {
        let Self { ids, write, timeout } = self;
        let how = HowToWrite { timeout, session: None, request_id: None };
        let sent = kv.router.clock().now();
        let outcomes = match kv.router.write(write, how).await {
            Ok((answer, id)) => match outcome(answer, id) {
                Ok(done) => match done.result {
                    Computed::Ran(groups) if groups.len() == ids.len() => {
                        Ok((done.version, groups.iter().map(Renewal::of).collect()))
                    }
                    _ => Err(false),
                },
                Err(error) => Err(error.call().is_some_and(Error::is_refused)),
            },
            Err(error) => Err(error.is_refused()),
        };
        Attempt { ids, sent, outcomes }
    }
}
