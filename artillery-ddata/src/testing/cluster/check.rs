use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::sleep;

use super::{Cluster, ClusterState, Trouble};
use crate::{
    ChainId, Sequence,
    replica::Status,
    rpc::observer::book::text,
    store::ScanRecord,
    testing::{node::TestMember, verdict},
};

/// How long the members may take to agree, in virtual time.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(120);
/// The timeout of each of the final reads: in a chain with a crashed member, some would never end.
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
    /// Ends all faults for the rest of the run, [heals](Self::heal), waits in virtual time until the members agree, and
    /// checks the properties that the [module](crate::testing#what-is-checked) lists. May be called repeatedly, and
    /// while calls are in flight: their outcome is treated as unknown. [`set_trouble`](Self::set_trouble) restores
    /// random faults, but interruptions don't begin again.
    ///
    /// Crashed members are not checked. In a chain with a crashed member the others need not agree.
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
        inner.settle().await.map_err(failed)?;
        let keys = inner.keys();
        inner.read_all(&keys).await;
        inner.compare().map_err(failed)?;
        let chains = inner.routing().chains.len() as u32;
        let (calls, verdict) = inner.witness.with_book(|book| {
            let verdict = match book.contradictions.first() {
                Some(contradiction) => Err(contradiction.clone()),
                None => verdict::judge(&book.entries, chains),
            };
            (book.entries.len(), verdict)
        });
        verdict.map_err(failed)?;
        Ok(Checked { calls, keys: keys.len() })
    }
}

impl ClusterState {
    fn alive(&self) -> impl Iterator<Item = Arc<TestMember>> {
        let crashed = self.crashed().clone();
        self.members().into_iter().filter(move |member| !crashed.contains(&member.id.node))
    }

    fn is_whole(&self, chain: ChainId) -> bool {
        let crashed = self.crashed();
        let routing = self.routing();
        let config = routing.chain(chain);
        config.is_some_and(|config| config.members.iter().all(|member| !crashed.contains(&member.id.node)))
    }

    /// Waits until all late requests have arrived, and the members of each chain without a crashed member agree.
    async fn settle(&self) -> Result<(), String> {
        self.witness.all_brought().await;
        let step = Duration::from_millis(20);
        let mut waited = Duration::ZERO;
        loop {
            let mut statuses = Vec::new();
            for member in self.alive() {
                statuses.extend(member.statuses().await);
            }
            if let Some(halt) = statuses.iter().find_map(|status| status.halted.as_ref()) {
                return Err(format!("a member stopped serving: {halt}"));
            }
            let agree = |chain| !self.is_whole(chain) || agree(chain, &statuses);
            if (0..self.routing().chains.len() as u32).map(ChainId).all(agree) {
                return Ok(());
            }
            if waited >= AGREEMENT_TIMEOUT {
                return Err(format!("the members don't agree after {waited:?}: {statuses:#?}"));
            }
            sleep(step).await;
            waited += step;
        }
    }

    fn keys(&self) -> BTreeSet<Bytes> {
        self.witness.with_book(|book| book.entries.iter().flat_map(verdict::keys_of).collect())
    }

    /// Reads every key once more, at every live node: a lost write shows only in a later read.
    async fn read_all(&self, keys: &BTreeSet<Bytes>) {
        for member in self.alive() {
            let kv = member.kv().with_timeout(LAST_READ);
            for key in keys {
                // In a chain with a crashed member a key may stay dirty forever.
                if let Err(error) = kv.get(key).await {
                    tracing::debug!(key = text(key), %error, "a final read failed");
                }
            }
        }
    }

    /// Compares the stores of all members of each chain without a crashed member.
    fn compare(&self) -> Result<(), String> {
        let (members, routing) = (self.members(), self.routing());
        for config in routing.chains.iter().filter(|config| self.is_whole(config.chain)) {
            let mut first: Option<(&TestMember, Vec<ScanRecord>)> = None;
            for member in members.iter().filter(|member| config.role(member.id).is_some()) {
                let scanned = member.store.scan(config.chain, b"", Sequence(u64::MAX));
                let held: Result<Vec<ScanRecord>, _> = scanned.collect();
                let mut held = held.map_err(|error| error.to_string())?;
                // Stores drop tombstones at different times.
                held.retain(|record| record.held.value.is_some());
                let (before, expected) = first.get_or_insert_with(|| (member, held.clone()));
                if *expected != held {
                    let (a, b) = (before.name(), member.name());
                    return Err(format!("{a} and {b} hold different data: {expected:?} and {held:?}"));
                }
            }
        }
        Ok(())
    }
}

fn agree(chain: ChainId, statuses: &[Status]) -> bool {
    let of_chain = |status: &&Status| status.config.as_ref().is_some_and(|config| config.chain == chain);
    let mut of_chain = statuses.iter().filter(of_chain);
    let Some(first) = of_chain.clone().next() else { return false };
    of_chain.all(|status| {
        status.open && status.last == first.last && status.watermark == first.last.sequence && status.in_flight == 0
    })
}
