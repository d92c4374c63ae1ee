//! Nodes with directories: what was acknowledged is there after all of them have ended.
#![allow(missing_docs)]

mod support;

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use artillery_ddata::{
    ChainId, Client, Error, Node, NodeBuilder, Refusal,
    admin::{DamagePlace, NotFounded, NotReopened, Survey, check_directory, plan_recovery, plan_succession},
    config::Config,
    node::{DataDirError, Loading, NeverReady, StartError, Stopped},
};
use support::{Cuts, PATIENCE, SECRET, random_name};

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

    /// Starts a node that isn't ready before others are there.
    async fn start_one(&mut self, n: u32, of: u32) {
        let node = started(|| self.builder(n, of)).await.unwrap();
        self.nodes.push(node);
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

/// Values are refused before a disk is full. Deletes make room, and the cluster heals by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_values_until_deletes_made_room() {
    let mut durable = Durable::new();
    for n in 0..3 {
        let small = |config: &mut Config| {
            let data = config.data.as_mut().unwrap();
            (data.room_bytes, data.reserve_bytes) = (1 << 20, 2 << 20);
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
        assert!(count < 200, "16 MiB hold so many values");
    };
    let is_full = |error: &Error| matches!(error, Error::Refused { reason: Refusal::DiskFull { member }, .. } if member.node == full);
    assert!(is_full(&refused), "{refused}");
    assert!(count > 20, "{count}");
    for n in 0..count {
        assert_eq!(kv.get(&format!("key-{n}")).await.unwrap().value().map(|value| value.len()), Some(100_000));
        kv.delete(format!("key-{n}")).await.unwrap();
    }
    support::until(async || put(0).await.map_err(|error| assert!(is_full(&error), "{error}")).is_ok()).await;
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

fn key(n: u32) -> String {
    format!("key-{n}")
}

/// Checks that the first `count` keys are there, and writes the next one.
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
        gone.withdraw().await;
        let is_known = async {
            while durable.nodes[0].status().await.chains[0].members.len() != 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, is_known).await.expect("the chain goes on with two members");
        assert_eq!(durable.nodes[0].status().await.log.unwrap().voters.len(), 3);
        check_and_write(&durable.nodes[1], round).await;
        // The directory is in use as long as the handle is.
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
    // At once.
    let stopping: Vec<_> =
        durable.nodes.drain(..).map(|node| tokio::spawn(async move { node.withdraw().await })).collect();
    for stopped in stopping {
        stopped.await.unwrap();
    }
    durable.start([2, 0, 1], 3).await;
    check_and_write(&durable.nodes[0], 1).await;
    // One after the other, with a write between. The last one is started first, last, and in the middle.
    for (round, order) in [[2, 0, 1], [0, 1, 2], [1, 2, 0]].into_iter().enumerate() {
        durable.nodes.sort_by_key(|node| node.name().to_owned());
        durable.nodes.remove(0).withdraw().await;
        check_and_write(&durable.nodes[0], round as u32 + 2).await;
        durable.nodes.remove(0).withdraw().await;
        durable.nodes.remove(0).withdraw().await;
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
    node.shutdown().await;
    // The directory is in use as long as the handle is.
    drop(node);
    let again = started(|| nameless(&durable)).await.unwrap();
    assert_eq!(again.name(), name);
    again.shutdown().await;
    drop(again);
    // Without the file, or with another name in it, the control file still knows the node.
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
    // However often it is started, and although each start writes to it.
    for _ in 0..3 {
        let old = started(|| durable.builder(2, 3)).await.unwrap();
        let stopped = tokio::time::timeout(PATIENCE, old.stopped()).await.expect("it is refused in time");
        assert_eq!(stopped, Stopped::RolledBack);
        old.shutdown().await;
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

impl Durable {
    async fn client(&self, seed: &Node) -> Client {
        let builder = Client::builder().cluster(&self.name).secret(SECRET).seed(seed.addr());
        tokio::time::timeout(PATIENCE, builder.connect()).await.expect("a client in time").unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_goes_on_with_what_the_disk_of_a_node_holds_that_serves_nothing() {
    let mut durable = Durable::new();
    durable.start(0..3, 3).await;
    for n in 0..50u32 {
        durable.nodes[0].kv().put(format!("key-{n}"), format!("{n}")).await.unwrap();
    }
    durable.stop().await;
    for lost in [0, 1] {
        std::fs::remove_dir_all(durable.of(lost)).unwrap();
    }
    let third = started(|| durable.builder(2, 3)).await.unwrap();
    let client = durable.client(&third).await;
    let mut survey = client.survey(Duration::from_secs(2)).await;
    let cluster = survey.standings[0].cluster;
    let is_known = |survey: &Survey| plan_recovery(cluster, &survey.standings, Duration::ZERO).is_ok();
    for _ in 0..10 {
        // The node may not know its chains yet.
        if !is_known(&survey) {
            survey = client.survey(Duration::from_secs(2)).await;
        }
    }
    let no_lease = Duration::ZERO;
    let founding = plan_succession(cluster, &survey.standings, no_lease, no_lease, false);
    assert_eq!(founding, Err(NotFounded::Served { node: "node-2".into() }));
    let plan = plan_recovery(cluster, &survey.standings, Duration::ZERO);
    let plan = plan.unwrap_or_else(|error| panic!("{error}: {survey:#?}"));
    assert_eq!((plan.by.id, plan.chains[0].gone_on_to, plan.chains[0].synced), (third.id(), None, true));
    let recovered = client.recover(&plan.by, cluster, plan.history, PATIENCE).await.unwrap().unwrap();
    client.close().await;
    assert_eq!(recovered.plan.chains[0].last, plan.chains[0].last);
    durable.nodes.push(third);
    // The others begin with empty directories, and all restart once more.
    durable.start(0..2, 3).await;
    let read = async |durable: &Durable| {
        for n in 0..50u32 {
            let read = durable.nodes[0].kv().get(&format!("key-{n}")).await.unwrap();
            assert_eq!(read.value().map(|value| value.to_vec()), Some(format!("{n}").into_bytes()));
        }
    };
    read(&durable).await;
    durable.stop().await;
    durable.start(0..3, 3).await;
    read(&durable).await;
    durable.stop().await;
}

impl Durable {
    /// Starts three nodes that a test can cut off from each other.
    async fn start_with_cuts(&mut self) -> Vec<Cuts> {
        let cuts: Vec<_> = (0..3).map(|_| Cuts::default()).collect();
        for (n, cuts) in (0..).zip(cuts.clone()) {
            let node = self.builder(n, 3).link_filter(Arc::new(move |addr| cuts.passes(addr)));
            self.nodes.push(node.start().await.unwrap());
        }
        self.start([], 3).await;
        cuts
    }

    /// Has the first node go on alone.
    async fn recover_first(&self) {
        let client = self.client(&self.nodes[0]).await;
        let survey = client.survey(Duration::from_secs(2)).await;
        let mine = survey.standings.iter().find(|standing| standing.me.id == self.nodes[0].id()).unwrap();
        let recovered = client.recover(&mine.me, mine.cluster, mine.history, PATIENCE).await.unwrap();
        recovered.unwrap_or_else(|why| panic!("{why}: {survey:#?}"));
        client.close().await;
    }
}

async fn parted(node: &Node) -> Option<String> {
    node.status().await.log.and_then(|log| log.parted)
}

/// Two nodes go on and acknowledge writes, out of reach of the third, which an operator has go on alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parted_histories_are_both_kept_until_an_operator_decides() {
    let mut durable = Durable::new();
    let cuts = durable.start_with_cuts().await;
    durable.nodes[0].kv().put("key", "both").await.unwrap();
    let addrs: Vec<_> = durable.nodes.iter().map(Node::addr).collect();
    for other in [1, 2] {
        cuts[0].cut(addrs[other]);
        cuts[other].cut(addrs[0]);
    }
    support::until(async || durable.nodes[1].kv().put("theirs", "1").await.is_ok()).await;
    durable.recover_first().await;
    durable.nodes[0].kv().put("ours", "1").await.unwrap();
    cuts.iter().for_each(Cuts::heal);
    let newer = durable.nodes[0].status().await.log.unwrap().history;
    support::until(async || {
        parted(&durable.nodes[1]).await.as_ref() == Some(&newer)
            && parted(&durable.nodes[2]).await.as_ref() == Some(&newer)
    })
    .await;
    // One of those that wait starts again, and waits again.
    durable.nodes.remove(1).shutdown().await;
    let again = started(|| durable.builder(1, 3)).await.unwrap();
    support::until(async || parted(&again).await.as_ref() == Some(&newer)).await;
    durable.nodes.insert(1, again);
    for waiting in &durable.nodes[1..] {
        assert!(!waiting.status().await.ready);
        assert!(waiting.kv().get_local(b"theirs").is_err());
    }
    let client = durable.client(&durable.nodes[0]).await;
    let standings = client.survey_at(durable.nodes.iter().map(Node::addr), PATIENCE).await;
    let of = |n: usize| standings.iter().find(|standing| standing.me.id == durable.nodes[n].id()).unwrap();
    assert_eq!((of(0).yields, of(1).yields, of(2).yields), (false, true, true));
    assert_eq!((of(0).history.to_string(), of(0).branches[0].from), (newer, of(1).history));
    assert!(of(2).chains[0].last > of(0).branches[0].chains[0].last);
    client.close().await;
    // The operator keeps the older history.
    durable.stop().await;
    durable.start(1..3, 3).await;
    let kv = durable.nodes[0].kv();
    assert_eq!(kv.get("theirs").await.unwrap().value().map(|value| &value[..]), Some(&b"1"[..]));
    assert_eq!(kv.get("ours").await.unwrap().value(), None);
    durable.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_holds_nothing_beyond_the_branch_is_left_behind_and_stays_on_the_disk() {
    let mut durable = Durable::new();
    let cuts = durable.start_with_cuts().await;
    durable.nodes[0].kv().put("key", "value").await.unwrap();
    let addrs: Vec<_> = durable.nodes.iter().map(Node::addr).collect();
    for (n, cuts) in cuts.iter().enumerate() {
        addrs.iter().enumerate().filter(|(other, _)| *other != n).for_each(|(_, &addr)| cuts.cut(addr));
    }
    durable.recover_first().await;
    cuts.iter().for_each(Cuts::heal);
    for node in &durable.nodes[1..] {
        let stopped = tokio::time::timeout(PATIENCE, node.stopped()).await.expect("it hears of the recovery in time");
        assert_eq!(stopped, Stopped::LeftBehind);
    }
    assert!(durable.of(1).join("control-1").exists());
    durable.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_whose_only_store_is_gone_goes_on_when_an_operator_accepts_that() {
    let mut durable = Durable::new();
    for n in 0..3 {
        let node = durable.builder(n, 3).configure(|config| config.chains.replicas = 1).start().await.unwrap();
        durable.nodes.push(node);
    }
    durable.start([], 3).await;
    durable.nodes[0].kv().put("key", "lost").await.unwrap();
    let mut served = 0;
    while durable.nodes[served].status().await.chains.is_empty() {
        served += 1;
    }
    let lost = durable.nodes.remove(served);
    let (name, member) = (lost.name().to_owned(), lost.id());
    let client = durable.client(&durable.nodes[0]).await;
    let leader_says = async || {
        let mut nodes: Vec<_> = durable.nodes.iter().map(|node| node.id().node).collect();
        nodes.push(member.node);
        for node in nodes {
            match client.reopen(node, ChainId(0), Duration::from_secs(10)).await {
                Err(_) | Ok(Err(NotReopened::NotLeading { .. })) => {}
                Ok(answer) => return Some(answer),
            }
        }
        None
    };
    support::until(async || leader_says().await == Some(Err(NotReopened::Lives { member }))).await;
    lost.shutdown().await;
    drop(lost);
    std::fs::remove_dir_all(durable.dir.path().join(&name)).unwrap();
    let reopened = Mutex::new(None);
    support::until(async || {
        *reopened.lock().unwrap() = leader_says().await.and_then(Result::ok);
        reopened.lock().unwrap().is_some()
    })
    .await;
    let reopened = reopened.into_inner().unwrap().unwrap();
    assert!(reopened.last.is_none() && reopened.by != member, "{reopened}");
    client.close().await;
    let kv = durable.nodes[0].kv();
    assert!(kv.get("key").await.unwrap().value().is_none());
    kv.put("key", "anew").await.unwrap();
    // The node whose directory is gone begins with an empty one, and all restart once more.
    let number = name.strip_prefix("node-").unwrap().parse().unwrap();
    durable.start([number], 3).await;
    for _ in 0..2 {
        for node in &durable.nodes {
            assert_eq!(node.kv().get("key").await.unwrap().value().map(|value| value.to_vec()), Some(b"anew".to_vec()));
        }
        durable.stop().await;
        durable.start(0..3, 3).await;
    }
    durable.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_loads_says_how_far_it_is() {
    let mut durable = Durable::new();
    durable.start([0], 1).await;
    for n in 0..50 {
        durable.nodes[0].kv().put(format!("key-{n}"), "value").await.unwrap();
    }
    durable.stop().await;
    let told: Arc<Mutex<Vec<Loading>>> = Arc::default();
    let node = started(|| {
        let told = told.clone();
        durable.builder(0, 1).on_loading(move |loading| told.lock().unwrap().push(loading))
    });
    let node = node.await.unwrap();
    node.ready().await.unwrap();
    let last = *told.lock().unwrap().last().expect("a report once the directory is loaded");
    assert!(!last.checks && last.records >= 50 && last.left == Some(Duration::ZERO), "{last:?}");
    assert!(last.read_bytes > 0 && last.read_bytes <= last.total_bytes, "{last:?}");
    node.shutdown().await;
}

/// Of two nodes that keep the log with a third one that is gone, one loads until it may go on: the other one serves meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_loads_keeps_the_log_and_shows_how_far_it_is() {
    let mut durable = Durable::new();
    durable.start(0..3, 3).await;
    for n in 0..50 {
        durable.nodes[0].kv().put(format!("key-{n}"), "value").await.unwrap();
    }
    durable.stop().await;
    durable.start_one(0, 3).await;
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let may_go_on = Arc::new(Mutex::new(may_go_on));
    let slow = started(|| {
        let may_go_on = may_go_on.clone();
        let wait = move |_| _ = may_go_on.lock().unwrap().recv();
        durable.builder(1, 3).on_loading(wait)
    });
    let slow = slow.await.unwrap();
    tokio::time::timeout(PATIENCE, durable.nodes[0].kv().put("key-0", "again")).await.unwrap().unwrap();
    let status = slow.status().await;
    assert!(!status.ready && status.chains.is_empty());
    let loading = status.loading.expect("it loads still");
    assert!(loading.records >= 50 && loading.step == "take_in", "{loading:?}");
    drop(go_on);
    tokio::time::timeout(PATIENCE, slow.ready()).await.unwrap().unwrap();
    assert_eq!(slow.status().await.loading, None);
    slow.shutdown().await;
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
