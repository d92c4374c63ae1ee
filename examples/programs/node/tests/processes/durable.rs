//! Nodes with `--data`: acknowledged writes survive the end of all nodes, and an unusable directory is refused or moved
//! aside.

mod expiring;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use artillery_ddata::Client;
use artillery_processes::{CTL, Node, TEST_TIMEOUT, eventually, expect, token};
use serde_json::Value;

struct Durable {
    secret: String,
    place: PathBuf,
    nodes: Vec<Node>,
    seeds: Vec<String>,
    more: Vec<String>,
}

impl Durable {
    fn new() -> Self {
        let secret = token();
        let place = std::env::temp_dir().join(format!("artillery-durable-{secret}"));
        Self { secret, place, nodes: Vec::new(), seeds: Vec::new(), more: Vec::new() }
    }

    fn dir(&self, n: usize) -> PathBuf {
        self.place.join(format!("node-{n}"))
    }

    /// Starts a node. `--name` is given only if it has no directory yet.
    fn start(&mut self, n: usize, seed: Option<&str>, more: &[&str]) -> &mut Node {
        let (name, dir) = (format!("node-{n}"), self.dir(n));
        let mut flags = vec!["--no-mdns", "--log", "info", "--data", dir.to_str().unwrap()];
        if !dir.exists() {
            flags.extend(["--name", &name]);
        }
        flags.extend(seed.iter().flat_map(|seed| ["--seed", seed]));
        flags.extend(more);
        flags.extend(self.more.iter().map(String::as_str));
        let node = Node::start(&format!("test-{}", self.secret), &self.secret, &flags);
        self.nodes.push(node);
        self.nodes.last_mut().unwrap()
    }

    /// Starts three nodes at new ports. Returns a client of them.
    async fn start_all(&mut self) -> Client {
        let ports: Vec<_> = (0..3).map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let addrs: Vec<_> = ports.iter().map(|port| port.local_addr().unwrap().to_string()).collect();
        drop(ports);
        for n in 0..3 {
            self.start(n, Some(&addrs[(n + 1) % 3]), &["--listen", &addrs[n]]);
        }
        for node in &mut self.nodes {
            node.ready().await;
        }
        self.seeds = addrs;
        let client = Client::builder().cluster(format!("test-{}", self.secret)).secret(&*self.secret);
        client.seed(&self.seeds[0]).connect().await.unwrap()
    }

    async fn kill_all(&mut self) {
        for mut node in self.nodes.drain(..) {
            node.kill().await;
        }
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

#[tokio::test]
async fn all_nodes_are_killed_and_nothing_is_lost() {
    let (mut durable, mut tokens) = (Durable::new(), Vec::new());
    for round in 0..3 {
        let client = durable.start_all().await;
        for node in durable.nodes.iter().filter(|_| round > 0) {
            assert!(
                node.err.all().iter().any(|line| line.contains("loading the directory")),
                "the progress of loading is logged"
            );
        }
        for before in 0..round {
            let read = client.kv().get(&format!("key-{before}")).await.unwrap();
            assert_eq!(read.value().map(|value| value.to_vec()), Some(format!("value-{before}").into_bytes()));
        }
        client.kv().put(format!("key-{round}"), format!("value-{round}")).await.unwrap();
        // The lock of the round before is never released: it ends by its time to live.
        let lock = client.kv().lock("jobs").with_ttl(Duration::from_secs(1));
        let guard = lock.acquire().timeout(TEST_TIMEOUT).await.unwrap();
        tokens.push(guard.token());
        durable.kill_all().await;
    }
    assert!(tokens.is_sorted_by(|one, next| one.cluster() == next.cluster() && one < next), "{tokens:?}");
}

#[tokio::test]
async fn all_nodes_are_told_to_stop_and_nothing_is_lost() {
    let mut durable = Durable::new();
    for round in 0..3 {
        let client = durable.start_all().await;
        for before in 0..round {
            let read = client.kv().get(&format!("key-{before}")).await.unwrap();
            assert_eq!(read.value().map(|value| value.to_vec()), Some(format!("value-{before}").into_bytes()));
        }
        client.kv().put(format!("key-{round}"), format!("value-{round}")).await.unwrap();
        let (mut one, mut two, mut three) = (durable.nodes.remove(0), durable.nodes.remove(0), durable.nodes.remove(0));
        let ended = match round {
            0 => tokio::join!(one.stop("-TERM"), two.stop("-TERM"), three.stop("-TERM")),
            _ => (one.stop("-TERM").await, two.stop("-TERM").await, three.stop("-TERM").await),
        };
        assert_eq!(ended, (Some(0), Some(0), Some(0)));
    }
}

/// Stops node 0 of three by SIGTERM; node 1 must then report two members and `wanted` voters.
async fn voters_after_a_stop(more: &[&str], wanted: usize) {
    let mut durable = Durable::new();
    durable.more = more.iter().map(|&flag| flag.to_owned()).collect();
    durable.start_all().await;
    assert_eq!(durable.nodes[0].stop("-TERM").await, Some(0));
    let (cluster, seed) = (format!("test-{}", durable.secret), durable.seeds[1].clone());
    let ctl = ["--cluster", &cluster, "--no-mdns", "--seed", &seed, "--json", "status"];
    eventually(async || {
        let (out, _) = expect(0, &CTL, Some(&durable.secret), &ctl).await;
        let status: Value = serde_json::from_str(&out).unwrap();
        let node = status["nodes"].as_array().unwrap().iter().find(|node| node["node"] == "node-1");
        let voters = node.and_then(|node| node["log"]["voters"].as_array()).map(Vec::len);
        let members = status["chains"][0]["members"].as_array().map(Vec::len);
        if (voters, members) == (Some(wanted), Some(2)) { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn a_node_with_a_directory_keeps_its_vote_unless_it_leaves_for_good() {
    voters_after_a_stop(&[], 3).await;
    voters_after_a_stop(&["--leave-on-term"], 1).await;
}

fn flip(dir: &Path) {
    let file = dir.join("journal-0000000001");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[4096 + 30] ^= 1;
    std::fs::write(&file, bytes).unwrap();
}

#[tokio::test]
async fn a_damaged_directory_is_named_and_moved_aside_when_told() {
    let mut durable = Durable::new();
    durable.start(0, None, &["--expect", "1"]).ready().await;
    assert_eq!(durable.nodes[0].stop("-TERM").await, Some(0));
    flip(&durable.dir(0));
    let refused = durable.start(0, None, &["--expect", "1"]);
    assert_eq!(refused.ended().await, Some(1));
    let named = |line: &String| line.contains("journal-0000000001 is damaged at byte 4096");
    assert!(refused.err.all().iter().any(named), "{:#?}", refused.err.all());
    let line = durable.start(0, None, &["--expect", "1", "--replace-damaged"]).ready().await;
    assert_eq!(line["node"], "node-0", "the new directory has the name of the old one");
    assert!(durable.place.join("node-0.damaged-1").is_dir());
}

#[tokio::test]
async fn another_cluster_is_refused_and_named() {
    let mut durable = Durable::new();
    durable.start(0, None, &["--expect", "1"]).ready().await;
    assert_eq!(durable.nodes[0].stop("-TERM").await, Some(0));
    flip(&durable.dir(0));
    // The damaged directory must not be moved aside for another cluster.
    let dir = durable.dir(0);
    let flags = ["--no-mdns", "--expect", "1", "--replace-damaged", "--data", dir.to_str().unwrap()];
    let mut refused = Node::start("another", &durable.secret, &flags);
    assert_eq!(refused.ended().await, Some(1));
    let names =
        format!("belongs to cluster \"test-{}\", and this node was started for cluster \"another\"", durable.secret);
    let named =
        |line: &String| line.contains(&names) && line.contains("--cluster") && line.contains("another directory");
    assert!(refused.err.all().iter().any(named), "{:#?}", refused.err.all());
    // Moving it aside must keep the name of the cluster.
    durable.start(0, None, &["--expect", "1", "--replace-damaged"]).ready().await;
    assert_eq!(durable.nodes[1].stop("-TERM").await, Some(0));
    assert!(durable.place.join("node-0.damaged-1/CLUSTER").is_file() && dir.join("CLUSTER").is_file());
}
