//! Measures how soon nodes serve again after a heal, and after the beginning of some faults.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    book::{Book, Family, Key},
    cluster::Cluster,
    door::{Ask, Resp},
    fault::name,
    set::NodeSet,
};

/// The time within which each node must have served a write and a read.
pub(super) const BOUND: Duration = Duration::from_secs(5);
/// The same if all members of the chain were down: restarted members wait two seconds for the others, and for the
/// previous leases to expire.
pub(super) const REOPEN_BOUND: Duration = Duration::from_secs(10);
/// When to stop asking after a heal, and after the beginning of a fault.
pub(super) const END: Duration = Duration::from_secs(30);
pub(super) const BEGIN_END: Duration = Duration::from_secs(8);
/// The timeout of one attempt: short, so that an attempt that hangs doesn't hide that the next one succeeds.
const ATTEMPT: Duration = Duration::from_millis(500);
const BETWEEN: Duration = Duration::from_millis(20);

/// When a node first served, in milliseconds since the heal or the beginning of the fault; `None` if it did not by the
/// end.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Regained {
    pub(super) node: String,
    pub(super) write_ms: Option<u64>,
    pub(super) read_ms: Option<u64>,
}

impl Regained {
    pub(super) fn in_time(&self, bound_ms: u64) -> bool {
        [self.write_ms, self.read_ms].iter().all(|ms| ms.is_some_and(|ms| ms <= bound_ms))
    }
}

/// Asks each of these nodes until it has served a write and a read, or until `end` has passed since `since`.
pub(super) async fn watch(book: &Arc<Book>, nodes: NodeSet, since: Instant, end: Duration) -> Vec<Regained> {
    let mut asking = JoinSet::new();
    for node in nodes.iter() {
        let book = book.clone();
        asking.spawn(async move {
            let first = |reads| first(&book, node, since, end, reads);
            let (write_ms, read_ms) = tokio::join!(first(false), first(true));
            Regained { node: name(node), write_ms, read_ms }
        });
    }
    let mut all = asking.join_all().await;
    all.sort_by(|one, other| one.node.cmp(&other.node));
    all
}

async fn first(book: &Book, node: usize, since: Instant, end: Duration, reads: bool) -> Option<u64> {
    let client = book.client();
    let mut door = Resp::new(Cluster::resp(node)).patience(ATTEMPT);
    let key = book.keys().find(|key| key.family() == Family::Plain)?;
    while since.elapsed() < end {
        let ask = if reads { Ask::Get } else { Ask::Set(book.value()) };
        let reply = book.ask(client, &mut door, key, ask).await;
        if reply.is_good() {
            return Some(since.elapsed().as_millis() as u64);
        }
        sleep(BETWEEN).await;
    }
    None
}

/// Reads every key of the current generation at every node, so that the checker sees whether acknowledged writes
/// survived.
pub(super) async fn read_back(book: &Book, nodes: usize) {
    let client = book.client();
    for node in 0..nodes {
        let mut door = Resp::new(Cluster::resp(node));
        for key in book.keys() {
            let _ = book.ask(client, &mut door, key, read(key)).await;
        }
    }
}

/// Reads every key of the run once, so that the checker sees whether acknowledged writes survived.
pub(super) async fn read_all_back(book: &Book, nodes: usize) {
    let client = book.client();
    let mut doors: Vec<_> = (0..nodes).map(|node| Resp::new(Cluster::resp(node))).collect();
    for (key, place) in book.all_keys().zip((0..nodes).cycle()) {
        let _ = book.ask(client, &mut doors[place], key, read(key)).await;
    }
}

fn read(key: Key) -> Ask {
    match key.family() {
        Family::Plain => Ask::Get,
        Family::Versioned => Ask::Look,
        Family::Counter => Ask::Count,
    }
}
