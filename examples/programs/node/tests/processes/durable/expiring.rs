//! Keys with a time to live: none ends early and none comes back when all nodes are killed and started again, or when a
//! member joins with an empty directory.

use std::{collections::BTreeMap, time::Duration};

use artillery_ddata::{Batch, Kv};
use artillery_processes::eventually;
use tokio::time::Instant;

use super::Durable;

const KEYS: usize = 5000;
const STEP: usize = 250;
const SHORT: Duration = Duration::from_secs(8);
const LONG: Duration = Duration::from_secs(600);

/// Puts keys with this prefix and time to live. Returns when each was sent.
async fn put(kv: &Kv, prefix: &str, ttl: Duration) -> BTreeMap<String, Instant> {
    let mut sent = BTreeMap::new();
    for step in 0..KEYS / STEP {
        let keys = (step * STEP..(step + 1) * STEP).map(|n| format!("{prefix}/{n:04}"));
        let mut batch = Batch::new();
        let now = Instant::now();
        for key in keys {
            batch = batch.put(&key, "value").ttl(ttl);
            sent.insert(key, now);
        }
        kv.write(batch).await.unwrap();
    }
    sent
}

/// The keys that are there, and the time at which the scan had ended.
async fn there(kv: &Kv, prefix: &str) -> (Vec<String>, Instant) {
    let mut scan = kv.scan(prefix);
    let mut keys = Vec::new();
    while let Some(entry) = scan.next().await {
        keys.push(String::from_utf8(entry.unwrap().key.to_vec()).unwrap());
    }
    (keys, Instant::now())
}

/// Fails if a key is gone although 99 % of its time to live hasn't passed since it was sent.
async fn none_is_gone_early(kv: &Kv, prefix: &str, sent: &BTreeMap<String, Instant>, ttl: Duration) {
    let (keys, now) = there(kv, prefix).await;
    let is_there = |key: &String| keys.binary_search(key).is_ok();
    for (key, sent) in sent.iter().filter(|(key, _)| !is_there(key)) {
        assert!(now - *sent >= ttl.mul_f64(0.99), "{key} is gone {:?} after it was sent", now - *sent);
    }
}

async fn all_are_gone(kv: &Kv, prefix: &str) {
    eventually(async || match there(kv, prefix).await.0.len() {
        0 => Ok(()),
        left => Err(format!("{left} keys are left")),
    })
    .await;
}

#[tokio::test]
async fn no_key_ends_early_or_comes_back() {
    let mut durable = Durable::new();
    let kv = durable.start_all().await.kv();
    let long = put(&kv, "long", LONG).await;
    let short = put(&kv, "short", SHORT).await;
    none_is_gone_early(&kv, "short", &short, SHORT).await;
    durable.kill_all().await;

    let kv = durable.start_all().await.kv();
    none_is_gone_early(&kv, "short", &short, SHORT).await;
    none_is_gone_early(&kv, "long", &long, LONG).await;
    all_are_gone(&kv, "short").await;
    durable.kill_all().await;

    let kv = &durable.start_all().await.kv();
    assert_eq!(there(kv, "short").await.0.len(), 0, "none comes back");
    none_is_gone_early(kv, "long", &long, LONG).await;
    let left = kv.get("long/0000").await.unwrap().expires_in().expect("a time to live");
    assert!(left <= LONG && left > LONG / 2, "{left:?}");

    // A member returns with an empty directory while keys end, and then it is the only one of the old ones that serves.
    let again = put(kv, "short", SHORT).await;
    durable.nodes[2].kill().await;
    std::fs::remove_dir_all(durable.dir(2)).unwrap();
    let seed = durable.seeds[0].clone();
    durable.start(2, Some(&seed), &["--existing"]).ready().await;
    none_is_gone_early(kv, "short", &again, SHORT).await;
    all_are_gone(kv, "short").await;
    none_is_gone_early(kv, "long", &long, LONG).await;
}
