//! Writers that write until the nodes are killed under them, and readers of what they have written.

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

/// Writers.
pub const WRITERS: usize = 64;
/// Writes in flight of each writer.
pub const IN_FLIGHT: usize = 32;
/// Clients that the writers share.
pub const CLIENTS: usize = 8;

/// Numbers of values from here on are those of writers.
const FIRST: u64 = 1 << 40;
/// A read waits so long for nodes that are starting.
const READ_TIMEOUT: Duration = Duration::from_secs(1800);

/// What was written to one key.
#[derive(Debug, Default)]
struct Entry {
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

/// What the writers have written: each of their writes in flight has a key of its own.
#[derive(Debug)]
pub struct Ledger(Vec<Entry>);

impl Ledger {
    /// Nothing is written.
    pub fn new() -> Arc<Self> {
        Arc::new(Self((0..WRITERS * IN_FLIGHT).map(|_| Entry::default()).collect()))
    }

    /// Writes that were acknowledged.
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

    /// A strong read of one of the keys must find what was acknowledged last, or a write of which nothing is known.
    async fn read(&self, kv: &Kv, at: usize) -> Result<(), Failed> {
        let (begun, acknowledged) = (self.0[at].begun.load(Relaxed), self.0[at].acknowledged.load(Relaxed));
        let read = kv.get(&key(at as u64)).await?;
        let found = read.value().ok_or("a key is gone")?;
        let is_first = acknowledged == 0 && holds(found, at as u64, VALUE_BYTES);
        if is_first || (acknowledged.max(1)..=begun).any(|number| holds(found, FIRST + number, VALUE_BYTES)) {
            return Ok(());
        }
        Err(format!("an acknowledged write is gone: key {at}, of {acknowledged} acknowledged writes").into())
    }
}

/// Writers at work.
#[derive(Debug)]
pub struct Writers(JoinSet<Result<(), Failed>>);

impl Writers {
    /// Lets all writers write.
    pub fn start(clients: &[Client], ledger: &Arc<Ledger>) -> Self {
        let mut tasks = JoinSet::new();
        for at in 0..WRITERS * IN_FLIGHT {
            let (kv, ledger) = (clients[(at / IN_FLIGHT) % clients.len()].kv(), ledger.clone());
            tasks.spawn(async move { ledger.write_on(&kv, at).await });
        }
        Self(tasks)
    }

    /// Ends all writers, also those that wait for an answer.
    ///
    /// # Errors
    /// A write has failed before.
    pub async fn end(mut self) -> Result<(), Failed> {
        if let Some(ended) = self.0.try_join_next() {
            return ended?;
        }
        self.0.shutdown().await;
        Ok(())
    }
}

/// Reads each key of the writers once, as soon as nodes answer.
///
/// # Errors
/// A read fails or finds something else than was acknowledged.
pub async fn read_all(contact: Contact, ledger: Arc<Ledger>) -> Result<(), Failed> {
    let mut tasks = JoinSet::new();
    let clients = contact.connect_all(CLIENTS).await;
    for at in 0..WRITERS * IN_FLIGHT {
        let (kv, ledger) = (clients[at % clients.len()].kv().with_timeout(READ_TIMEOUT), ledger.clone());
        tasks.spawn(async move { ledger.read(&kv, at).await });
    }
    join(tasks).await
}
