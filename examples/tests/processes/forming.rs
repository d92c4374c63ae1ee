//! Three nodes become a chain, a fourth a spare.

use serde_json::Value;

use crate::support::{Cluster, Node};

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
        assert_eq!(node.out.all().len(), 1, "one line on standard output, no more");
    }
}

#[tokio::test]
async fn ready_lines_have_what_scripts_rely_on() {
    let cluster = Cluster::start(&[]).await;
    for line in &cluster.lines {
        let keys: Vec<_> = line.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys.len(), 6, "{line}");
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

#[tokio::test]
async fn a_chain_of_one() {
    let (name, secret) = (format!("test-{}", crate::support::token()), crate::support::token());
    let mut node = Node::start(&name, &secret, &["--expect", "1", "--no-mdns"]);
    assert_eq!(node.ready().await["role"], "head");
}

#[tokio::test]
async fn a_node_that_waits_for_others_stops_when_asked() {
    let (name, secret) = (format!("test-{}", crate::support::token()), crate::support::token());
    let mut node = Node::start(&name, &secret, &["--http", "127.0.0.1:0", "--log", "info"]);
    // The first line shows that it is up and listens to signals.
    assert!(node.err.until(|lines| !lines.is_empty()).await.is_some());
    assert_eq!(node.stop("-TERM").await, Some(0));
    assert!(node.out.all().is_empty());
}
