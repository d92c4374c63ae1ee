//! `ctl load` against a cluster.

use std::time::Duration;

use artillery_processes::{CTL, Cluster, Node, assert_documented, documented, eventually};
use serde_json::Value;
use tokio::time::timeout;

fn sum(status: &Value, kind: &str) -> u64 {
    let nodes = status["nodes"].as_array().unwrap();
    nodes.iter().map(|node| node["reads"][kind].as_u64().unwrap()).sum()
}

#[tokio::test]
async fn many_clients_and_few_keys_share_their_queries() {
    let cluster = Cluster::start(&[]).await;
    let before = cluster.json(0, &["status"]).await;
    let few = ["--reads", "90", "--keys", "4", "--check", "--timeout", "30000"];
    let load = cluster.json(0, &[&["load", "--clients", "64", "--seconds", "3"], &few[..]].concat()).await;
    assert_eq!((&load["errors"], &load["wrong"], &load["clients"]), (&0.into(), &0.into(), &64.into()), "{load}");
    assert_documented(&documented("`ctl load --json`"), &load, "load");
    let count = |field: &str| load[field].as_u64().unwrap();
    assert!(count("reads") > 0 && count("writes") > 0, "{load}");
    assert_eq!(count("operations"), count("reads") + count("writes"));
    for kind in ["read", "write"] {
        let latency = |field: &str| load["latency_us"][kind][field].as_u64().unwrap();
        assert!(latency("p50") > 0 && latency("p50") <= latency("p99") && latency("p99_9") <= latency("max"), "{load}");
    }
    let after = cluster.json(0, &["status"]).await;
    for kind in ["version_query", "shared_query"] {
        assert!(sum(&after, kind) > sum(&before, kind), "{kind} didn't grow: {before} → {after}");
    }
}

#[tokio::test]
async fn a_rate_is_kept() {
    let cluster = Cluster::start(&[]).await;
    let load = ["load", "--clients", "4", "--pipeline", "2", "--seconds", "2", "--rate", "50", "--keys", "10"];
    let load = cluster.json(0, &load).await;
    let operations = load["operations"].as_u64().unwrap();
    assert!((1..=100).contains(&operations), "{load}");
}

/// More keys than could be removed one after the other within the timeout.
const CHECKED: [&str; 5] = ["--check", "--keys", "4000", "--timeout", "2000"];

/// Starts `ctl load` through the tail, and returns once it reads.
async fn loading(cluster: &Cluster) -> Node {
    let before = sum(&cluster.json(0, &["status"]).await, "local_clean");
    let find = ["--cluster", &cluster.name, "--no-mdns", "--seed", &cluster.addrs[2], "--json"];
    let load = [&find[..], &["load", "--clients", "16", "--seconds", "6"], &CHECKED].concat();
    let load = Node::of(&CTL, &cluster.secret, &load);
    eventually(async || {
        let reads = sum(&cluster.json(0, &["status"]).await, "local_clean");
        if reads < before + 500 { Err(format!("nothing is read: {:#?}", load.err.all())) } else { Ok(()) }
    })
    .await;
    load
}

/// Panics unless `ctl load` ends soon after printing its result. Returns the result.
async fn ends_after_its_result(mut load: Node) -> Value {
    let result = load.ready().await;
    let ended = timeout(Duration::from_secs(30), load.ended()).await;
    assert!(ended.is_ok(), "ctl did not end after {result}: {:#?}", load.err.all());
    result
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_ends_though_its_head_is_killed() {
    let mut cluster = Cluster::start(&[]).await;
    let load = loading(&cluster).await;
    cluster.nodes[0].kill().await;
    let result = ends_after_its_result(load).await;
    assert_eq!(result["wrong"], 0, "{result}");
}

/// Stopped processes neither answer nor read, like nodes behind a broken link.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_ends_though_nothing_answers_any_more() {
    let cluster = Cluster::start(&[]).await;
    let load = loading(&cluster).await;
    for node in &cluster.nodes {
        node.signal("-STOP").await;
    }
    let result = ends_after_its_result(load).await;
    assert!(result["errors"].as_u64() > Some(0), "{result}");
}
