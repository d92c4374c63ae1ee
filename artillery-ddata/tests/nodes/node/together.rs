//! Many operations in flight together, and operations on many keys.

use std::time::Duration;

use artillery_ddata::{Batch, Place};

use super::settled;
use crate::support::{PATIENCE, TestCluster, fixed, until, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_are_pipelined_and_none_is_lost() {
    let cluster = TestCluster::start(3).await;
    let kv = cluster.node(Place::Tail).kv();
    let writes = (0..2000).map(|n| tokio::spawn(kv.put(format!("key/{n}"), n.to_string()).into_future()));
    for write in writes.collect::<Vec<_>>() {
        within(write).await.unwrap().unwrap();
    }
    for n in 0..2000 {
        let read = within(cluster.nodes[n % 3].kv().get(&format!("key/{n}"))).await.unwrap();
        assert_eq!(read.into_value().unwrap(), n.to_string());
    }
}

/// All operations, in flight together from all nodes. Each is applied once, and a batch is observed whole or not at
/// all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_in_flight_together_apply_once() {
    let cluster = TestCluster::start(3).await;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..600u32 {
        let kv = cluster.nodes[n as usize % 3].kv().with_timeout(Duration::from_secs(20));
        calls.spawn(async move {
            match n % 3 {
                0 => assert!(!kv.increment("count", 1).await.unwrap().replayed),
                1 => assert!(!kv.append("log", "x").await.unwrap().replayed),
                _ => {
                    let value = n.to_string();
                    let batch = (0..10).fold(Batch::new(), |batch, key| batch.put(format!("b/{key}"), value.clone()));
                    kv.write(batch).await.unwrap();
                    let cut = kv.get_many((0..10).map(|key| format!("b/{key}"))).await.unwrap();
                    let values: Vec<_> = cut.values().collect();
                    assert!(values[0].is_some() && values.iter().all(|value| *value == values[0]), "{values:?}");
                }
            }
        });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
    for node in &cluster.nodes {
        let kv = node.kv();
        assert_eq!(within(kv.get("count")).await.unwrap().into_value().unwrap(), "200");
        assert_eq!(within(kv.get("log")).await.unwrap().into_value().unwrap().len(), 200);
        let mut scan = kv.scan("b/");
        let mut found = 0;
        while let Some(entry) = within(scan.next()).await {
            assert_eq!(entry.unwrap().key, format!("b/{found}"));
            found += 1;
        }
        assert_eq!(found, 10);
    }
}

/// Ten keys are rewritten together ten thousand times, while every node reads them together and scans them. Other keys
/// exist throughout, or are created and deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_of_many_keys_shows_half_of_a_rewrite() {
    const REWRITES: u32 = 10_000;
    // Several pages of a scan.
    const THROUGHOUT: u32 = 600;
    let cluster = TestCluster::start(3).await;
    let kv = cluster.node(Place::Head).kv().with_timeout(PATIENCE);
    let stays = (0..THROUGHOUT).map(|n| tokio::spawn(kv.put(format!("s/{n:04}"), "v").into_future()));
    for put in stays.collect::<Vec<_>>() {
        within(put).await.unwrap().unwrap();
    }
    let (done, is_done) = tokio::sync::watch::channel(false);
    let readers = cluster.nodes.iter().flat_map(|node| {
        let (cuts, scans) = (node.kv().with_timeout(PATIENCE), node.kv().with_timeout(PATIENCE));
        [tokio::spawn(read_together(cuts, is_done.clone())), tokio::spawn(scan_all(scans, THROUGHOUT, is_done.clone()))]
    });
    let readers: Vec<_> = readers.collect();

    let mut writes = tokio::task::JoinSet::new();
    for n in 0..REWRITES {
        let value = n.to_string();
        let batch = (0..10).fold(Batch::new(), |batch, key| batch.put(format!("b/{key}"), value.clone()));
        let comes = format!("s/{:04}x", n * 7 % THROUGHOUT);
        let batch = if n % 2 == 0 { batch.put(comes, value) } else { batch.delete(comes) };
        writes.spawn(kv.write(batch).into_future());
        if writes.len() >= 64 {
            within(writes.join_next()).await.unwrap().unwrap().unwrap();
        }
    }
    while let Some(write) = within(writes.join_next()).await {
        write.unwrap().unwrap();
    }
    done.send(true).unwrap();
    for reader in readers {
        assert!(within(reader).await.unwrap() > 0, "nothing was read");
    }
}

/// Reads the ten keys together until the end. Returns how often they had changed.
async fn read_together(kv: artillery_ddata::Kv, done: tokio::sync::watch::Receiver<bool>) -> u32 {
    let (mut changes, mut last) = (0, None);
    while !*done.borrow() {
        let cut = kv.get_many((0..10).map(|key| format!("b/{key}"))).await.unwrap();
        let values: Vec<_> = cut.values().collect();
        assert!(values.iter().all(|value| *value == values[0]), "half of a rewrite: {values:?}");
        let value = values[0].cloned();
        changes += u32::from(value != last);
        last = value;
    }
    changes
}

async fn scan_all(kv: artillery_ddata::Kv, throughout: u32, done: tokio::sync::watch::Receiver<bool>) -> u32 {
    let mut scans = 0;
    while !*done.borrow() {
        let (mut scan, mut found, mut last) = (kv.scan("s/"), 0, bytes::Bytes::new());
        while let Some(entry) = scan.next().await {
            let key = entry.unwrap().key;
            assert!(key > last, "{key:?} behind {last:?}");
            found += u32::from(!key.ends_with(b"x"));
            last = key;
        }
        assert_eq!(found, throughout, "keys that exist throughout");
        scans += 1;
    }
    scans
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_member_shows_each_change_once() {
    let cluster = TestCluster::start(3).await;
    let first = within(cluster.nodes[0].kv().put("w/first", "")).await.unwrap();
    let mut from = artillery_ddata::Frontier::default();
    from.raise(first.request_id.cluster, first.request_id.chain, first.version.sequence);
    let mut writes = tokio::task::JoinSet::new();
    for n in 0..200u32 {
        writes.spawn(cluster.nodes[n as usize % 3].kv().put(format!("w/{n}"), "v").into_future());
    }
    for node in &cluster.nodes {
        let mut watch = within(node.kv().watch("w/").from(from.clone()).into_future()).await.unwrap();
        let mut seen = std::collections::BTreeSet::new();
        let mut last = first.version;
        while seen.len() < 200 {
            let change = within(watch.next()).await.unwrap().unwrap();
            assert!(change.version > last && seen.insert(change.key));
            last = change.version;
        }
    }
    while let Some(done) = writes.join_next().await {
        done.unwrap().unwrap();
    }
}

/// A caller that stops waiting leaves an unknown outcome, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_puts_leave_nothing_behind() {
    const PUTS: usize = 100_000;
    let cluster = TestCluster::start_with(3, fixed).await;
    let kv = cluster.node(Place::Middle).kv();
    within(kv.put("first", "opens the session")).await.unwrap();
    settled(cluster.node(Place::Head)).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    let mut waiting = std::collections::VecDeque::new();
    for n in 0..PUTS {
        let mut put = kv.put(format!("key/{}", n % 100), vec![7; 100]).into_future();
        // Poll once, so that the put is at the chain or in flight. Two hundred puts later it is cancelled.
        let once = std::future::poll_fn(|context| {
            drop(put.as_mut().poll(context));
            std::task::Poll::Ready(())
        });
        once.await;
        waiting.push_back(put);
        if waiting.len() > 200 {
            waiting.pop_front();
            tokio::task::yield_now().await;
        }
    }
    waiting.clear();
    until(async || {
        let mut left = 0;
        for node in &cluster.nodes {
            let chain = &node.status().await.chains[0];
            left += chain.in_flight_bytes + chain.waiting_writes as u64 + chain.dirty_updates;
        }
        left == 0 && metrics.num_alive_tasks() <= before
    })
    .await;
    let put = within(kv.put("last", "v")).await.unwrap();
    let applied = put.version.sequence.0;
    assert!(applied > 100, "only {applied} updates: hardly any put reached the head");
}
