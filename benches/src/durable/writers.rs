//! Writers that write until the nodes are killed, and readers that verify the writes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use artillery_ddata::{Client, Kv};
use tokio::task::JoinSet;

use super::{
    records::{VALUE_BYTES, key},
    site::Contact,
};
use crate::{
    load::{holds, value},
    throughput::{Failed, crew::join},
};

/// The number of writers.
pub const WRITERS: usize = 64;
/// Writes in flight of each writer.
pub const IN_FLIGHT: usize = 32;
/// Clients that the writers share.
pub const CLIENTS: usize = 8;

/// The first number of the writers' values; lower ones are the records' first values.
const FIRST: u64 = 1 << 40;
/// How long a read waits for nodes that are starting.
const READ_TIMEOUT: Duration = Duration::from_secs(1800);

/// The numbers of the last write begun on one key and of the last one acknowledged.
#[derive(Debug, Default)]
struct Entry {
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

/// The writes of all writers: each write in flight has its own key.
#[derive(Debug)]
pub struct Ledger(Vec<Entry>);

impl Ledger {
    /// A ledger without writes.
    pub fn new() -> Arc<Self> {
        Arc::new(Self((0..WRITERS * IN_FLIGHT).map(|_| Entry::default()).collect()))
    }

    /// The number of acknowledged writes.
    pub fn acknowledged(&self) -> u64 {
        self.0.iter().map(|entry| entry.acknowledged.load(Relaxed)).sum()
    }

    async fn write_on(&self, kv: &Kv, at: usize) -> Result<(), Failed> {
        let entry = &self.0[at];
        loop {
            let number = entry.begun.fetch_add(1, Relaxed) + 1;
            kv.put(key(at as u64), value(FIRST + number, VALUE_BYTES)).await?;
            entry.acknowledged.store(number, Relaxed);
        }
    }

    /// Checks that a strong read finds the last acknowledged write of the key, or a later one of unknown outcome.
    async fn read(&self, kv: &Kv, at: usize) -> Result<(), Failed> {
        let (begun, acknowledged) = (self.0[at].begun.load(Relaxed), self.0[at].acknowledged.load(Relaxed));
        let read = kv.get(&key(at as u64)).await?;
        let found = read.value().ok_or("a key is missing")?;
        let is_first = acknowledged == 0 && holds(found, at as u64, VALUE_BYTES);
        if is_first || (acknowledged.max(1)..=begun).any(|number| holds(found, FIRST + number, VALUE_BYTES)) {
            return Ok(());
        }
        Err(format!("an acknowledged write is missing: key {at} with {acknowledged} acknowledged writes").into())
    }
}

/// Running writers.
#[derive(Debug)]
pub struct Writers(JoinSet<Result<(), Failed>>);

impl Writers {
    /// Starts all writers.
    pub fn start(clients: &[Client], ledger: &Arc<Ledger>) -> Self {
        let mut tasks = JoinSet::new();
        for at in 0..WRITERS * IN_FLIGHT {
            let (kv, ledger) = (clients[(at / IN_FLIGHT) % clients.len()].kv(), ledger.clone());
            tasks.spawn(async move { ledger.write_on(&kv, at).await });
        }
        Self(tasks)
    }

    /// Aborts all writers, including writers that wait for an answer. Fails if a writer has already ended with an
    /// error.
    pub async fn end(mut self) -> Result<(), Failed> {
        if let Some(ended) = self.0.try_join_next() {
            return ended?;
        }
        self.0.shutdown().await;
        Ok(())
    }
}

/// Reads each key of the writers once, as soon as nodes answer.
pub async fn read_all(contact: Contact, ledger: Arc<Ledger>) -> Result<(), Failed> {
    let mut tasks = JoinSet::new();
    let clients = contact.connect_all(CLIENTS).await;
    for at in 0..WRITERS * IN_FLIGHT {
        let (kv, ledger) = (clients[at % clients.len()].kv().with_timeout(READ_TIMEOUT), ledger.clone());
        tasks.spawn(async move { ledger.read(&kv, at).await });
    }
    join(tasks).await
}
