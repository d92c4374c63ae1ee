//! Nodes with directories: acknowledged data survives the end of all of them.

mod clusters;
mod directories;
mod loading;
mod operators;
use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::support::{Cuts, PATIENCE, SECRET, random_name};
use artillery_ddata::{
    ChainId, Client, Error, Node, NodeBuilder, Refusal,
    admin::{
        AdminError, DamagePlace, History, NotReopened, NotReplaced, Replacement, Survey, check_directory,
        plan_recovery, plan_succession,
    },
    config::Config,
    node::{DataDirError, Loading, NeverReady, StartError, Stopped},
    status::LoadingStep,
};

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

    async fn start(&mut self, nodes: impl IntoIterator<Item = u32>, of: u32) {
        for n in nodes {
            self.start_one(n, of).await;
        }
        for node in &self.nodes {
            let ready = tokio::time::timeout(PATIENCE, node.ready()).await;
            if ready.is_err() {
                panic!("{:#?}", node.status().await);
            }
            ready.unwrap().unwrap();
        }
    }

    /// Starts a node without waiting until it is ready, which may require others.
    async fn start_one(&mut self, n: u32, of: u32) {
        let node = started(|| self.builder(n, of)).await.unwrap();
        self.nodes.push(node);
    }

    async fn stop(&mut self) {
        for node in self.nodes.drain(..) {
            node.abort().await;
        }
    }
}

/// Starts a node. Its last incarnation must have released the directory.
async fn started(builder: impl Fn() -> NodeBuilder) -> Result<Node, StartError> {
    builder().start().await
}

/// Values are refused before a disk is full. Deletes free space, and the cluster recovers by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_values_until_deletes_made_room() {
    let mut durable = Durable::new();
    for n in 0..3 {
        let small = |config: &mut Config| {
            let data = config.data.as_mut().unwrap();
            (data.room_bytes, data.reserve_bytes) = (1 << 20, Some(2 << 20));
            data.max_disk_bytes = (n == 1).then_some(16 << 20);
        };
        let node = durable.builder(n, 3).configure(small).start().await.unwrap();
        durable.nodes.push(node);
    }
    durable.start([], 3).await;
    let (kv, full) = (durable.nodes[0].kv(), durable.nodes[1].id().node);
    let put = async |n: u32| kv.put(format!("key-{n}"), vec![n as u8; 100_000]).await;
    let mut count = 0;
    let refused = loop {
        match put(count).await {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 200, "more values than 16 MiB can hold");
    };
    let is_full = |error: &Error| matches!(error, Error::Refused { reason: Refusal::DiskFull { member }, .. } if member.node == full);
    assert!(is_full(&refused), "{refused}");
    assert!(count > 20, "{count}");
    for n in 0..count {
        assert_eq!(kv.get(&format!("key-{n}")).await.unwrap().value().map(|value| value.len()), Some(100_000));
        kv.delete(format!("key-{n}")).await.unwrap();
    }
    crate::support::until(async || put(0).await.map_err(|error| assert!(is_full(&error), "{error}")).is_ok()).await;
    durable.stop().await;
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
        // Another node starts first each time, at another port.
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

fn key(n: u32) -> String {
    format!("key-{n}")
}

/// Checks that the first `count` keys exist, and writes the next one.
async fn check_and_write(node: &Node, count: u32) {
    for n in 0..count {
        let read = node.kv().get(&key(n)).await.unwrap();
        assert_eq!(read.value().map(|value| value.to_vec()), Some(key(n).into_bytes()));
    }
    node.kv().put(key(count), key(count)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_for_a_while_leaves_its_chain_and_keeps_its_vote() {
    let mut durable = Durable::new();
    durable.start(0..3, 3).await;
    for round in 0..3 {
        let gone = durable.nodes.remove(0);
        gone.shutdown().await;
        let is_known = async {
            while durable.nodes[0].status().await.chains[0].members.len() != 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, is_known).await.expect("the chain continues with two members");
        assert_eq!(durable.nodes[0].status().await.log.unwrap().voters.len(), 3);
        check_and_write(&durable.nodes[1], round).await;
        drop(gone);
        durable.start([round], 3).await;
    }
    durable.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_stopped_at_once_or_one_by_one_lose_nothing() {
    let mut durable = Durable::new();
    durable.start(0..3, 3).await;
    check_and_write(&durable.nodes[0], 0).await;
    let stopping: Vec<_> =
        durable.nodes.drain(..).map(|node| tokio::spawn(async move { node.shutdown().await })).collect();
    for stopped in stopping {
        stopped.await.unwrap();
    }
    durable.start([2, 0, 1], 3).await;
    check_and_write(&durable.nodes[0], 1).await;
    // One after another, with a write in between. The last one is started first, last, and in the middle.
    for (round, order) in [[2, 0, 1], [0, 1, 2], [1, 2, 0]].into_iter().enumerate() {
        durable.nodes.sort_by_key(|node| node.name().to_owned());
        durable.nodes.remove(0).shutdown().await;
        check_and_write(&durable.nodes[0], round as u32 + 2).await;
        durable.nodes.remove(0).shutdown().await;
        durable.nodes.remove(0).shutdown().await;
        durable.start(order, 3).await;
    }
    check_and_write(&durable.nodes[0], 5).await;
    durable.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_keeps_the_name_of_its_node() {
    let mut durable = Durable::new();
    let nameless = |durable: &Durable| durable.builder(0, 1).configure(|config| config.name = None);
    let node = nameless(&durable).start().await.unwrap();
    let name = node.name().to_owned();
    assert!(name.starts_with("node-") && name.len() > 10, "{name}");
    node.abort().await;
    drop(node);
    let again = started(|| nameless(&durable)).await.unwrap();
    assert_eq!(again.name(), name);
    again.abort().await;
    drop(again);
    // Without the file, or with another name in it, the control file still has the node's name.
    std::fs::write(durable.of(0).join("NAME"), "node-9").unwrap();
    let other = started(|| nameless(&durable)).await;
    assert!(matches!(other, Err(StartError::Data(DataDirError::OtherNode { .. }))), "{other:?}");
    std::fs::remove_file(durable.of(0).join("NAME")).unwrap();
    let unknown = started(|| nameless(&durable)).await;
    assert!(matches!(unknown, Err(StartError::NoName)), "{unknown:?}");
    let named = started(|| durable.builder(0, 1).name(&name)).await.unwrap();
    durable.nodes.push(named);
    durable.stop().await;
    assert_eq!(std::fs::read_to_string(durable.of(0).join("NAME")).unwrap(), format!("{name}\n"));
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
    // The older directory is refused however often it is started, although each start writes to it.
    for _ in 0..3 {
        let old = started(|| durable.builder(2, 3)).await.unwrap();
        let stopped = tokio::time::timeout(PATIENCE, old.stopped()).await.expect("it is refused in time");
        assert_eq!(stopped, Stopped::RolledBack);
        old.abort().await;
    }
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
    let Err(StartError::Data(DataDirError::OtherNode { kept, given, .. })) = another else { panic!("{another:?}") };
    assert_eq!((kept.as_deref(), &*given), (Some("node-0"), "node-1"));
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
            Ok(node) => return node.abort().await,
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_in_flight_is_settled_by_itself() {
    let mut durable = Durable::new();
    durable.start(0..3, 3).await;
    durable.nodes[0].kv().put("key", "value").await.unwrap();
    let writers: Vec<_> = (0..64)
        .map(|n| {
            let kv = durable.nodes[0].kv();
            tokio::spawn(async move { while kv.put(format!("key-{n}"), "value").await.is_ok() {} })
        })
        .collect();
    let begun = async { while durable.nodes[0].metrics().await.status.chains[0].watermark < 500 {} };
    tokio::time::timeout(PATIENCE, begun).await.expect("writes are committed");
    durable.stop().await;
    for writer in writers {
        tokio::time::timeout(PATIENCE, writer).await.expect("a stopped node answers no write").unwrap();
    }
    durable.start(0..3, 3).await;
    for node in &durable.nodes {
        let settled = async { while node.status().await.chains.iter().any(|chain| chain.unreplicated_records > 0) {} };
        tokio::time::timeout(PATIENCE, settled).await.expect("it falls to 0 by itself");
        let metrics = node.metrics().await;
        for of in &metrics.rereplications {
            assert_eq!(of.latency.count(), of.done + of.superseded, "{of:?}");
        }
    }
    durable.stop().await;
}
