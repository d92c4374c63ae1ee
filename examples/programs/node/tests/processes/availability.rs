//! A node that refuses everything would be safe, but useless. This test shows that requests succeed at every node
//! except shortly after a fault, and that each node serves reads itself.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use artillery_ddata::Kv;
use artillery_processes::{Members, setting};
use tokio::{task::JoinSet, time::sleep};

/// Clients per node; each mixes reads and writes.
const CLIENTS: usize = 3;
/// Reads per ten operations.
const READS: u64 = 9;
/// The time after a fault, and after its end, during which operations may fail.
const FAULT: Duration = Duration::from_secs(3);
const HEAL: Duration = Duration::from_secs(5);
/// The duration of a measurement.
const QUIET: Duration = Duration::from_secs(2);
/// Slower operations are treated as failed.
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Figures {
    all: AtomicU64,
    done: AtomicU64,
}

/// A load by clients of each node, until [`Load::end`].
struct Load {
    over: Arc<AtomicBool>,
    figures: BTreeMap<String, Arc<Figures>>,
    clients: JoinSet<()>,
}

impl Load {
    async fn start(members: &Members) -> Self {
        let mut load = Self { over: Arc::default(), figures: BTreeMap::new(), clients: JoinSet::new() };
        for (name, kvs) in members.kvs_of_each(CLIENTS).await {
            let figures = load.figures.entry(name.clone()).or_default();
            for (client, kv) in kvs.into_iter().enumerate() {
                let key = format!("{name}/{client}");
                load.clients.spawn(operate(kv.with_timeout(CALL_TIMEOUT), key, figures.clone(), load.over.clone()));
            }
        }
        load
    }

    async fn end(self) -> BTreeMap<String, (u64, u64)> {
        self.over.store(true, SeqCst);
        self.clients.join_all().await;
        let of = |figures: &Figures| (figures.all.load(SeqCst), figures.done.load(SeqCst));
        self.figures.iter().map(|(name, figures)| (name.clone(), of(figures))).collect()
    }
}

async fn operate(kv: Kv, key: String, figures: Arc<Figures>, over: Arc<AtomicBool>) {
    for n in 0u64.. {
        if over.load(SeqCst) {
            return;
        }
        let done = if n % 10 < READS { kv.get(&key).await.is_ok() } else { kv.put(&*key, "value").await.is_ok() };
        figures.all.fetch_add(1, Relaxed);
        figures.done.fetch_add(u64::from(done), Relaxed);
        sleep(Duration::from_millis(1)).await;
    }
}

/// The number of reads that a node served itself (shared version queries are counted once), and of requests that it
/// forwarded.
async fn reads(members: &Members, name: &str) -> (u64, u64) {
    let status = members.status(&members.line(name, "addr")).await.unwrap();
    let node = status["nodes"].as_array().unwrap().iter().find(|node| node["node"] == name).unwrap();
    let count = |field: &str| node["reads"][field].as_u64().unwrap();
    (count("local_clean") + count("version_query"), count("forwarded"))
}

async fn measure(members: &Members, when: &str) {
    let names = members.serving(members.addrs().len()).await;
    let load = Load::start(members).await;
    let mut before = BTreeMap::new();
    for name in &names {
        before.insert(name, reads(members, name).await);
    }
    // The length of the measurement, not a wait for a condition.
    sleep(QUIET).await;
    let mut shares = BTreeMap::new();
    for name in &names {
        let ((own, forwarded), (own_before, forwarded_before)) = (reads(members, name).await, before[name]);
        shares.insert(name.clone(), (own - own_before, forwarded - forwarded_before));
    }
    for (name, (all, done)) in load.end().await {
        let (own, forwarded) = shares[&name];
        println!(
            "{when}, {name}: {done} of {all} operations done; {own} reads served by itself, {forwarded} forwarded"
        );
        assert!(all >= 100 && done * 100 >= all * 99, "{when}, {name}: {done} of {all}");
        assert!(own >= 50 && own * 100 >= (own + forwarded) * 15, "{when}, {name}: {own} local, {forwarded} forwarded");
    }
}

/// Tests the first `AVAILABILITY_PLACES` (default 1) of head, middle and tail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn far_from_faults_every_node_serves_by_itself() {
    let places = setting("AVAILABILITY_PLACES", 1) as usize;
    let mut members = Members::start(&[]).await;
    measure(&members, "quiet").await;
    for (at, place) in ["head", "middle", "tail"].into_iter().enumerate().take(places) {
        let name = members.serving(3).await.swap_remove(at);
        members.kill(&name).await;
        // The promised bound, not a wait for a condition.
        sleep(FAULT).await;
        measure(&members, &format!("without the {place}")).await;
        let node = members.begin(&["--name", &name]);
        members.add(node).await;
        sleep(HEAL).await;
        measure(&members, &format!("with a {place} again")).await;
    }
}
