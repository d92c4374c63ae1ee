use std::time::Duration;

use artillery_ddata::{Error, Place, ReadMode, Refusal, Version, client::Spread, kv::ReadState, status::Exhausted};

use super::SHORT;
use crate::support::{TestCluster, classic, until, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_form_a_chain_that_works_at_every_node() {
    let cluster = TestCluster::start(3).await;
    let mut roles: Vec<_> = cluster.nodes.iter().map(|node| node.place()).collect();
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
async fn each_operation_has_its_documented_effect() {
    let cluster = TestCluster::start(3).await;
    let kv = cluster.node(Place::Middle).kv();
    let created = within(kv.compare_and_swap("k", Version::NONE, "1")).await.unwrap();
    let conflict = within(kv.compare_and_swap("k", Version::NONE, "2")).await.unwrap_err().into_conflict().unwrap();
    assert_eq!(conflict.current.unwrap().0, created.version);
    within(kv.compare_and_swap("k", created.version, "3")).await.unwrap();
    for mode in [ReadMode::Strong, ReadMode::ThroughChain] {
        let read = within(kv.get("k").mode(mode)).await.unwrap();
        assert_eq!(read.into_value().unwrap(), "3");
    }
    within(kv.delete("k")).await.unwrap();
    assert_eq!(within(kv.get("k")).await.unwrap().value(), None);
    until(async || kv.get("k").mode(ReadMode::Eventual).await.unwrap().value().is_none()).await;
}

/// Values are refused once one node holds as much as its limit. Deletes free memory, and nothing is evicted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_memory_refuses_values_until_deletes_made_room() {
    let most = |config: &mut artillery_ddata::config::Config| config.limits.max_memory_bytes = Some(1 << 20);
    let mut cluster = TestCluster::start_with(2, |builder| builder).await;
    let bounded = cluster.add(|builder| builder.configure(most)).await;
    within(bounded.ready()).await.unwrap();
    until(async || cluster.nodes[0].status().await.chains[0].copies == 3).await;
    let kv = cluster.nodes[0].kv();
    let put = async |n: u32| kv.put(format!("key-{n}"), vec![n as u8; 100_000]).await;
    let is_full = |error: &Error| matches!(error, Error::Refused { reason: Refusal::MemoryFull { member }, .. } if *member == bounded.id());
    let mut count = 0;
    let refused = loop {
        match within(put(count)).await {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 50, "more values than 1 MiB can hold");
    };
    assert!(is_full(&refused) && count >= 10, "{count}: {refused}");
    let status = bounded.status().await;
    assert_eq!((status.max_memory_bytes, &status.chains[0].full), (Some(1 << 20), &Some(Exhausted::Memory)));
    assert!(status.memory_bytes >= 1 << 20, "{}", status.memory_bytes);
    for n in 0..count {
        assert_eq!(within(kv.get(&format!("key-{n}"))).await.unwrap().value().map(|value| value.len()), Some(100_000));
    }
    // The member applied the updates in flight when it became full. So one delete may be too few.
    for n in 0..count / 2 {
        within(kv.delete(format!("key-{n}"))).await.unwrap();
    }
    until(async || put(0).await.map_err(|error| assert!(is_full(&error), "{error}")).is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spare_serves_by_asking_members() {
    let mut cluster = TestCluster::start(3).await;
    let spare = cluster.add(|builder| builder).await;
    within(spare.ready()).await.unwrap();
    assert_eq!(spare.place(), Place::Spare);
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
    assert_eq!(cluster.nodes[0].place(), Place::Head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_member_makes_writes_unknown_and_spares_clean_reads() {
    let cluster = TestCluster::start(3).await;
    let head = cluster.node(Place::Head).clone();
    within(head.kv().put("k", "v")).await.unwrap();
    cluster.node(Place::Tail).abort().await;
    let write = within(head.kv().put("k2", "v").timeout(SHORT)).await;
    assert!(matches!(write, Err(Error::OutcomeUnknown { .. })), "{write:?}");
    assert_eq!(within(head.kv().get("k")).await.unwrap().into_value().unwrap(), "v");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_robin_reads_reach_every_member() {
    let cluster = TestCluster::start(3).await;
    let client = cluster.client(Spread::RoundRobin).await;
    // At first the client is connected to the head alone.
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
async fn values_of_all_sizes_are_stored() {
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
