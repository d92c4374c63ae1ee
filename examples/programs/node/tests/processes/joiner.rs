//! A node joins under full load and is paused halfway: its source must not keep a copy of the data for it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use artillery_ddata::Kv;
use artillery_processes::{Members, eventually, resident, setting};
use serde_json::Value;
use tokio::{
    task::{JoinHandle, JoinSet},
    time::sleep,
};

use crate::http::get;

const WINDOW: u64 = 64 << 20;
const BACKLOG: u64 = 128 << 20;
const FLAGS: [&str; 6] = ["--window-bytes", "64MiB", "--backlog-bytes", "128MiB", "--http", "127.0.0.1:0"];
const VALUE: usize = 32 << 10;
const WRITERS: usize = 8;

async fn write(kv: Kv, writer: usize, keys: usize, over: Arc<AtomicBool>, writes: Arc<AtomicU64>) {
    for key in (writer..keys).step_by(WRITERS).cycle() {
        if over.load(Relaxed) {
            return;
        }
        kv.put(format!("joiner/{key}"), vec![key as u8; VALUE]).await.unwrap();
        writes.fetch_add(1, Relaxed);
    }
}

async fn until(members: &Members, name: &str, what: &str, enough: impl Fn(&Value) -> bool) {
    let http = members.line(name, "http");
    eventually(async || {
        let (_, body) = get(&http, "/status", "").await;
        let status: Value = serde_json::from_str(&body).unwrap();
        if enough(&status["chains"][0]) { Ok(()) } else { Err(format!("{what}: {status:#}")) }
    })
    .await;
}

/// Samples the memory of processes ten times a second, and records the maximum of each in MiB.
struct Sampler {
    most: Arc<Mutex<Vec<u64>>>,
    looks: JoinHandle<()>,
}

impl Sampler {
    fn start(processes: Vec<u32>) -> Self {
        let most = Arc::new(Mutex::new(vec![0; processes.len()]));
        let shown = most.clone();
        let looks = tokio::spawn(async move {
            loop {
                for (most, &process) in shown.lock().unwrap().iter_mut().zip(&processes) {
                    *most = (resident(process) >> 20).max(*most);
                }
                sleep(Duration::from_millis(100)).await;
            }
        });
        Self { most, looks }
    }

    fn end(self) -> Vec<u64> {
        self.looks.abort();
        self.most.lock().unwrap().clone()
    }
}

/// With `JOINER_MIB` (default 128) of data, and a pause of `JOINER_SECONDS` (default 4).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_joiner_that_stops_in_the_middle_costs_its_source_nothing() {
    let keys = (setting("JOINER_MIB", 128) << 20) as usize / VALUE;
    let stopped = Duration::from_secs(setting("JOINER_SECONDS", 4));
    let mut members = Members::start(&FLAGS).await;
    let tail = members.serving(3).await.swap_remove(2);
    members.kill(&tail).await;
    let names = members.serving(2).await;
    let (over, writes) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(members.kv().await, writer, keys, over.clone(), writes.clone()));
    }
    for name in &names {
        let full = |chain: &Value| chain["backlog_bytes"].as_u64() > Some(BACKLOG / 10 * 9);
        until(&members, name, "the backlog fills", |chain| full(chain) && writes.load(Relaxed) > keys as u64).await;
    }
    let processes: Vec<_> = names.iter().map(|name| members.node(name).id()).collect();
    let sampler = Sampler::start(processes.clone());
    sleep(Duration::from_secs(1)).await;
    let before = sampler.end();
    let sampler = Sampler::start(processes);
    let joiner = members.begin(&[]);
    let sends = |chain: &Value| chain["sending_records"].is_u64();
    until(&members, &names[1], "the tail sends", sends).await;
    joiner.signal("-STOP").await;
    until(&members, &names[1], "the joiner stops in the middle (or the snapshot is too small)", sends).await;
    let count = writes.load(Relaxed);
    // The length of the pause, not a wait for a condition.
    sleep(stopped).await;
    assert!(writes.load(Relaxed) > count, "no write succeeded");
    joiner.signal("-CONT").await;
    members.add(joiner).await;
    members.serving(3).await;
    let later = sampler.end();
    over.store(true, Relaxed);
    writers.join_all().await;
    println!("resident MiB of {names:?}: {before:?} before, {later:?} later; {writes:?} writes");
    for (before, later) in before.iter().zip(&later) {
        assert!(*later < before + ((WINDOW + BACKLOG) >> 20), "{before} MiB before, {later} MiB later");
    }
}
