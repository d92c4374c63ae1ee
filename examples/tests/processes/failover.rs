//! Processes that are killed: writes go on without them, clean reads at the others never stop, a new node takes the place,
//! and every counter ends exactly where its acknowledged increments are.
//!
//! `FAILOVER_ROUNDS` kills of each place (1); every figure is printed, and held against the bounds only where there are
//! enough of them to speak of nineteen in twenty.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use artillery_ddata::{Client, Kv, NodeId, client::Spread};
use serde_json::Value;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::support::{CTL, Cluster, Node, PATIENCE, run, text};

const WRITERS: usize = 4;
/// At each member.
const READERS: usize = 3;

/// When writes were begun and acknowledged, and when reads were served by whom.
#[derive(Default)]
struct Seen {
    writes: Mutex<Vec<(Instant, Instant)>>,
    reads: Mutex<BTreeMap<NodeId, Vec<Instant>>>,
    over: AtomicBool,
}

/// What came of one kill.
#[derive(Debug)]
struct Round {
    /// From the kill to the first acknowledgement of a write that was begun after it.
    writes: Duration,
    /// The longest time in which one of the survivors served nobody.
    reads: Duration,
}

async fn kv(cluster: &Cluster, seeds: &[String]) -> Kv {
    let builder = Client::builder().cluster(&cluster.name).secret(&cluster.secret).spread(Spread::Sticky);
    let builder = seeds.iter().fold(builder, |builder, seed| builder.seed(seed.parse().unwrap()));
    builder.connect().await.unwrap().kv().with_timeout(PATIENCE)
}

async fn count(kv: Kv, key: String, seen: Arc<Seen>) -> (String, u64) {
    let mut acknowledged = 0;
    while !seen.over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        kv.increment(&*key, 1).await.unwrap();
        acknowledged += 1;
        seen.writes.lock().unwrap().push((begun, Instant::now()));
    }
    (key, acknowledged)
}

async fn read(kv: Kv, seen: Arc<Seen>) {
    while !seen.over.load(Ordering::Relaxed) {
        let read = kv.get("still").await.unwrap();
        seen.reads.lock().unwrap().entry(read.served.node).or_default().push(Instant::now());
        sleep(Duration::from_millis(2)).await;
    }
}

/// What a node says of the cluster, if it says anything.
async fn status(cluster: &Cluster, addr: &str) -> Option<Value> {
    let args = ["--cluster", &cluster.name, "--no-mdns", "--seed", addr, "--timeout", "2000", "--json", "status"];
    let done = run(CTL, Some(&cluster.secret), &args).await;
    serde_json::from_str(text(&done.stdout).lines().last()?).ok()
}

/// Waits until so many serve; the names of the members, head first.
async fn serving(cluster: &Cluster, nodes: &BTreeMap<String, (String, Node)>, wanted: usize) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for (addr, _) in nodes.values() {
            let status = status(cluster, addr).await.unwrap_or_default();
            let members = status["chains"][0]["members"].as_array().cloned().unwrap_or_default();
            let serves = |member: &&Value| member["open"] == true && member["role"] != "syncing";
            let names = members.iter().filter(serves).map(|member| member["node"].as_str().unwrap().to_owned());
            let names: Vec<_> = names.collect();
            if names.len() == wanted {
                return names;
            }
        }
        assert!(Instant::now() < deadline, "the chain didn't get {wanted} members");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Clients that read at the member which they found first: so many at each.
async fn readers_of_each(cluster: &Cluster, addrs: &[String]) -> Vec<Kv> {
    let mut of = BTreeMap::<NodeId, usize>::new();
    let mut readers = Vec::new();
    while readers.len() < READERS * addrs.len() {
        let kv = kv(cluster, addrs).await;
        // Until it is connected to the member that it likes best it may ask another one.
        let mut served = Vec::new();
        while served.len() < 3 || !served.ends_with(&[served[served.len() - 1]; 3]) {
            served.push(kv.get("still").await.unwrap().served.node);
        }
        let count = of.entry(served[served.len() - 1]).or_default();
        if *count < READERS {
            *count += 1;
            readers.push(kv);
        }
    }
    readers
}

/// Kills the member in one place, measures, and starts another node.
async fn kill(cluster: &Cluster, nodes: &mut BTreeMap<String, (String, Node)>, at: usize, flags: &[&str]) -> Round {
    let addrs: Vec<_> = nodes.values().map(|(addr, _)| addr.clone()).collect();
    let order = serving(cluster, nodes, 3).await;
    let seen = Arc::<Seen>::default();
    let (mut writers, mut readers) = (JoinSet::new(), JoinSet::new());
    for writer in 0..WRITERS {
        writers.spawn(count(kv(cluster, &addrs).await, format!("count/{writer}"), seen.clone()));
    }
    let before = kv(cluster, &addrs).await;
    before.put("still", "here").await.unwrap();
    let mut counted = BTreeMap::new();
    for writer in 0..WRITERS {
        let key = format!("count/{writer}");
        counted.insert(key, 0);
    }
    for kv in readers_of_each(cluster, &addrs).await {
        readers.spawn(read(kv, seen.clone()));
    }
    sleep(Duration::from_millis(500)).await;
    let (_, mut victim) = nodes.remove(&order[at]).unwrap();
    let killed = Instant::now();
    victim.kill().await;
    let resumed = resumed(&seen, killed).await;
    sleep(Duration::from_millis(500)).await;
    seen.over.store(true, Ordering::Relaxed);
    while let Some(done) = writers.join_next().await {
        let (key, acknowledged) = done.unwrap();
        counted.insert(key, acknowledged);
    }
    while let Some(done) = readers.join_next().await {
        done.unwrap();
    }
    let reads = gaps(&seen, killed);
    let left: Vec<_> = nodes.values().map(|(addr, _)| addr.clone()).collect();
    let after = kv(cluster, &left).await;
    for (key, acknowledged) in &counted {
        let value = after.get(key).await.unwrap().into_value().unwrap();
        assert_eq!(value, acknowledged.to_string(), "{key}");
        after.delete(&**key).await.unwrap();
    }
    let mut node = Node::start(&cluster.name, &cluster.secret, flags);
    let line = node.ready().await;
    let (name, addr) = (line["node"].as_str().unwrap(), line["addr"].as_str().unwrap());
    nodes.insert(name.to_owned(), (addr.to_owned(), node));
    Round { writes: resumed, reads }
}

/// Waits for the first acknowledgement of a write that was begun after the kill.
async fn resumed(seen: &Seen, killed: Instant) -> Duration {
    let deadline = killed + PATIENCE;
    loop {
        let first =
            seen.writes.lock().unwrap().iter().filter(|(begun, _)| *begun > killed).map(|&(_, done)| done).min();
        if let Some(first) = first {
            return first - killed;
        }
        assert!(Instant::now() < deadline, "no write was acknowledged after the kill");
        sleep(Duration::from_millis(5)).await;
    }
}

/// The longest time after the kill in which a node that served before and after it served nothing.
fn gaps(seen: &Seen, killed: Instant) -> Duration {
    let reads = seen.reads.lock().unwrap();
    let survivors = reads.values().filter(|at| at.iter().any(|&at| at > killed + Duration::from_millis(400)));
    let gap = |at: &Vec<Instant>| {
        let near = at.windows(2).filter(|pair| pair[1] > killed);
        near.map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    };
    survivors.map(gap).max().unwrap_or_default()
}

async fn rounds(flags: &[&str], bound: Duration) {
    let rounds: usize = std::env::var("FAILOVER_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1);
    let mut cluster = Cluster::start(flags).await;
    let names = cluster.lines.iter().map(|line| line["node"].as_str().unwrap().to_owned());
    let started = std::mem::take(&mut cluster.nodes);
    let mut nodes: BTreeMap<_, _> = names.zip(cluster.addrs.clone().into_iter().zip(started)).collect();
    for (at, place) in ["head", "middle", "tail"].into_iter().enumerate() {
        let mut all = Vec::new();
        for _ in 0..rounds {
            let round = kill(&cluster, &mut nodes, at, flags).await;
            println!("{place}: writes after {:?}, reads paused {:?} at most", round.writes, round.reads);
            all.push(round);
        }
        let quick = all.iter().filter(|round| round.writes <= bound).count();
        let smooth = all.iter().filter(|round| round.reads <= Duration::from_millis(250)).count();
        println!("{place}: of {rounds} kills {quick} within {bound:?}, {smooth} without a gap of 250 ms in reads");
        if rounds >= 20 {
            assert!(quick * 20 >= rounds * 19, "{place}: writes resumed within {bound:?} in {quick} of {rounds}");
            assert!(smooth * 20 >= rounds * 18, "{place}: reads never stopped in {smooth} of {rounds}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_go_on_without_whoever_is_killed() {
    rounds(&[], Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_leases_make_it_quick() {
    rounds(&["--lease-ms", "300", "--suspect-ms", "150"], Duration::from_secs(1)).await;
}
