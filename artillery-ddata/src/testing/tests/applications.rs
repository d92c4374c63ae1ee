//! Small applications, correct and incorrect ones, under many seeds.

use std::sync::{Arc, Mutex};

use super::super::*;
use crate::{
    Batch, Error, Kv, ReadMode, Script, Session, Version,
    kv::{Expected, Group, StepOutcome},
};

/// Pays exactly once: repeats a request of unknown outcome under its id.
async fn pay(kv: &Kv, amount: i64) {
    let mut call = kv.increment("paid", amount);
    loop {
        match call.await {
            Ok(_) => return,
            Err(Error::OutcomeUnknown { request_id, .. }) => {
                call = kv.increment("paid", amount).request_id(request_id);
            }
            Err(_) => call = kv.increment("paid", amount),
        }
    }
}

/// Makes a new request after an unknown outcome: pays twice if the first one was applied.
async fn pay_again(kv: &Kv, amount: i64) {
    while kv.increment("paid", amount).await.is_err() {}
}

async fn paid(kv: &Kv) -> i64 {
    loop {
        if let Ok(read) = kv.get("paid").await {
            return read.value().map_or(0, |value| std::str::from_utf8(value).unwrap().parse().unwrap());
        }
    }
}

#[test]
fn repeating_the_request_pays_once() {
    explore(0..60, |cluster| async move {
        let kv = cluster.client();
        for _ in 0..5 {
            pay(&kv, 3).await;
        }
        assert_eq!(paid(&kv).await, 15);
    });
}

#[test]
fn a_new_request_pays_twice_under_some_seed() {
    let seeds = Arc::new(Mutex::new(Vec::new()));
    let tried = seeds.clone();
    let explored = std::panic::catch_unwind(move || {
        explore(0..60, |cluster| {
            tried.lock().unwrap().push(cluster.seed());
            async move {
                let kv = cluster.client();
                for _ in 0..5 {
                    pay_again(&kv, 3).await;
                }
                assert_eq!(paid(&kv).await, 15, "paid as often as asked for");
            }
        });
    });
    let words = explored.expect_err("no seed pays twice");
    let words = words.downcast_ref::<String>().unwrap();
    let last = *seeds.lock().unwrap().last().unwrap();
    assert!(words.starts_with(&format!("seed {last}: ")) && words.contains("paid as often"), "{words}");
}

/// Many kinds of operations, by several handles at once. Their results are ignored: the check verifies them.
pub(super) async fn everything(cluster: Cluster) {
    let handles = [cluster.client(), cluster.client(), cluster.kv(cluster.head()), cluster.kv(cluster.tail())];
    let tasks: Vec<_> = handles.into_iter().enumerate().map(|(number, kv)| tokio::spawn(mix(number, kv))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn mix(number: usize, kv: Kv) {
    let session = Session::new();
    for round in 0..4 {
        let _ = kv.put("a", format!("{number}/{round}")).session(&session).await;
        let _ = kv.get("a").mode(ReadMode::Eventual).session(&session).await;
        let _ = kv.append("log", format!("{number}{round}")).await;
        let _ = kv.increment("n", 1 + number as i64).await;
        let read = kv.get("a").await;
        let version = read.map_or(Version::NONE, |read| read.version());
        let _ = kv.compare_and_swap("a", version, format!("swapped by {number}/{round}")).await;
        let batch =
            Batch::new().require("lock", Expected::Absent).put("lock", "held").increment("b", 1).append("c", "x");
        let _ = kv.write(batch).await;
        let _ = kv.get_many(["lock", "b", "c", "a"]).await;
        let _ = kv.get_delete("lock").await;
        let _ = kv.compare_and_delete("c", version).await;
        let mut scan = kv.scan("");
        while let Some(Ok(_)) = scan.next().await {}
        if round == 2 {
            let _ = kv.delete("log").await;
        }
    }
}

#[test]
fn every_operation_is_linearizable_through_all_trouble() {
    explore(0..40, everything);
    Cluster::builder().nodes(4).replicas(2).chains(3).trouble(Trouble::rough()).explore(0..10, everything);
}

fn history(seed: u64) -> String {
    let history = Arc::new(Mutex::new(String::new()));
    let told = history.clone();
    explore([seed], |cluster| {
        let told = told.clone();
        async move {
            everything(cluster.clone()).await;
            cluster.check().await;
            *told.lock().unwrap() = cluster.history();
        }
    });
    history.lock().unwrap().clone()
}

#[test]
fn a_seed_determines_the_run() {
    for seed in 0..6 {
        let first = history(seed);
        assert!(first.lines().count() > 100);
        assert!(first.contains("unknown"), "no outcome was unknown");
        let second = history(seed);
        let apart = first.lines().zip(second.lines()).find(|(first, second)| first != second);
        assert_eq!(apart, None, "seed {seed}");
        assert_eq!(first.len(), second.len());
        assert_ne!(first, history(seed + 1000));
    }
}

#[test]
fn parallel_clusters_are_independent() {
    let alone: Vec<String> = (0..4).map(history).collect();
    let threads: Vec<_> =
        (0..4).map(|seed| std::thread::Builder::new().spawn(move || history(seed)).unwrap()).collect();
    let together: Vec<String> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(alone, together);
}

#[tokio::test(start_paused = true)]
async fn two_clusters_in_one_test_are_independent() {
    let (one, other) = (Cluster::builder().seed(1).start().await, Cluster::builder().seed(1).start().await);
    one.client().put("k", "v").await.unwrap();
    assert!(other.client().get("k").await.unwrap().value().is_none());
    drop(one);
    other.client().put("k", "w").await.unwrap();
    other.check().await;
}

/// Scripts and single writes of the same keys. Most results are ignored: the check verifies them.
async fn scripts(number: usize, kv: Kv) {
    for round in 0..4 {
        let script = Script::new()
            .require("gone", Expected::Absent)
            .group(Group::new().get("a").increment("n", 1).length("log"))
            .group(Group::new().require("lock", Expected::Absent).put("lock", format!("{number}/{round}")).delete("c"))
            .group(Group::new().append("log", "s").put("never", "seen").increment("log", 1))
            .group(Group::new().get("log").append("c", "s").get_delete("a"))
            .group(Group::new().get("never").get("n"));
        if let Ok(done) = kv.run(script).await {
            assert!(done.result[2].is_err(), "{:?}", done.result);
            assert!(matches!(done.result[4].as_ref().unwrap()[0], StepOutcome::Found(None)), "{:?}", done.result);
        }
        let _ = kv.put("a", format!("{number}/{round}")).await;
        let _ = kv.append("log", "x").await;
        let _ = kv.get_delete("lock").await;
        let _ = kv.get_many(["a", "n", "c", "lock"]).await;
        if number == 0 && round == 2 {
            let _ = kv.put("gone", "all").await;
            let _ = kv.delete("gone").await;
        }
    }
}

#[test]
fn scripts_are_correct_under_trouble() {
    Cluster::builder().trouble(Trouble::rough()).explore(0..40, |cluster| async move {
        let handles = [cluster.client(), cluster.client(), cluster.kv(cluster.head()), cluster.kv(cluster.tail())];
        let tasks: Vec<_> = handles.into_iter().enumerate().map(|(n, kv)| tokio::spawn(scripts(n, kv))).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}
