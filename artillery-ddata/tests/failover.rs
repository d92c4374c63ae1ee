//! Members that are gone: others take their places, and nothing that was acknowledged is lost.
#![allow(missing_docs)]

#[path = "support/mod.rs"]
mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use artillery_ddata::{Kv, Node, Place};
use support::{TestCluster, until, within};
use tokio::task::JoinSet;

/// Writers, each of which counts up in a key of its own and knows what was acknowledged.
struct Load {
    over: Arc<AtomicBool>,
    writers: JoinSet<(String, u64)>,
}

impl Load {
    fn begin(kv: &Kv, writers: u32) -> Self {
        let over = Arc::<AtomicBool>::default();
        let mut all = JoinSet::new();
        for writer in 0..writers {
            let (kv, over) = (kv.clone().with_timeout(support::PATIENCE), over.clone());
            all.spawn(async move {
                let (key, mut count) = (format!("count/{writer}"), 0);
                while !over.load(Ordering::Relaxed) {
                    // Exactly once, whatever happens on the way.
                    within(kv.increment(&*key, 1)).await.unwrap();
                    count += 1;
                }
                (key, count)
            });
        }
        Self { over, writers: all }
    }

    async fn end(mut self) -> Vec<(String, u64)> {
        self.over.store(true, Ordering::Relaxed);
        let mut counts = Vec::new();
        while let Some(count) = self.writers.join_next().await {
            counts.push(count.unwrap());
        }
        counts
    }
}

async fn holds(nodes: &[&Node], counts: &[(String, u64)]) {
    for node in nodes {
        for (key, count) in counts {
            let read = within(node.kv().with_timeout(support::PATIENCE).get(key)).await.unwrap();
            let value = read.into_value().unwrap();
            assert_eq!(value, count.to_string(), "{key} at {node:?}");
        }
    }
}

/// How often the present configuration names so many members.
async fn members(node: &Node, count: usize) {
    until(async || {
        let status = node.status().await;
        status.chains.first().is_some_and(|chain| chain.members.len() == count && chain.open)
    })
    .await;
}

/// A node of a cluster of so many is gone in the middle of writes by the others.
async fn lose(nodes: u32, place: Place, silently: bool) {
    let mut cluster = TestCluster::start(nodes).await;
    let at = cluster.index(place);
    let gone = cluster.nodes.remove(at);
    let cuts = cluster.cuts.remove(at);
    let survivors: Vec<_> = cluster.nodes.iter().collect();
    let loads: Vec<_> = survivors.iter().map(|node| Load::begin(&node.kv(), 4)).collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let begin = Instant::now();
    if silently {
        for (other, theirs) in cluster.nodes.iter().zip(&cluster.cuts) {
            cuts.cut(other.addr());
            theirs.cut(gone.addr());
        }
    } else {
        gone.shutdown().await;
    }
    let epoch = survivors[0].status().await.chains[0].epoch;
    members(survivors[0], 2).await;
    within(survivors[0].kv().with_timeout(support::PATIENCE).put("after", "v")).await.unwrap();
    println!("{place} gone, silently: {silently}; first write of another configuration after {:?}", begin.elapsed());
    assert!(survivors[0].status().await.chains[0].epoch > epoch);
    let mut sums = std::collections::BTreeMap::new();
    for load in loads {
        for (key, count) in load.end().await {
            *sums.entry(key).or_insert(0) += count;
        }
    }
    let counts: Vec<_> = sums.into_iter().collect();
    holds(&survivors, &counts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_head_is_gone() {
    lose(3, Place::Head, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_middle_is_gone() {
    lose(3, Place::Middle, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tail_is_gone() {
    lose(3, Place::Tail, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_head_is_gone_without_a_word() {
    lose(3, Place::Head, true).await;
}
