//! Nodes that know the cluster's name, but not its secret.

use artillery_processes::{Cluster, NODE, Node, expect, token};

#[tokio::test]
async fn a_stranger_with_a_seed_ends_and_says_why() {
    let cluster = Cluster::start(&[]).await;
    let wrong = token();
    let args = ["--cluster", &cluster.name, "--no-mdns", "--seed", &cluster.addrs[0]];
    let (out, err) = expect(1, &NODE, Some(&wrong), &args).await;
    assert!(out.is_empty() && err.contains(&cluster.addrs[0]) && err.contains("secret"), "{err}");
}

#[tokio::test]
async fn a_short_secret_is_refused_at_once() {
    let (_, err) = expect(1, &NODE, Some("short"), &["--no-mdns", "--seed", "127.0.0.1:1"]).await;
    assert!(err.contains("16"), "{err}");
}

#[tokio::test]
async fn a_stranger_by_mdns_is_left_out_with_one_warning() {
    let cluster = Cluster::start(&[]).await;
    let mut stranger = Node::start(&cluster.name, &token(), &["--name", "stranger"]);
    let mut warned = Vec::new();
    for node in &cluster.nodes {
        let mut err = node.err.clone();
        warned
            .push(tokio::spawn(async move { err.until(|lines| lines.iter().any(|line| line.contains("WARN"))).await }));
    }
    for warned in warned {
        assert!(warned.await.unwrap().is_some(), "a node didn't log the stranger");
    }
    // Long enough for a second warning: the cluster continues as if there were no stranger.
    for n in 0..20 {
        cluster.ctl(&cluster.addrs[0], 0, &["put", "key", &n.to_string()]).await;
    }
    for node in &cluster.nodes {
        let lines = node.err.all();
        assert_eq!(lines.len(), 1, "more than one warning: {lines:#?}");
    }
    assert!(stranger.out.all().is_empty(), "the stranger was admitted");
    assert_eq!(stranger.stop("-TERM").await, Some(0));
    let status = cluster.json(0, &["status"]).await;
    assert_eq!(status["members"].as_array().unwrap().len(), 3, "{status}");
}
