//! `ctl load` against a cluster.

use serde_json::Value;

use crate::support::Cluster;

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
