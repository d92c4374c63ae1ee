//! Whole nodes on loopback: a chain forms, writes commit, reads are served everywhere.
#![allow(missing_docs)]

mod support;

use std::time::Duration;

use artillery_ddata::{Batch, Error, Place, ReadMode, ReadState, Session, Version, Way, client::Spread};
use support::{PATIENCE, TestCluster, classic, until, within};

const SHORT: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_form_a_chain_that_works_at_every_node() {
    let cluster = TestCluster::start(3).await;
    let mut roles: Vec<_> = cluster.nodes.iter().map(|node| node.role()).collect();
    roles.sort();
    assert_eq!(roles, [Place::Head, Place::Middle, Place::Tail]);
    for (n, node) in cluster.nodes.iter().enumerate() {
        let key = format!("key/{n}");
        let put = within(node.kv().put(&key, "v")).await.unwrap();
        assert_eq!(put.copies, 3);
        for reader in &cluster.nodes {
            let read = within(reader.kv().get(&key)).await.unwrap();
            assert_eq!(read.value().map(|value| &value[..]), Some(&b"v"[..]));
            assert_eq!((read.version(), read.state), (put.version, ReadState::Clean));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_mean_what_they_say() {
    let cluster = TestCluster::start(3).await;
    let kv = cluster.node(Place::Middle).kv();
    let created = within(kv.compare_and_swap("k", Version::NONE, "1")).await.unwrap().unwrap();
    let conflict = within(kv.compare_and_swap("k", Version::NONE, "2")).await.unwrap().unwrap_err();
    assert_eq!(conflict.current.unwrap().0, created.version);
    within(kv.compare_and_swap("k", created.version, "3")).await.unwrap().unwrap();
    for mode in [ReadMode::Strong, ReadMode::ThroughChain] {
        let read = within(kv.get("k").mode(mode)).await.unwrap();
        assert_eq!(read.into_value().unwrap(), "3");
    }
    within(kv.delete("k")).await.unwrap();
    assert_eq!(within(kv.get("k")).await.unwrap().value(), None);
    until(async || kv.get("k").mode(ReadMode::Eventual).await.unwrap().value().is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clean_reads_at_the_middle_need_nobody() {
    let cluster = TestCluster::start(3).await;
    let (head, middle) = (cluster.node(Place::Head), cluster.node(Place::Middle));
    let mut last = 0;
    for n in 0..100 {
        last = within(head.kv().put(format!("key/{n}"), "v")).await.unwrap().version.sequence.0;
    }
    until(async || middle.status().await.chains[0].watermark == last).await;
    cluster.cut(Place::Middle, Place::Tail);
    settled(middle).await;
    let before = middle.traffic().frames_sent;
    for n in 0..1000 {
        let read = within(middle.kv().get(&format!("key/{}", n % 100))).await.unwrap();
        assert_eq!(read.value().map(|value| &value[..]), Some(&b"v"[..]));
        assert_eq!(read.served.way, Way::Local);
    }
    assert_eq!(middle.traffic().frames_sent, before, "a clean read sends no frame");

    // The middle takes the update in, the tail never gets it.
    let write = head.kv().put("key/0", "dirty").timeout(SHORT);
    assert!(matches!(within(write).await, Err(Error::OutcomeUnknown { .. })));
    until(async || middle.status().await.chains[0].dirty_updates > 0).await;
    let read = within(middle.kv().get("key/0").timeout(SHORT)).await;
    assert!(matches!(read, Err(Error::NotApplied { .. })), "{read:?}");
    let read = within(middle.kv().get("key/1")).await.unwrap();
    assert_eq!(read.served.way, Way::Local, "clean keys go on");
    let eventual = within(middle.kv().get("key/0").mode(ReadMode::Eventual)).await.unwrap();
    assert_eq!((eventual.state, eventual.into_value().unwrap()), (ReadState::Dirty, "dirty".into()));

    cluster.heal();
    // The query may well overtake the update on its way to the tail, which then still has the old value.
    until(async || middle.kv().get("key/0").await.is_ok_and(|read| read.value().is_some_and(|v| v == "dirty"))).await;
}

/// A caller that is alone and asks everywhere; an update has got no further than the head, since the middle is cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dirty_read_takes_one_round_trip_more_than_a_clean_one() {
    const READS: u64 = 300;
    let cluster = TestCluster::start(3).await;
    let head = cluster.node(Place::Head).clone();
    let client = cluster.client(Spread::RoundRobin).await;
    let kv = client.kv();
    within(head.kv().put("k", "old")).await.unwrap();
    for node in &cluster.nodes {
        until(async || node.kv().get("k").await.is_ok_and(|read| read.served.way == Way::Local)).await;
    }
    cluster.cut(Place::Head, Place::Middle);

    let frames = || {
        let nodes: u64 = cluster.nodes.iter().map(|node| node.traffic().frames_sent).sum();
        nodes + client.traffic().frames_sent
    };
    // How many frames reads take until so many were served by the head, and how many reads those were.
    let read = async |way| {
        let (before, mut by_head, mut others) = (frames(), 0, 0);
        while by_head < READS {
            let read = within(kv.get("k")).await.unwrap();
            if read.served.node == head.id().node {
                assert_eq!(read.served.way, way);
                by_head += 1;
            } else {
                assert_eq!(read.served.way, Way::Local);
                others += 1;
            }
            assert_eq!(read.into_value().unwrap(), "old");
        }
        (frames() - before, by_head, others)
    };
    // Half a frame a read is what heartbeats may add: far less than another message for each would.
    let (sent, by_head, others) = read(Way::Local).await;
    let needed = 2 * (by_head + others);
    assert!((needed..needed + READS / 2).contains(&sent), "{sent} frames instead of {needed}");
    let write = head.kv().put("k", "new").timeout(SHORT);
    assert!(matches!(within(write).await, Err(Error::OutcomeUnknown { .. })));
    let (sent, by_head, others) = read(Way::Query).await;
    let needed = 4 * by_head + 2 * others;
    assert!((needed..needed + READS / 2).contains(&sent), "{sent} frames instead of {needed}");
}

/// Waits until the chain has nothing left to say: two looks that are heartbeats apart show the same counter.
async fn settled(node: &artillery_ddata::Node) {
    let mut before = u64::MAX;
    within(async {
        while node.traffic().frames_sent != before {
            before = node.traffic().frames_sent;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fourth_node_is_a_spare_that_serves_by_asking() {
    let mut cluster = TestCluster::start(3).await;
    let spare = cluster.add(|builder| builder).await;
    within(spare.ready()).await.unwrap();
    assert_eq!(spare.role(), Place::Spare);
    let put = within(spare.kv().put("k", "v")).await.unwrap();
    let read = within(spare.kv().get("k")).await.unwrap();
    assert_eq!((read.version(), read.into_value().unwrap()), (put.version, "v".into()));
    assert!(spare.status().await.reads.forwarded + 1 > 0);
    let status = cluster.nodes[0].status().await;
    assert_eq!((status.chains.len(), status.chains[0].members.len(), status.chains[0].epoch), (1, 3, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_classic_mode_the_tail_serves() {
    let cluster = TestCluster::start_with(3, classic).await;
    let tail = cluster.node(Place::Tail).id().node;
    for node in &cluster.nodes {
        within(node.kv().put("k", "v")).await.unwrap();
        let read = within(node.kv().get("k")).await.unwrap();
        assert_eq!(read.served.node, tail);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_alone_is_a_chain_of_one() {
    let cluster = TestCluster::start(1).await;
    let kv = cluster.nodes[0].kv();
    assert_eq!(within(kv.put("k", "v")).await.unwrap().copies, 1);
    assert_eq!(cluster.nodes[0].role(), Place::Head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_gone_leaves_writes_unknown_and_clean_reads_alone() {
    let cluster = TestCluster::start(3).await;
    let head = cluster.node(Place::Head).clone();
    within(head.kv().put("k", "v")).await.unwrap();
    cluster.node(Place::Tail).shutdown().await;
    let write = within(head.kv().put("k2", "v").timeout(SHORT)).await;
    assert!(matches!(write, Err(Error::OutcomeUnknown { .. })), "{write:?}");
    assert_eq!(within(head.kv().get("k")).await.unwrap().into_value().unwrap(), "v");
}

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_spreads_reads_everywhere() {
    let cluster = TestCluster::start(3).await;
    let client = cluster.client(Spread::RoundRobin).await;
    // Connected to the head first of all.
    within(client.kv().put("k", "v")).await.unwrap();
    let mut served = std::collections::BTreeSet::new();
    within(async {
        while served.len() < 3 {
            served.insert(client.kv().get("k").await.unwrap().served.node);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_hops_between_nodes() {
    let cluster = TestCluster::start(3).await;
    let session = Session::new();
    for n in 0..300u32 {
        let writer = cluster.nodes[n as usize % 3].kv();
        within(writer.put("k", n.to_string()).session(&session)).await.unwrap();
        let reader = cluster.nodes[(n as usize + 1) % 3].kv().in_session(&session);
        // Not even the weakest mode shows less than the session has seen.
        let read = within(reader.get("k").mode(ReadMode::Eventual)).await.unwrap();
        assert_eq!((read.state, read.into_value().unwrap()), (ReadState::Clean, n.to_string().into()));
    }
}

/// All operations, in flight together from all nodes: each happens once, and a batch is seen whole or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_in_flight_together() {
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
                    kv.write(batch).await.unwrap().unwrap();
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

/// Ten keys rewritten together ten thousand times, while they are read together and scanned at every node, among keys
/// that are there throughout and others that come and go.
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
            within(writes.join_next()).await.unwrap().unwrap().unwrap().unwrap();
        }
    }
    while let Some(write) = within(writes.join_next()).await {
        write.unwrap().unwrap().unwrap();
    }
    done.send(true).unwrap();
    for reader in readers {
        assert!(within(reader).await.unwrap() > 0, "nothing was read");
    }
}

/// Reads the ten keys together until the end; how often they had changed.
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

/// Scans until the end; how many scans there were.
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
        assert_eq!(found, throughout, "keys that are there throughout");
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
        let mut watch = node.kv().watch("w/").from(from.clone());
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_from_none_to_the_largest() {
    let cluster = TestCluster::start(3).await;
    let limit = 64 << 20;
    let kv = cluster.node(Place::Middle).kv().with_timeout(Duration::from_secs(25));
    for len in [0, 1 << 20, limit] {
        let value: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        within(kv.put("k", value.clone())).await.unwrap();
        for node in &cluster.nodes {
            let read = within(node.kv().with_timeout(Duration::from_secs(25)).get("k")).await.unwrap();
            assert!(read.value().is_some_and(|held| *held == value), "{len} bytes");
        }
    }
    let error = within(kv.put("k", vec![0; limit + 1])).await.unwrap_err().to_string();
    assert!(error.contains("67108865") && error.contains("67108864") && error.contains("max_value_bytes"), "{error}");
    let error = within(kv.put("k".repeat(4097), "v")).await.unwrap_err().to_string();
    assert!(error.contains("key of 4097") && error.contains("4096"), "{error}");
}

/// Whoever stops waiting leaves an unknown outcome, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_puts_leave_nothing_behind() {
    const PUTS: usize = 100_000;
    let cluster = TestCluster::start(3).await;
    let kv = cluster.node(Place::Middle).kv();
    within(kv.put("first", "opens the session")).await.unwrap();
    settled(cluster.node(Place::Head)).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    let mut waiting = std::collections::VecDeque::new();
    for n in 0..PUTS {
        let mut put = kv.put(format!("key/{}", n % 100), vec![7; 100]).into_future();
        // Polled once: handed on, or on its way. Two hundred puts later it is given up.
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
    assert!(applied > 100, "only {applied} updates: hardly any put got as far as the head");
}
