//! All nodes of a memory-only cluster are restarted together: the result is another cluster, and clients of the old one
//! must be refused (docs/DESIGN.md §5.11).

use std::time::Duration;

use artillery_core::error::{ConnectError, Refusal as Refused};
use artillery_ddata::{Client, Error, Refusal, Session, client::Spread, error::NotApplied};
use artillery_processes::{Cluster, Node};
use serde_json::Value;

#[tokio::test]
async fn no_client_takes_an_empty_chain_for_the_old_one() {
    let mut cluster = Cluster::start(&[]).await;
    let before = cluster.json(0, &["status"]).await["cluster_id"].clone();
    let builder = || Client::builder().cluster(&cluster.name).secret(&cluster.secret).spread(Spread::Sticky);
    let seeds = |builder: artillery_ddata::ClientBuilder, addrs: &[String]| {
        addrs.iter().fold(builder, |builder, addr| builder.seed(addr))
    };
    let old = seeds(builder(), &cluster.addrs).connect().await.unwrap();
    let session = Session::new();
    old.kv().put("key", "value").session(&session).await.unwrap();
    let request = cluster.json(0, &["put", "other", "value"]).await["request"].as_str().unwrap().to_owned();
    for node in &mut cluster.nodes {
        node.kill().await;
    }
    // Restart the nodes at their old addresses and under their old names.
    let nodes = cluster.lines.iter().zip(&cluster.addrs).map(|(line, addr)| {
        let name = line["node"].as_str().unwrap();
        Node::start(&cluster.name, &cluster.secret, &["--name", name, "--listen", addr])
    });
    let mut nodes: Vec<_> = nodes.collect();
    for node in &mut nodes {
        node.ready().await;
    }
    let after: Value = cluster.json(0, &["status"]).await["cluster_id"].clone();
    assert_ne!(before, after);
    // A client of the old cluster must not read keys as absent, nor write.
    let kv = old.kv().with_timeout(Duration::from_secs(5));
    for error in [kv.get("key").await.map(drop).unwrap_err(), kv.put("key", "again").await.map(drop).unwrap_err()] {
        let Error::NotApplied { reason: NotApplied::Unreachable { reason: Some(reason), .. }, .. } = &error else {
            panic!("{error}");
        };
        assert!(matches!(&**reason, ConnectError::Refused(Refused::DifferentCluster { .. })), "{error}");
    }
    // A session and a request of the old cluster are refused by a client of the new one.
    let new = seeds(builder(), &cluster.addrs).connect().await.unwrap();
    let resumed = Session::resume(session.frontier());
    let error = new.kv().get("key").session(&resumed).await.map(drop).unwrap_err();
    assert!(matches!(error, Error::Refused { reason: Refusal::OtherHistory, .. }), "{error}");
    let (_, err) = cluster.ctl(&cluster.addrs[0], 1, &["outcome", &request]).await;
    assert!(err.contains("another history"), "{err}");
    assert_eq!(new.kv().get("key").await.unwrap().value(), None, "the new cluster holds nothing of the old one");
}
