//! Nodes are killed: writes must resume without them, clean reads at the others must continue, a new node must take the
//! place, and every counter must end exactly at its acknowledged increments.
//!
//! Each place is killed `FAILOVER_ROUNDS` (default 1) times. All figures are printed, but checked against the bounds
//! only if there are enough rounds for a ratio of nineteen in twenty.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use artillery_ddata::{Kv, NodeId};
use artillery_processes::{Members, eventually, setting};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

const WRITERS: usize = 4;
const READERS: usize = 3;

/// When writes were begun and acknowledged, and when each node served reads.
#[derive(Default)]
struct Timeline {
    writes: Mutex<Vec<(Instant, Instant)>>,
    reads: Mutex<BTreeMap<NodeId, Vec<Instant>>>,
    over: AtomicBool,
}

#[derive(Debug)]
struct KillRound {
    /// From the kill to the first acknowledgement of a write that was begun after it.
    writes: Duration,
    /// The longest time in which one of the survivors served no read.
    reads: Duration,
}

async fn count(kv: Kv, key: String, seen: Arc<Timeline>) -> (String, u64) {
    let mut acknowledged = 0;
    while !seen.over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        kv.increment(&*key, 1).await.unwrap();
        acknowledged += 1;
        seen.writes.lock().unwrap().push((begun, Instant::now()));
    }
    (key, acknowledged)
}

async fn read(kv: Kv, seen: Arc<Timeline>) {
    while !seen.over.load(Ordering::Relaxed) {
        let read = kv.get("still").await.unwrap();
        seen.reads.lock().unwrap().entry(read.served.node).or_default().push(Instant::now());
        sleep(Duration::from_millis(2)).await;
    }
}

/// Kills the member at this place, measures, and starts another node.
async fn kill(members: &mut Members, at: usize) -> KillRound {
    let victim = members.serving(3).await.swap_remove(at);
    let seen = Arc::<Timeline>::default();
    let (mut writers, mut readers) = (JoinSet::new(), JoinSet::new());
    let before = members.kv().await;
    before.put("still", "here").await.unwrap();
    for kv in members.kvs_of_each(READERS).await.into_values().flatten() {
        readers.spawn(read(kv, seen.clone()));
    }
    for writer in 0..WRITERS {
        writers.spawn(count(members.kv().await, format!("count/{writer}"), seen.clone()));
    }
    sleep(Duration::from_millis(500)).await;
    let killed = Instant::now();
    members.kill(&victim).await;
    let resumed = resumed(&seen, killed).await;
    sleep(Duration::from_millis(500)).await;
    seen.over.store(true, Ordering::Relaxed);
    let counted = writers.join_all().await;
    readers.join_all().await;
    let after = members.kv().await;
    for (key, acknowledged) in &counted {
        let value = after.get(key).await.unwrap().into_value().unwrap();
        assert_eq!(value, acknowledged.to_string(), "{key}");
        after.delete(&**key).await.unwrap();
    }
    let node = members.begin(&[]);
    members.add(node).await;
    KillRound { writes: resumed, reads: gaps(&seen, killed) }
}

/// Waits for the first acknowledgement of a write that was begun after the kill.
async fn resumed(seen: &Timeline, killed: Instant) -> Duration {
    eventually(async || {
        let writes = seen.writes.lock().unwrap();
        let first = writes.iter().filter(|(begun, _)| *begun > killed).map(|&(_, done)| done).min();
        first.map(|first| first - killed).ok_or_else(|| "no write was acknowledged after the kill".to_owned())
    })
    .await
}

/// The longest time without reads, at a node that still served after the kill.
fn gaps(seen: &Timeline, killed: Instant) -> Duration {
    let reads = seen.reads.lock().unwrap();
    let survivors = reads.values().filter(|at| at.iter().any(|&at| at > killed + Duration::from_millis(400)));
    let gap = |at: &Vec<Instant>| {
        let near = at.windows(2).filter(|pair| pair[1] > killed);
        near.map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    };
    survivors.map(gap).max().unwrap_or_default()
}

async fn rounds(flags: &[&str], bound: Duration) {
    let rounds = setting("FAILOVER_ROUNDS", 1) as usize;
    let mut members = Members::start(flags).await;
    for (at, place) in ["head", "middle", "tail"].into_iter().enumerate() {
        let mut all = Vec::new();
        for _ in 0..rounds {
            let round = kill(&mut members, at).await;
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
async fn writes_resume_after_a_member_is_killed() {
    rounds(&[], Duration::from_secs(3)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_leases_make_failover_quick() {
    rounds(&["--lease-ms", "300", "--suspect-ms", "150"], Duration::from_secs(1)).await;
}
