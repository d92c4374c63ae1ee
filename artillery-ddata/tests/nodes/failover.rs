//! Lost members: others replace them, and no acknowledged write is lost.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::support::{PATIENCE, TestCluster, until, within};
use artillery_ddata::{ChainId, Kv, Node, NodeBuilder, Place, admin::AdminCommand, client::Spread, kv::ReadPath};
use tokio::task::JoinSet;

/// Writers that each increment a key of their own and know the last acknowledged count.
struct Load {
    over: Arc<AtomicBool>,
    writers: JoinSet<(String, u64)>,
}

impl Load {
    fn begin(kv: &Kv, writers: u32) -> Self {
        let over = Arc::<AtomicBool>::default();
        let mut all = JoinSet::new();
        for writer in 0..writers {
            let (kv, over) = (kv.clone().with_timeout(PATIENCE), over.clone());
            all.spawn(async move {
                let (key, mut count) = (format!("count/{writer}"), 0);
                while !over.load(Ordering::Relaxed) {
                    // Exactly once, despite all failures in between.
                    within(kv.increment(&*key, 1)).await.unwrap();
                    count += 1;
                }
                (key, count)
            });
        }
        Self { over, writers: all }
    }

    async fn end(mut self) -> Vec<(String, u64)> {
        self.over.store(true, Ordering::Relaxed);
        let mut counts = Vec::new();
        while let Some(count) = self.writers.join_next().await {
            counts.push(count.unwrap());
        }
        counts
    }
}

async fn holds(nodes: &[&Node], counts: &[(String, u64)]) {
    for node in nodes {
        for (key, count) in counts {
            let read = within(node.kv().with_timeout(PATIENCE).get(key)).await.unwrap();
            let value = read.into_value().unwrap();
            assert_eq!(value, count.to_string(), "{key} at {node:?}");
        }
    }
}

async fn members(node: &Node, count: usize) {
    until(async || {
        let status = node.status().await;
        status.chains.first().is_some_and(|chain| chain.members.len() == count && chain.open)
    })
    .await;
}

async fn epoch(node: &Node) -> u64 {
    node.status().await.chains[0].epoch
}

async fn sums(loads: Vec<Load>) -> Vec<(String, u64)> {
    let mut sums = BTreeMap::new();
    for load in loads {
        for (key, count) in load.end().await {
            *sums.entry(key).or_insert(0) += count;
        }
    }
    sums.into_iter().collect()
}

async fn lose(place: Place, silently: bool) {
    let mut cluster = TestCluster::start(3).await;
    let at = cluster.index(place);
    let gone = cluster.nodes.remove(at);
    let cuts = cluster.cuts.remove(at);
    let survivors: Vec<_> = cluster.nodes.iter().collect();
    let before = epoch(survivors[0]).await;
    let loads: Vec<_> = survivors.iter().map(|node| Load::begin(&node.kv(), 4)).collect();
    within(survivors[0].kv().put("before", "v")).await.unwrap();
    let begin = tokio::time::Instant::now();
    if silently {
        for (other, theirs) in cluster.nodes.iter().zip(&cluster.cuts) {
            cuts.cut(other.addr());
            theirs.cut(gone.addr());
        }
    } else {
        gone.abort().await;
    }
    within(survivors[0].kv().with_timeout(PATIENCE).put("after", "v")).await.unwrap();
    println!("{place} gone, silently: {silently}; a write after {:?}", begin.elapsed());
    members(survivors[0], 2).await;
    assert!(epoch(survivors[0]).await > before);
    let counts = sums(loads).await;
    holds(&survivors, &counts).await;
    if silently {
        // The lost member can't know later writes, so it must not answer.
        let old = within(gone.kv().get("after").timeout(Duration::from_millis(300))).await;
        assert!(old.is_err(), "{old:?}");
        cuts.heal();
        cluster.heal();
        members(&gone, 3).await;
        holds(&[&gone], &counts).await;
        assert_eq!(within(gone.kv().get("after")).await.unwrap().into_value().unwrap(), "v");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_head_is_replaced() {
    lose(Place::Head, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_middle_is_replaced() {
    lose(Place::Middle, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_tail_is_replaced() {
    lose(Place::Tail, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silently_lost_head_is_replaced() {
    lose(Place::Head, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_finds_the_new_head() {
    let mut cluster = TestCluster::start(3).await;
    let client = cluster.client(Spread::Sticky).await;
    let load = Load::begin(&client.kv(), 4);
    within(client.kv().put("before", "v")).await.unwrap();
    let at = cluster.index(Place::Head);
    let gone = cluster.nodes.remove(at);
    let cuts = cluster.cuts.remove(at);
    for (other, theirs) in cluster.nodes.iter().zip(&cluster.cuts) {
        cuts.cut(other.addr());
        theirs.cut(gone.addr());
    }
    members(&cluster.nodes[0], 2).await;
    within(client.kv().with_timeout(PATIENCE).put("after", "v")).await.unwrap();
    let survivors: Vec<_> = cluster.nodes.iter().collect();
    holds(&survivors, &sums(vec![load]).await).await;
}

/// Four nodes, three of which serve. The fourth replaces one that is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spare_replaces_a_lost_tail() {
    // The backlog is so small that a joiner needs a snapshot, but large enough for it to keep up afterwards.
    let little = |builder: NodeBuilder| builder.configure(|config| config.limits.backlog_bytes = 64 << 10);
    let mut cluster = TestCluster::start_with(3, little).await;
    let spare = cluster.add(little).await;
    within(spare.ready()).await.unwrap();
    let load = Load::begin(&spare.kv(), 4);
    for n in 0..200 {
        within(spare.kv().put(format!("key/{n}"), vec![7; 1000])).await.unwrap();
    }
    let at = cluster.index(Place::Tail);
    cluster.nodes.remove(at).abort().await;
    members(&spare, 3).await;
    let counts = sums(vec![load]).await;
    let survivors: Vec<_> = cluster.nodes.iter().collect();
    holds(&survivors, &counts).await;
    // The spare holds everything itself, so its reads don't need the others.
    for n in 0..200 {
        let read = within(spare.kv().get(&format!("key/{n}"))).await.unwrap();
        assert_eq!(read.into_value().unwrap(), vec![7; 1000]);
    }
    // On a busy machine the joiner may fall behind the backlog, and start over.
    assert!((1..=3).contains(&spare.status().await.chains[0].resyncs_full));
    until(async || spare.kv().get("key/0").await.is_ok_and(|read| read.served.way == ReadPath::Local)).await;
}

/// One node after another is stopped and restarted under its name. All are members in the end, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restart_loses_nothing() {
    let mut cluster = TestCluster::start_named(3).await;
    let client = cluster.client(Spread::Sticky).await;
    let load = Load::begin(&client.kv(), 4);
    within(client.kv().put("before", "v")).await.unwrap();
    for n in 0..3 {
        let gone = cluster.nodes.remove(0);
        let name = gone.name().to_owned();
        match n {
            0 => gone.leave().await,
            _ => gone.abort().await,
        }
        let new = cluster.add(|builder| builder.name(name.clone())).await;
        within(new.ready()).await.unwrap();
        members(&new, 3).await;
        assert!(new.place() != Place::Spare, "{new:?}");
    }
    let counts = sums(vec![load]).await;
    let all: Vec<_> = cluster.nodes.iter().collect();
    holds(&all, &counts).await;
    for node in all {
        assert_eq!(within(node.kv().get("before")).await.unwrap().into_value().unwrap(), "v");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_node_is_not_waited_for() {
    let mut cluster = TestCluster::start(3).await;
    let at = cluster.index(Place::Head);
    let gone = cluster.nodes.remove(at);
    within(gone.kv().put("k", "v")).await.unwrap();
    within(gone.leave()).await;
    for node in &cluster.nodes {
        members(node, 2).await;
        assert_eq!(within(node.kv().get("k")).await.unwrap().into_value().unwrap(), "v");
    }
    within(cluster.nodes[0].kv().put("k", "w")).await.unwrap();
}

/// A joiner that the tail can't reach is replaced by a healthy spare, although no write waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_joiner_is_replaced_by_a_spare() {
    // A founder must be the leader: if a spare were, it couldn't be cut off from the tail alone.
    let mut cluster = TestCluster::start(3).await;
    for name in ["d", "e"] {
        within(cluster.add(|builder| builder.name(name)).await.ready()).await.unwrap();
    }
    within(cluster.node(Place::Head).kv().put("k", "v")).await.unwrap();
    let leader = leader_that_is_no_tail(&cluster).await;
    let (tail, middle) = (cluster.index(Place::Tail), cluster.index(Place::Middle));
    let gone = if cluster.nodes[middle].name() == leader { cluster.index(Place::Head) } else { middle };
    let spares: Vec<_> = (0..5).filter(|&at| cluster.nodes[at].place() == Place::Spare).collect();
    let cut = |at: usize| {
        cluster.cuts[at].cut(cluster.nodes[tail].addr());
        cluster.cuts[tail].cut(cluster.nodes[at].addr());
    };
    spares.iter().for_each(|&spare| cut(spare));
    cluster.nodes[gone].abort().await;
    let syncing = async || cluster.nodes[tail].status().await.chains.first().and_then(|chain| chain.syncing.clone());
    until(async || syncing().await.is_some()).await;
    let first = syncing().await.unwrap();
    let other = *spares.iter().find(|&&spare| cluster.nodes[spare].name() != first).unwrap();
    // The other spare can be reached, and is healthy.
    cluster.cuts[other].mend(cluster.nodes[tail].addr());
    cluster.cuts[tail].mend(cluster.nodes[other].addr());
    let serves = |place| matches!(place, Place::Head | Place::Middle | Place::Tail);
    until(async || serves(cluster.nodes[other].place())).await;
    assert_eq!(within(cluster.nodes[other].kv().get("k")).await.unwrap().into_value().unwrap(), "v");
}

/// Reorders the members so that the leader isn't the tail. Returns the name of the leader.
async fn leader_that_is_no_tail(cluster: &TestCluster) -> String {
    let head = cluster.node(Place::Head);
    let leader = async || head.status().await.log.and_then(|log| log.leader);
    until(async || leader().await.is_some()).await;
    let leader = leader().await.unwrap();
    if cluster.node(Place::Tail).name() == leader {
        let config = head.routing().unwrap().chain(ChainId(0)).unwrap().clone();
        let mut order: Vec<_> = config.serving().collect();
        order.rotate_right(1);
        let client = cluster.client(Spread::Sticky).await;
        let (wish, node) = (AdminCommand::Reorder { chain: ChainId(0), order }, cluster.node(Place::Tail).id().node);
        within(client.arrange(node, wish, PATIENCE)).await.unwrap();
        // Nodes receive the new order one after another: in between, no member, or two, may consider themselves the
        // middle.
        let count = |place| cluster.nodes.iter().filter(|node| node.place() == place).count();
        until(async || [Place::Head, Place::Middle, Place::Tail].into_iter().all(|place| count(place) == 1)).await;
        assert_eq!(cluster.node(Place::Head).name(), leader);
    }
    leader
}
