//! Nodes with `--data`: all of them are killed at once, and what was acknowledged is there again.

use std::path::{Path, PathBuf};

use artillery_ddata::Client;
use artillery_processes::{Node, token};

struct Durable {
    secret: String,
    place: PathBuf,
    nodes: Vec<Node>,
}

impl Durable {
    fn new() -> Self {
        let secret = token();
        let place = std::env::temp_dir().join(format!("artillery-durable-{secret}"));
        Self { secret, place, nodes: Vec::new() }
    }

    fn dir(&self, n: usize) -> PathBuf {
        self.place.join(format!("node-{n}"))
    }

    fn start(&mut self, n: usize, seed: Option<&str>, more: &[&str]) -> &mut Node {
        let (name, dir) = (format!("node-{n}"), self.dir(n));
        let mut flags = vec!["--no-mdns", "--name", &name, "--data", dir.to_str().unwrap()];
        flags.extend(seed.iter().flat_map(|seed| ["--seed", seed]));
        flags.extend(more);
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
        let client = Client::builder().cluster(format!("test-{}", self.secret)).secret(&*self.secret);
        client.seed(addrs[0].parse().unwrap()).connect().await.unwrap()
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
    let mut durable = Durable::new();
    for round in 0..3 {
        let client = durable.start_all().await;
        for node in durable.nodes.iter().filter(|_| round > 0) {
            assert!(node.err.all().iter().any(|line| line.contains("loading the directory")), "it says how far it is");
        }
        for before in 0..round {
            let read = client.kv().get(&format!("key-{before}")).await.unwrap();
            assert_eq!(read.value().map(|value| value.to_vec()), Some(format!("value-{before}").into_bytes()));
        }
        client.kv().put(format!("key-{round}"), format!("value-{round}")).await.unwrap();
        durable.kill_all().await;
    }
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
    assert!(refused.err.all().iter().any(|line| line.contains("journal-0000000001 is damaged at byte 4096")));
    durable.start(0, None, &["--expect", "1", "--replace-damaged"]).ready().await;
    assert!(durable.place.join("node-0.damaged-1").is_dir());
}
