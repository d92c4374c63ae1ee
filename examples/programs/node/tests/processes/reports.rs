//! Cases in which a node waits or something goes wrong: it must log the reason within seconds.

use std::time::Duration;

use artillery_processes::{Cluster, NODE, Node, expect, token};
use tokio::time::{Instant, timeout_at};

use crate::http::get;

/// The timeout for an event's line. Each wait ends with the line, so only a failure takes this long.
const SOON: Duration = Duration::from_secs(30);

/// The time from its start in which a node that isn't ready must log the reason (docs/operations.md).
const FIRST_REPORT: Duration = Duration::from_secs(5);

/// Waits for a line that contains all of these parts.
async fn says(node: &Node, parts: &[&str]) -> String {
    says_by(Instant::now() + SOON, node, parts).await
}

/// Waits for a line with all of these parts in the first report of a node that was just started.
async fn says_first(node: &Node, parts: &[&str]) -> String {
    says_by(Instant::now() + FIRST_REPORT, node, parts).await
}

async fn says_by(limit: Instant, node: &Node, parts: &[&str]) -> String {
    let has_all = |line: &&String| parts.iter().all(|part| line.contains(part));
    let mut err = node.err.clone();
    let lines = timeout_at(limit, err.until(|lines| lines.iter().any(|line| has_all(&line)))).await;
    let Ok(Some(lines)) = lines else { panic!("no line with {parts:?}: {:#?}", node.err.all()) };
    lines.iter().find(has_all).cloned().unwrap()
}

fn name() -> String {
    format!("test-{}", token())
}

#[tokio::test]
async fn a_node_alone_says_how_many_are_missing() {
    let node = Node::start(&name(), &token(), &["--no-mdns", "--log", "info", "--http", "127.0.0.1:0"]);
    says_first(&node, &["this node is not ready", "2 more nodes are needed", "1 of 3 found"]).await;
    let up = says(&node, &["this node is up"]).await;
    let http = up.split("http=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let (code, body) = get(http, "/ready", "").await;
    assert_eq!(code, 503);
    assert!(body.contains("2 more nodes are needed"), "{body}");
}

#[tokio::test]
async fn a_seed_that_does_not_resolve_is_named() {
    let node = Node::start(&name(), &token(), &["--no-mdns", "--seed", "no-such-host.invalid:7400"]);
    says_first(&node, &["not ready", "seed no-such-host.invalid:7400: ", "no-such-host.invalid"]).await;
}

#[tokio::test]
async fn a_seed_that_does_not_answer_is_named() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let seed = silent.local_addr().unwrap().to_string();
    let node = Node::start(&name(), &token(), &["--no-mdns", "--seed", &seed]);
    says_first(&node, &["not ready", &format!("seed {seed}: no answer")]).await;
}

#[tokio::test]
async fn two_of_three_say_that_one_is_missing() {
    let (name, secret) = (name(), token());
    let nodes = [1, 2].map(|_| Node::start(&name, &secret, &[]));
    for node in &nodes {
        says_first(node, &["not ready", "1 more node is needed", "2 of 3 found"]).await;
    }
}

#[tokio::test]
async fn another_secret_is_named_at_both_nodes_that_mdns_brings_together() {
    let name = name();
    let nodes = [1, 2].map(|_| Node::start(&name, &token(), &[]));
    for node in &nodes {
        says_first(node, &["not ready", "node at 127.0.0.1:", "its secret or certificates differ"]).await;
    }
}

#[tokio::test]
async fn another_secret_at_a_seed_is_named() {
    let cluster = Cluster::start(&[]).await;
    let args = ["--cluster", &cluster.name, "--no-mdns", "--seed", &cluster.addrs[0]];
    let (_, err) = expect(1, &NODE, Some(&token()), &args).await;
    assert!(err.contains("secret") && err.contains(&cluster.addrs[0]), "{err}");
    // A second seed that doesn't answer keeps the node from ending.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let other = silent.local_addr().unwrap().to_string();
    let node = Node::start(&cluster.name, &token(), &[&args[2..], &["--seed", &other]].concat());
    says_first(&node, &["not ready", &format!("seed {}: its secret or certificates differ", cluster.addrs[0])]).await;
}

#[tokio::test]
async fn another_cluster_name_at_a_seed_is_named() {
    let cluster = Cluster::start(&[]).await;
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let other = silent.local_addr().unwrap().to_string();
    let flags = ["--no-mdns", "--seed", &cluster.addrs[0], "--seed", &other];
    let node = Node::start("another-name", &cluster.secret, &flags);
    let differs = format!("the cluster's name differs: {:?} there, \"another-name\" here", cluster.name);
    says_first(&node, &["not ready", &format!("seed {}: {differs}", cluster.addrs[0])]).await;
}

#[tokio::test]
async fn a_dead_member_a_lost_majority_and_its_return_are_reported() {
    let mut cluster = Cluster::start(&["--http", "127.0.0.1:0"]).await;
    let names: Vec<_> = cluster.lines.iter().map(|line| line["node"].as_str().unwrap().to_owned()).collect();
    cluster.nodes[2].kill().await;
    for node in &cluster.nodes[..2] {
        says(node, &["WARN", &format!("node {} is lost", names[2])]).await;
        says(node, &["WARN", &format!("node {} was moved out of chain 0: it gives no answer", names[2])]).await;
    }
    cluster.nodes[1].signal("-STOP").await;
    let left = &cluster.nodes[0];
    says(left, &["WARN", "the majority is lost: 2 of 3 voters", &names[1], &names[2]]).await;
    says(left, &["WARN", "this node is not ready", "no majority: 2 of 3 voters"]).await;
    let http = cluster.lines[0]["http"].as_str().unwrap();
    let (code, body) = get(http, "/ready", "").await;
    assert_eq!(code, 503);
    assert!(body.contains("no majority"), "{body}");
    cluster.nodes[1].signal("-CONT").await;
    says(left, &["INFO", "this node serves again"]).await;
    for node in &cluster.nodes[..2] {
        let lines = node.err.all();
        let lost = lines.iter().filter(|line| line.contains(&format!("node {} is lost", names[2]))).count();
        assert_eq!(lost, 1, "{lines:#?}");
    }
}

#[tokio::test]
async fn a_member_that_stands_still_is_moved_out_and_learns_it() {
    let cluster = Cluster::start(&[]).await;
    let name = cluster.lines[2]["node"].as_str().unwrap();
    cluster.nodes[2].signal("-STOP").await;
    for node in &cluster.nodes[..2] {
        says(node, &["WARN", &format!("node {name} was moved out of chain 0")]).await;
    }
    cluster.nodes[2].signal("-CONT").await;
    says(&cluster.nodes[2], &["WARN", "this node was moved out of chain 0"]).await;
    says(&cluster.nodes[0], &["INFO", "copied the data of chain 0 and serves it now"]).await;
}

#[tokio::test]
async fn an_orderly_end_and_a_hundred_clients_write_no_line_at_the_others() {
    // With the usual lease, a delay on a busy machine would be an event.
    let mut cluster = Cluster::start(&["--lease-ms", "6000"]).await;
    // A slow start may already have caused a report.
    let before: Vec<_> = cluster.nodes.iter().map(|node| node.err.all()).collect();
    cluster.ctl(&cluster.addrs[0], 0, &["put", "key", "value"]).await;
    for n in 0..100 {
        cluster.ctl(&cluster.addrs[n % 3], 0, &["get", "key"]).await;
    }
    for (node, before) in cluster.nodes.iter().zip(&before) {
        assert_eq!(node.err.all(), *before);
    }
    assert_eq!(cluster.nodes[2].stop("-TERM").await, Some(0));
    assert_eq!(cluster.nodes[2].err.all(), before[2]);
    // By the time the others serve again, they would have logged an event.
    cluster.ctl(&cluster.addrs[0], 0, &["put", "key", "other"]).await;
    cluster.ctl(&cluster.addrs[1], 0, &["get", "key"]).await;
    for (node, before) in cluster.nodes[..2].iter().zip(&before) {
        assert_eq!(node.err.all(), *before);
    }
}
