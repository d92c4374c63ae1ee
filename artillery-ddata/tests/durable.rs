//! Nodes with directories: what was acknowledged is there after all of them have ended.
#![allow(missing_docs)]

mod support;

use std::{path::Path, time::Duration};

use artillery_ddata::{
    Node, NodeBuilder,
    admin::{DamagePlace, check_directory},
    node::{DataDirError, NeverReady, StartError, Stopped},
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
            let node = started(|| self.builder(n, of)).await.unwrap();
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
async fn started(builder: impl Fn() -> NodeBuilder) -> Result<Node, StartError> {
    let starting = async {
        loop {
            match builder().start().await {
                Err(StartError::Data(DataDirError::InUse(_))) => tokio::time::sleep(Duration::from_millis(20)).await,
                started => return started,
            }
        }
    };
    tokio::time::timeout(PATIENCE, starting).await.expect("the directory is free in time")
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

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_backup_is_refused() {
    let mut durable = Durable::new();
    durable.start(0..3, 3).await;
    durable.nodes[0].kv().put("key", "old").await.unwrap();
    durable.stop().await;
    let backup = durable.dir.path().join("backup");
    copy(&durable.of(2), &backup);
    durable.start(0..3, 3).await;
    durable.nodes[0].kv().put("key", "new").await.unwrap();
    durable.stop().await;
    copy(&backup, &durable.of(2));
    durable.start(0..2, 3).await;
    let old = started(|| durable.builder(2, 3)).await.unwrap();
    let stopped = tokio::time::timeout(PATIENCE, old.stopped()).await.expect("it is refused in time");
    assert_eq!(stopped, Stopped::RolledBack);
    let read = durable.nodes[1].kv().get("key").await.unwrap();
    assert_eq!(read.value().map(|value| &value[..]), Some(&b"new"[..]));
    durable.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_is_damaged_or_in_use_is_named() {
    let mut durable = Durable::new();
    durable.start([0], 1).await;
    durable.nodes[0].kv().put("key", vec![7; 5000]).await.unwrap();
    let used = durable.builder(0, 1).start().await;
    assert!(matches!(used, Err(StartError::Data(DataDirError::InUse(dir))) if dir == durable.of(0)));
    durable.stop().await;
    let another = started(|| durable.builder(1, 1).data_dir(durable.of(0))).await;
    assert!(matches!(another, Err(StartError::Data(DataDirError::Unusable { .. }))), "{another:?}");
    let journal = durable.of(0).join("journal-0000000001");
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes[4096 + 30] ^= 1;
    std::fs::write(&journal, bytes).unwrap();
    let damaged = started(|| durable.builder(0, 1)).await;
    let Err(StartError::Data(DataDirError::Damaged { why, place, .. })) = damaged else { panic!("{damaged:?}") };
    assert!(why.contains("journal-0000000001 is damaged at byte 4096"), "{why}");
    assert_eq!(place, DamagePlace { file: "journal-0000000001".to_owned(), offset: 4096, kind: "group" });
    let checked = check_directory(durable.of(0));
    assert!(matches!(checked, Err(DataDirError::Damaged { place: same, .. }) if same == place));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_start_lets_go_of_the_directory() {
    let durable = Durable::new();
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let failed = durable.builder(0, 1).listen(addr).start().await;
    assert!(matches!(failed, Err(StartError::Cluster(_))), "{failed:?}");
    drop(taken);
    let mut last = None;
    for _ in 0..100 {
        match durable.builder(0, 1).listen(addr).start().await {
            Ok(node) => return node.shutdown().await,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("ten seconds later: {last:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_directory_is_refused_beside_nodes_with_one() {
    let mut durable = Durable::new();
    durable.start([0], 1).await;
    let seed = durable.nodes[0].addr().to_string();
    let memory = Node::builder().cluster(&durable.name).secret(SECRET).mdns(false).expect(1).seed(seed);
    let memory =
        memory.listen("127.0.0.1:0".parse().unwrap()).configure(|config| config.expect = 2).start().await.unwrap();
    let refused = tokio::time::timeout(PATIENCE, memory.ready()).await.expect("it is refused in time");
    let Err(NeverReady::Refused(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("keeps nothing on disk"), "{why}");
    durable.stop().await;
}
