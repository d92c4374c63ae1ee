//! Dirty reads: reads of a key under constant writes, at a node where its newest version isn't known to be committed.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use artillery_ddata::{Error, Kv, Node, ReadMode, Version, kv::ReadState};
use artillery_programs::{exit::Failure, story::Story};
use tokio::task::JoinSet;

use super::ledger::{Acked, Ledger};

const HOT: &str = "hot";
const WRITERS: usize = 4;
const READERS: usize = 4;
const ROUND: usize = 50;
/// The maximum number of rounds: whether a read is dirty depends on timing.
const ROUNDS: usize = 10;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Met {
    pub(super) reads: u64,
    pub(super) queries: u64,
}

#[derive(Default)]
struct DirtyRound {
    over: AtomicBool,
    /// Sequence of the newest acknowledged write.
    committed: AtomicU64,
}

/// Writes one key at the head from several concurrent tasks, while head and middle read it.
pub(super) async fn provoke(story: &Story, nodes: &[Node], ledger: &mut Ledger) -> Result<Met, Failure> {
    story.say("Now several tasks write one key at the head, while head and middle read it …");
    let mut eventual = 0;
    for round in 0..ROUNDS {
        eventual += play(nodes, round, ledger).await?;
        let met = met(nodes).await;
        if met.reads > 0 && met.queries > 0 {
            let Met { reads, queries } = met;
            story.say(&format!(
                "{reads} strong reads found a dirty version; {queries} version queries to the tail resolved them."
            ));
            story.say(&format!(
                "{eventual} eventual reads returned a version before it was committed, and marked it as dirty."
            ));
            return Ok(met);
        }
    }
    Err(Failure::failed("no read found a dirty version"))
}

/// Runs one round. Returns the number of eventual reads that were dirty.
async fn play(nodes: &[Node], number: usize, ledger: &mut Ledger) -> Result<u64, Failure> {
    let round = Arc::new(DirtyRound::default());
    let mut readers = JoinSet::new();
    let upstream = &nodes[..nodes.len() - 1];
    for node in upstream {
        for _ in 0..READERS {
            readers.spawn(read(node.kv(), node.name().to_owned(), round.clone()));
        }
        readers.spawn(peek(node.kv(), round.clone()));
    }
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(nodes[0].kv(), format!("{number}.{writer}"), round.clone()));
    }
    while let Some(acked) = writers.join_next().await {
        acked.map_err(Failure::failed)??.into_iter().for_each(|acked| ledger.add(HOT, acked));
    }
    round.over.store(true, Ordering::SeqCst);
    let mut eventual = 0;
    while let Some(dirty) = readers.join_next().await {
        eventual += dirty.map_err(Failure::failed)??;
    }
    Ok(eventual)
}

async fn write(kv: Kv, writer: String, round: Arc<DirtyRound>) -> Result<Vec<Acked>, Error> {
    let mut acked = Vec::new();
    for number in 0..ROUND {
        let value = format!("write {number} of {writer}");
        let version = kv.put(HOT, value.clone()).await?.version;
        round.committed.fetch_max(version.sequence.0, Ordering::SeqCst);
        acked.push(Acked { version, value });
    }
    Ok(acked)
}

/// Strong reads: none may be older than a write acknowledged before it began, or than the previous read. Returns 0,
/// since only eventual reads are counted.
async fn read(kv: Kv, name: String, round: Arc<DirtyRound>) -> Result<u64, Failure> {
    let mut before = Version::NONE;
    while !round.over.load(Ordering::SeqCst) {
        let committed = round.committed.load(Ordering::SeqCst);
        let version = kv.get(HOT).await?.version();
        if version < before || version.sequence.0 < committed {
            let older = format!("at {name}, {version} was read after {before}, with {committed} acknowledged");
            return Err(Failure::failed(older));
        }
        before = version;
        // Reads from memory complete at once: without this they would starve the other tasks.
        tokio::task::yield_now().await;
    }
    Ok(0)
}

/// Eventual reads, which may be dirty. Returns how many were marked as dirty.
async fn peek(kv: Kv, round: Arc<DirtyRound>) -> Result<u64, Failure> {
    let mut dirty = 0;
    while !round.over.load(Ordering::SeqCst) {
        let read = kv.get(HOT).mode(ReadMode::Eventual).await?;
        dirty += u64::from(read.state == ReadState::Dirty);
        tokio::task::yield_now().await;
    }
    Ok(dirty)
}

async fn met(nodes: &[Node]) -> Met {
    let mut met = Met::default();
    for node in nodes {
        let reads = node.status().await.reads;
        met.reads += reads.dirty;
        met.queries += reads.version_query;
    }
    met
}
