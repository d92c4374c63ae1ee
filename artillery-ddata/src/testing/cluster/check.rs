use std::{
    collections::BTreeSet,
    fmt,
    sync::{PoisonError, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;

use super::{Cluster, ClusterState, Trouble};
use crate::{Sequence, rpc::observer::book::text, store::ScanRecord, testing::verdict};

/// The timeout of each of the final reads: without a majority, some would never end.
const LAST_READ: Duration = Duration::from_secs(10);

/// The extent of a check that found nothing wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// The number of recorded calls by all handles, including those of the check: the lines of
    /// [`history`](Cluster::history).
    pub calls: usize,
    /// The number of keys that occurred in calls or were returned by scans.
    pub keys: usize,
    /// Whether the cluster has recovered, so that its members were compared, and each key was read at each node. Otherwise
    /// too many nodes are down.
    pub recovered: bool,
}

/// A check that failed. Its `Display` has the seed, the problem, and every call of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckFailed {
    /// The seed of the run.
    pub seed: u64,
    /// The problem.
    pub what: String,
    /// Every call of the run, one per line.
    pub history: String,
}

impl fmt::Display for CheckFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}\n\nall calls:\n{}", self.seed, self.what, self.history)
    }
}

impl std::error::Error for CheckFailed {}

impl Cluster {
    /// Ends all faults for the rest of the run, [heals](Self::heal), frees full disks, corrects the rate of clocks, waits
    /// in virtual time until all running nodes serve and the members agree, and checks the properties that the
    /// [module](crate::testing#what-is-checked) lists. May be called repeatedly, and while calls are in flight: their
    /// outcome is treated as unknown. [`set_trouble`](Self::set_trouble) restores random faults, but interruptions and
    /// crashes don't begin again.
    ///
    /// Nodes that the test has crashed or stopped stay down, and aren't checked. If the others have no majority then, or
    /// no member of a chain is left, the cluster can't recover: only the answers are checked (see
    /// [`Checked::recovered`]).
    ///
    /// # Panics
    /// If the check fails: with the seed, the problem, and every call.
    pub async fn check(&self) {
        if let Err(failed) = self.try_check().await {
            panic!("{failed}");
        }
    }

    /// Like [`check`](Self::check), but returns the failure.
    pub async fn try_check(&self) -> Result<Checked, CheckFailed> {
        let inner = &self.inner;
        inner.calm.store(true, Ordering::Relaxed);
        inner.set_trouble(&Trouble::none());
        self.heal();
        let failed = |what| CheckFailed { seed: inner.setup.seed, what, history: inner.history() };
        inner.machines().iter().for_each(|machine| machine.calm());
        inner.end_interruptions().await.map_err(failed)?;
        inner.witness.all_brought().await;
        let recovers = inner.can_recover();
        let recovered = inner.recover(recovers).await;
        let keys = inner.keys();
        let read = inner.read_all(&keys).await;
        let chains = inner.setup.config.chains.chains;
        let (calls, verdict) = inner.witness.with_book(|book| {
            let verdict = match book.contradictions.first() {
                Some(contradiction) => Err(contradiction.clone()),
                None => verdict::judge(&book.entries, chains),
            };
            (book.entries.len(), verdict)
        });
        // What callers have observed explains more than the state of a member.
        verdict.and(recovered).map_err(failed)?;
        if recovers {
            read.map_err(failed)?;
            inner.recover(recovers).await.and_then(|()| inner.compare()).map_err(failed)?;
        }
        Ok(Checked { calls, keys: keys.len(), recovered: recovers })
    }
}

impl ClusterState {
    /// Waits until the last interruption has ended, and with it the restart of a node.
    async fn end_interruptions(&self) -> Result<(), String> {
        // No code that holds the lock can panic halfway through a change.
        let interruptions = self.interruptions.lock().unwrap_or_else(PoisonError::into_inner).take();
        match interruptions {
            Some(task) => task.await.map_err(|error| format!("a random fault could not be ended: {error}")),
            None => Ok(()),
        }
    }

    /// Waits until the members agree, if the cluster can recover.
    async fn recover(&self, can: bool) -> Result<(), String> {
        self.find_halted().await?;
        if can { self.until_settled(true).await } else { Ok(()) }
    }

    /// A member that stopped serving has detected a fault of this crate.
    async fn find_halted(&self) -> Result<(), String> {
        for (machine, node) in self.running() {
            let halted = node.chain_states().await.into_iter().find_map(|status| status.halted);
            if let Some(halt) = halted {
                return Err(format!("{} stopped serving: {halt}", machine.name()));
            }
        }
        Ok(())
    }

    fn keys(&self) -> BTreeSet<Bytes> {
        self.witness.with_book(|book| book.entries.iter().flat_map(verdict::keys_of).collect())
    }

    /// Reads every key once more, at every running node: a lost write shows only in a later read. Returns the first error.
    async fn read_all(&self, keys: &BTreeSet<Bytes>) -> Result<(), String> {
        let mut read = Ok(());
        for (machine, node) in self.running() {
            let kv = node.kv().with_timeout(LAST_READ);
            for key in keys {
                if let Err(error) = kv.get(key).await {
                    read = read.and(Err(format!("{} can't read {}: {error}", machine.name(), text(key))));
                }
            }
        }
        read
    }

    /// Compares the stores of all members of each chain.
    fn compare(&self) -> Result<(), String> {
        let running: Vec<_> = self.running().collect();
        for config in self.routing().iter().flat_map(|routing| &routing.chains) {
            let mut first: Option<(&str, Vec<ScanRecord>)> = None;
            for (machine, node) in running.iter().filter(|(machine, _)| config.role(machine.id()).is_some()) {
                let held: Result<Vec<ScanRecord>, _> =
                    node.store().scan(config.chain, b"", Sequence(u64::MAX)).collect();
                let mut held = held.map_err(|error| error.to_string())?;
                // Stores drop tombstones at different times.
                held.retain(|record| record.held.value.is_some());
                let (before, expected) = first.get_or_insert_with(|| (machine.name(), held.clone()));
                if *expected != held {
                    let (a, b) = (before, machine.name());
                    return Err(format!("{a} and {b} hold different data: {expected:?} and {held:?}"));
                }
            }
        }
        Ok(())
    }
}
