//! Nodes with directories: what was acknowledged is there after all of them have ended.
#![allow(missing_docs)]

mod support;

use std::{path::Path, time::Duration};

use artillery_ddata::{
    Node, NodeBuilder,
    node::{DataDirError, StartError},
};
use support::{PATIENCE, SECRET, random_name};

struct Durable {
    name: String,
    dir: tempfile::TempDir,
    nodes: Vec<Node>,
}

impl Durable {
    fn new() -> Self {
        Self { name: random_name(), dir: tempfile::tempdir().unwrap(), nodes: Vec::new() }
    }

    fn builder(&self, n: u32, of: u32) -> NodeBuilder {
        let seeds = self.nodes.iter().map(|node| node.addr().to_string());
        let node = Node::builder().cluster(&self.name).secret(SECRET).name(format!("node-{n}")).mdns(false);
        let node = node.expect(of).listen("127.0.0.1:0".parse().unwrap()).data_dir(self.of(n));
        seeds.fold(node, NodeBuilder::seed)
    }

    fn of(&self, n: u32) -> std::path::PathBuf {
        self.dir.path().join(format!("node-{n}"))
    }

    /// Starts nodes on new ports.
    async fn start(&mut self, nodes: impl IntoIterator<Item = u32>, of: u32) {
        for n in nodes {
            let node = opened(&self.of(n), || self.builder(n, of)).await;
            self.nodes.push(node);
        }
        for node in &self.nodes {
            let ready = tokio::time::timeout(PATIENCE, node.ready()).await;
            if ready.is_err() {
                panic!("{:#?}", node.status().await);
            }
            ready.unwrap().unwrap();
        }
    }

    async fn stop(&mut self) {
        for node in self.nodes.drain(..) {
            node.shutdown().await;
        }
    }
}

/// Starts a node; its last life may need a moment to let go of the directory.
async fn opened(dir: &Path, builder: impl Fn() -> NodeBuilder) -> Node {
    let opening = async {
        loop {
            match builder().start().await {
                Err(StartError::Data(DataDirError::InUse(used))) => assert_eq!(used, dir),
                started => return started.unwrap(),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, opening).await.expect("the directory is free in time")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_node_finds_again_what_it_was_given() {
    let mut durable = Durable::new();
    durable.start([0], 1).await;
    let version = durable.nodes[0].kv().put("key", "value").await.unwrap().version;
    durable.stop().await;
    durable.start([0], 1).await;
    let kv = durable.nodes[0].kv();
    let read = kv.get("key").await.unwrap();
    assert_eq!((read.value().map(|value| &value[..]), read.version()), (Some(&b"value"[..]), version));
    kv.put("key", "again").await.unwrap();
    durable.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_that_all_stop_open_their_chain_again() {
    let mut durable = Durable::new();
    durable.start(0..3, 3).await;
    let mut last = Vec::new();
    for round in 0..3u32 {
        let kv = durable.nodes[0].kv();
        for n in 0..50u32 {
            last.push(kv.put(format!("key-{n}"), format!("{round}-{n}")).await.unwrap().version);
        }
        durable.stop().await;
        // Another one comes first each time, at another port.
        durable.start([round % 3, (round + 1) % 3, (round + 2) % 3], 3).await;
        let kv = durable.nodes[0].kv();
        for n in 0..50u32 {
            let read = kv.get(&format!("key-{n}")).await.unwrap();
            assert_eq!(read.value().map(|value| value.to_vec()), Some(format!("{round}-{n}").into_bytes()));
            assert_eq!(read.version(), last[last.len() - 50 + n as usize]);
        }
    }
    durable.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_directory_of_two_is_enough() {
    let mut durable = Durable::new();
    durable.start(0..3, 3).await;
    durable.nodes[0].kv().put("key", "value").await.unwrap();
    durable.stop().await;
    std::fs::remove_dir_all(durable.of(2)).unwrap();
    durable.start(0..3, 3).await;
    let read = durable.nodes[2].kv().get("key").await.unwrap();
    assert_eq!(read.value().map(|value| &value[..]), Some(&b"value"[..]));
    durable.stop().await;
}
