//! Three nodes form a chain, a fourth one is a spare.

use artillery_processes::{Cluster, Node, assert_documented, documented, token};
use serde_json::Value;

use crate::http::get;

fn strings<'a>(all: &'a Value, field: &str) -> Vec<&'a str> {
    all.as_array().unwrap().iter().map(|one| one[field].as_str().unwrap()).collect()
}

#[tokio::test]
async fn three_nodes_with_a_name_and_a_secret_are_a_chain() {
    let mut cluster = Cluster::start(&[]).await;
    for (n, addr) in cluster.addrs.iter().enumerate() {
        cluster.ctl(addr, 0, &["put", &format!("key-{n}"), &format!("value {n}")]).await;
        for other in &cluster.addrs {
            let (out, _) = cluster.ctl(other, 0, &["get", &format!("key-{n}")]).await;
            assert_eq!(out, format!("value {n}\n"));
        }
    }
    for node in &mut cluster.nodes {
        assert_eq!(node.stop("-TERM").await, Some(0), "{:#?}", node.err.all());
        assert_eq!(node.out.all().len(), 1, "exactly one line on standard output");
    }
}

#[tokio::test]
async fn ready_lines_have_what_scripts_rely_on() {
    let cluster = Cluster::start(&[]).await;
    for line in &cluster.lines {
        assert_documented(&documented("`node`"), line, "node");
        assert!(line["ready"] == true && line["resp"].is_null() && line["http"].is_null(), "{line}");
        assert!(line["node"].is_string() && line["addr"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
    }
}

#[tokio::test]
async fn status_shows_one_chain_three_members_one_epoch() {
    let cluster = Cluster::start(&[]).await;
    let status = cluster.json(0, &["status"]).await;
    assert_eq!(status["chains"].as_array().unwrap().len(), 1, "{status}");
    let chain = &status["chains"][0];
    assert_eq!(strings(&chain["members"], "role"), ["head", "middle", "tail"]);
    let epochs: Vec<_> = chain["members"].as_array().unwrap().iter().map(|member| &member["epoch"]).collect();
    assert_eq!(epochs, [&chain["epoch"]; 3]);
    assert_eq!(chain["epoch"], 1);
    assert_eq!((status["members"].as_array().unwrap().len(), status["nodes"].as_array().unwrap().len()), (3, 3));
    for node in status["nodes"].as_array().unwrap() {
        assert!(node["error"].is_null() && node["ready"] == true, "{node}");
        for kind in ["local_clean", "version_query", "shared_query", "forwarded", "through_chain"] {
            assert!(node["reads"][kind].is_u64(), "{kind}: {node}");
        }
    }
    assert_documented(&documented("`ctl --json`"), &status, "status");
    let (table, _) = cluster.ctl(&cluster.addrs[1], 0, &["status"]).await;
    assert!(table.contains("chain 0, epoch 1") && table.contains("middle"), "{table}");
}

#[tokio::test]
async fn a_fourth_node_is_a_spare_and_answers() {
    let cluster = Cluster::start(&[]).await;
    cluster.ctl(&cluster.addrs[0], 0, &["put", "key", "value"]).await;
    let mut fourth = Node::start(&cluster.name, &cluster.secret, &[]);
    let line = fourth.ready().await;
    assert_eq!(line["role"], "spare");
    let (out, _) = cluster.ctl(line["addr"].as_str().unwrap(), 0, &["get", "key"]).await;
    assert_eq!(out, "value\n");
    let status = cluster.json(0, &["status"]).await;
    assert_eq!(status["chains"][0]["members"].as_array().unwrap().len(), 3, "a spare is no member of the chain");
    assert_eq!(fourth.stop("-INT").await, Some(0), "{:#?}", fourth.err.all());
}

/// Ends a node. Returns its lines about times of the command line that it ignores in favour of its cluster's.
async fn other_times(node: &mut Node) -> Vec<String> {
    node.kill().await;
    // Wait until the last line is read.
    node.err.until(|_| false).await;
    node.err.all().into_iter().filter(|line| line.contains("other times than its cluster's")).collect()
}

#[tokio::test]
async fn a_node_started_with_other_times_goes_by_the_clusters_and_says_so_in_one_line() {
    let mut cluster = Cluster::start(&["--lease-ms", "1500", "--suspect-ms", "800"]).await;
    let mut other = Node::start(&cluster.name, &cluster.secret, &["--lease-ms", "3000", "--drift-ppm", "7"]);
    other.ready().await;
    let said = other_times(&mut other).await;
    assert_eq!(said.len(), 1, "{:#?}", other.err.all());
    for times in ["lease 3s, drift 7 ppm, suspect 1.5s, slow 2s", "lease 1.5s, drift 10000 ppm, suspect 800ms, slow 2s"]
    {
        assert!(said[0].contains(times), "{said:?}");
    }
    for node in &mut cluster.nodes {
        assert!(other_times(node).await.is_empty(), "{:#?}", node.err.all());
    }
}

#[tokio::test]
async fn nodes_started_with_different_times_form_a_cluster_that_goes_by_the_proposers() {
    let (name, secret) = (format!("test-{}", token()), token());
    let mut nodes: Vec<_> =
        ["1000", "2000", "3000"].map(|lease| Node::start(&name, &secret, &["--lease-ms", lease])).into();
    for node in &mut nodes {
        node.ready().await;
    }
    let mut said = Vec::new();
    for node in &mut nodes {
        said.push(other_times(node).await);
    }
    said.sort_by_key(Vec::len);
    assert_eq!(said.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 1], "one of them proposed the cluster: {said:?}");
    let chosen: Vec<_> =
        said.concat().iter().filter_map(|line| Some(line.rsplit_once("cluster's (")?.1.to_owned())).collect();
    assert_eq!(chosen[0], chosen[1], "both use the same times");
}

#[tokio::test]
async fn one_node_forms_a_chain_of_one() {
    let (_node, line) = Node::alone(&token(), &[]).await;
    assert_eq!(line["role"], "head");
}

#[tokio::test]
async fn a_node_that_waits_for_others_is_not_ready_and_stops_when_asked() {
    let (name, secret) = (format!("test-{}", token()), token());
    let mut node = Node::start(&name, &secret, &["--http", "127.0.0.1:0", "--log", "info"]);
    let is_up = |line: &String| line.contains("this node is up");
    let lines = node.err.until(|lines| lines.iter().any(is_up)).await.unwrap();
    let line = lines.into_iter().find(is_up).unwrap();
    let http = line.split("http=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    assert_eq!(get(http, "/health", "").await.0, 200);
    assert_eq!(get(http, "/ready", "").await.0, 503);
    assert_eq!(node.stop("-TERM").await, Some(0));
    assert!(node.out.all().is_empty());
}
