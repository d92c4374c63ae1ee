//! Renews the keys of all guards and registrations of a process: the keys of a chain that are due at about the same time
//! share one script.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use artillery_core::internal::clock;
use artillery_proto::recipes::renewal::{MAX_RENEWALS, Renewal, RenewedKey, renewal};
use tokio::{sync::Notify, task::JoinSet, time::sleep};

use crate::{
    ChainId, Kv, Timestamp,
    api::{Computed, Write},
    control::chain_of,
    kv::outcome,
    rpc::router::HowToWrite,
};

/// The bytes of keys and values that one script may have.
const MAX_BYTES: usize = 256 << 10;
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

/// Receives the outcome of an attempt, and when it was sent and answered.
pub(super) type Report = Arc<dyn Fn(Renewal, Timestamp, Timestamp) -> NextRenewal + Send + Sync>;

/// A key that is kept by renewals.
pub(super) struct Renewed {
    pub(super) key: RenewedKey,
    pub(super) due: Timestamp,
    /// The longest time that an attempt may take.
    pub(super) timeout: Duration,
    pub(super) report: Report,
}

/// One for each router.
#[derive(Default)]
pub(super) struct Renewer {
    state: Mutex<RenewerState>,
    wake: Notify,
}

#[derive(Default)]
struct RenewerState {
    renewed: BTreeMap<u64, Renewed>,
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
        state.renewed.insert(id, renewed);
        if !std::mem::replace(&mut state.is_running, true) {
            kv.runtime().spawn(run(renewer.clone(), kv.clone()));
        }
        drop(state);
        renewer.wake.notify_one();
        Self { renewer, id }
    }

    /// Renews the key as soon as possible.
    pub(super) fn hurry(&self) {
        if let Some(renewed) = self.renewer.lock().renewed.get_mut(&self.id)
            && renewed.due != Timestamp::MAX
        {
            renewed.due = Timestamp::ZERO;
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
    outcomes: Vec<Renewal>,
}

async fn run(renewer: Arc<Renewer>, kv: Kv) {
    let mut attempts = JoinSet::new();
    while let Some(wait) = renewer.begin(&kv, &mut attempts) {
        tokio::select! {
            biased;
            Some(ended) = attempts.join_next(), if !attempts.is_empty() => {
                if let Ok(attempt) = ended {
                    renewer.end(attempt);
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
        let now = clock::now();
        if state.renewed.values().any(|renewed| renewed.due <= now)
            && let Some(routing) = kv.router.known()
        {
            for (ids, write, timeout) in scripts(&mut state.renewed, now, routing.chains.len() as u32) {
                attempts.spawn(attempt(kv.clone(), ids, write, timeout.min(kv.timeout())));
            }
        }
        let next = state.renewed.values().map(|renewed| renewed.due).min()?;
        Some((next - now).clamp(Duration::from_millis(1), MAX_SLEEP))
    }

    fn end(&self, Attempt { ids, sent, outcomes }: Attempt) {
        let now = clock::now();
        for (id, outcome) in ids.into_iter().zip(outcomes) {
            // The report takes locks of its own, whose holders may begin other renewals.
            let Some(report) = self.lock().renewed.get(&id).map(|renewed| renewed.report.clone()) else { continue };
            let next = report(outcome, sent, now);
            let mut state = self.lock();
            let Some(renewed) = state.renewed.get_mut(&id) else { continue };
            match next {
                NextRenewal::At(due) => renewed.due = due,
                NextRenewal::Retry => {
                    let pause = renewed.timeout / 10;
                    renewed.due = now + pause.clamp(Duration::from_millis(10), Duration::from_secs(1));
                }
                NextRenewal::Never => drop(state.renewed.remove(&id)),
            }
        }
    }
}

/// The scripts that renew the keys that are due. A key that is being renewed is due at [`Timestamp::MAX`].
fn scripts(renewed: &mut BTreeMap<u64, Renewed>, now: Timestamp, chains: u32) -> Vec<(Vec<u64>, Write, Duration)> {
    let mut by_chain = BTreeMap::<ChainId, Vec<(u64, RenewedKey, Duration)>>::new();
    for (&id, renewed) in renewed {
        if renewed.due <= now + renewed.timeout / EARLY_PART {
            renewed.due = Timestamp::MAX;
            let chain = chain_of(&renewed.key.key, chains);
            by_chain.entry(chain).or_default().push((id, renewed.key.clone(), renewed.timeout));
        }
    }
    let mut scripts = Vec::new();
    for keys in by_chain.into_values() {
        let mut rest = &keys[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take(MAX_RENEWALS).take_while(|(_, key, _)| {
                bytes += 2 * key.key.len() + key.value.as_ref().map_or(0, |value| value.len());
                bytes <= MAX_BYTES
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            let timeout = now.iter().map(|(_, _, timeout)| *timeout).min().unwrap_or_default();
            scripts.push((
                now.iter().map(|(id, ..)| *id).collect(),
                renewal(now.iter().map(|(_, key, _)| key)),
                timeout,
            ));
            rest = later;
        }
    }
    scripts
}

async fn attempt(kv: Kv, ids: Vec<u64>, write: Write, timeout: Duration) -> Attempt {
    let how = HowToWrite { timeout, session: None, request_id: None };
    let sent = clock::now();
    let done = kv.router.write(write, how).await.ok().and_then(|(answer, id)| outcome(answer, id).ok());
    let outcomes = match done.map(|done| done.result) {
        Some(Computed::Ran(groups)) if groups.len() == ids.len() => groups.iter().map(Renewal::of).collect(),
        _ => vec![Renewal::Unknown; ids.len()],
    };
    Attempt { ids, sent, outcomes }
}
