//! Counters, each incremented by one client while others read it. Each read is checked against the increments
//! acknowledged before it began, the increments begun before it ended, and every read that ended before it began.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use artillery_ddata::{Error, Kv, RequestId, kv::Resolution};
use artillery_processes::Members;
use tokio::{task::JoinSet, time::sleep};

/// Short, so that failovers leave unknown outcomes, which must then be settled by queries.
const WRITE_TIMEOUT: Duration = Duration::from_millis(400);
/// Number of connections that the writers share.
const CLIENTS: usize = 4;
/// Number of readers; each cycles through all counters.
const READERS: usize = 6;

#[derive(Default)]
struct Counter {
    begun: AtomicU64,
    acknowledged: AtomicU64,
    seen: AtomicU64,
}

#[allow(dead_code, reason = "all of it is printed")]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum {
    acknowledged: u64,
    unknown: u64,
    reads: u64,
    refused_reads: u64,
}

#[derive(Default)]
struct CountersShared {
    prefix: String,
    counters: Vec<Counter>,
    over: AtomicBool,
    unknown: AtomicU64,
    reads: AtomicU64,
    refused: AtomicU64,
}

/// Counters under a load that runs until [`Counters::end`].
pub(crate) struct Counters {
    shared: Arc<CountersShared>,
    tasks: JoinSet<()>,
}

fn number(bytes: &[u8]) -> u64 {
    std::str::from_utf8(bytes).unwrap().parse().unwrap()
}

impl CountersShared {
    fn key(&self, at: usize) -> String {
        format!("{}/{at}", self.prefix)
    }

    async fn write(self: Arc<Self>, kv: Kv, at: usize) {
        let counter = &self.counters[at];
        let key = self.key(at);
        while !self.over.load(SeqCst) {
            let next = counter.acknowledged.load(SeqCst) + 1;
            counter.begun.store(next, SeqCst);
            match kv.increment(&*key, 1).timeout(WRITE_TIMEOUT).await {
                Ok(_) => counter.acknowledged.store(next, SeqCst),
                Err(Error::OutcomeUnknown { request_id, .. }) => {
                    self.unknown.fetch_add(1, SeqCst);
                    if settle(&kv, request_id).await {
                        counter.acknowledged.store(next, SeqCst);
                    }
                }
                Err(error) if error.is_not_applied() => {}
                Err(error) => panic!("{key}: {error}"),
            }
        }
    }

    async fn read(self: Arc<Self>, kv: Kv, first: usize) {
        let all = self.counters.len();
        for at in (0..all).map(|at| (at + first) % all).cycle() {
            if self.over.load(SeqCst) {
                return;
            }
            let counter = &self.counters[at];
            let floor = counter.acknowledged.load(SeqCst).max(counter.seen.load(SeqCst));
            match kv.get(&self.key(at)).timeout(WRITE_TIMEOUT).await {
                Ok(read) => {
                    let value = read.into_value().map_or(0, |value| number(&value));
                    let most = counter.begun.load(SeqCst);
                    assert!(floor <= value, "{at}: read {value} after {floor} had been acknowledged or read");
                    assert!(value <= most, "{at}: read {value}, only {most} had been begun");
                    counter.seen.fetch_max(value, SeqCst);
                    self.reads.fetch_add(1, SeqCst);
                }
                Err(_) => drop(self.refused.fetch_add(1, SeqCst)),
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Queries the outcome of a request until it is known. Returns whether it was applied.
async fn settle(kv: &Kv, request: RequestId) -> bool {
    loop {
        match kv.resolve(request).await {
            Ok(Resolution::Applied(_)) => return true,
            Ok(Resolution::NeverApplied) => return false,
            Ok(other) => panic!("{request}: {other:?}"),
            Err(error) => println!("{request} is not settled yet: {error}"),
        }
    }
}

impl Counters {
    pub(crate) async fn start(members: &Members, prefix: &str, counters: usize) -> Self {
        let all = (0..counters).map(|_| Counter::default()).collect();
        let shared = Arc::new(CountersShared { prefix: prefix.to_owned(), counters: all, ..CountersShared::default() });
        let mut tasks = JoinSet::new();
        for client in 0..CLIENTS {
            let kv = members.kv().await;
            for at in (client..counters).step_by(CLIENTS) {
                tasks.spawn(shared.clone().write(kv.clone(), at));
            }
        }
        for reader in 0..READERS {
            tasks.spawn(shared.clone().read(members.kv().await, reader * counters / READERS));
        }
        Self { shared, tasks }
    }

    /// The number of acknowledged increments up to now.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.shared.counters.iter().map(|counter| counter.acknowledged.load(SeqCst)).sum()
    }

    /// Ends the load, and checks that each counter equals its acknowledged increments.
    pub(crate) async fn end(mut self, members: &Members) -> Sum {
        self.shared.over.store(true, SeqCst);
        std::mem::take(&mut self.tasks).join_all().await;
        let kv = members.kv().await;
        for (at, counter) in self.shared.counters.iter().enumerate() {
            let value = kv.get(&self.shared.key(at)).await.unwrap().into_value().map_or(0, |value| number(&value));
            assert_eq!(value, counter.acknowledged.load(SeqCst), "{}", self.shared.key(at));
        }
        let count = |count: &AtomicU64| count.load(SeqCst);
        Sum {
            acknowledged: self.acknowledged(),
            unknown: count(&self.shared.unknown),
            reads: count(&self.shared.reads),
            refused_reads: count(&self.shared.refused),
        }
    }
}
