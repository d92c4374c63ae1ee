//! Locks and registrations whose calls are dropped, late, refused, or have unusual times.

use std::{
    future::{Future, IntoFuture, poll_fn},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::super::*;
use crate::{
    Kv,
    recipes::{Registration, Registry},
};

const TTL: Duration = Duration::from_secs(2);

async fn poll_once<F: Future + ?Sized>(future: &mut Pin<Box<F>>) {
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

async fn start() -> (Cluster, Kv) {
    let cluster = Cluster::builder().seed(5).start().await;
    let kv = cluster.client();
    kv.put("warm", "up").await.unwrap();
    (cluster, kv)
}

async fn values(registry: &Registry) -> Vec<String> {
    let instances = registry.instances().await.unwrap();
    instances.into_iter().map(|one| String::from_utf8_lossy(&one.value).into_owned()).collect()
}

/// Dropping `update` at its await ends the renewals.
#[tokio::test(start_paused = true)]
async fn an_update_that_is_dropped_keeps_the_registration() {
    let (_cluster, kv) = start().await;
    let registry = kv.registry("web").with_ttl(TTL);
    let here = registry.register("1", "a:1").await.unwrap();
    let mut update = Box::pin(here.update("a:2"));
    poll_once(&mut update).await;
    drop(update);
    sleep(TTL * 4).await;
    assert_eq!(values(&registry).await.len(), 1);
    assert!(!here.is_replaced());
}

/// The first put of a restarted process is lost, and its dead predecessor's key replaces it.
#[tokio::test(start_paused = true)]
async fn a_restarted_process_takes_over_after_a_lost_put() {
    let (cluster, kv) = start().await;
    let registry = kv.with_timeout(Duration::from_millis(300)).registry("web").with_ttl(TTL);
    let key = [&registry.prefix()[..], b"1"].concat();
    let kv = cluster.client();
    kv.put(key, "old").ttl(TTL).await.unwrap();
    cluster.next_outcome_unknown(Fate::Lost);
    let _here = registry.register("1", "new").timeout(Duration::from_secs(10)).await.unwrap();
    sleep(TTL * 4).await;
    assert_eq!(values(&registry).await, ["new"]);
}

/// The first put arrives late, after an update.
#[test]
fn a_late_first_put_undoes_no_update() {
    Cluster::builder().explore(0..20, |cluster| async move {
        let kv = cluster.client();
        kv.put("warm", "up").await.unwrap();
        let registry = kv.with_timeout(Duration::from_millis(300)).registry("web").with_ttl(TTL);
        cluster.next_outcome_unknown(Fate::Late);
        let here = registry.register("1", "a:1").timeout(Duration::from_secs(10)).await.unwrap();
        here.update("a:2").await.unwrap();
        sleep(TTL * 4).await;
        assert!(!here.is_replaced(), "replaced by itself");
        assert_eq!(values(&registry).await, ["a:2"]);
    });
}

/// The removal by a dropped registration deletes the next one with the same value.
#[tokio::test(start_paused = true)]
async fn a_dropped_registration_leaves_the_next_one_alone() {
    let (_cluster, kv) = start().await;
    let registry = kv.registry("web").with_ttl(TTL);
    let first = registry.register("1", "a:1").await.unwrap();
    drop(first);
    let _second = registry.register("1", "a:1").await.unwrap();
    let mut missing = 0;
    for _ in 0..40 {
        sleep(TTL / 40).await;
        missing += usize::from(values(&registry).await.is_empty());
    }
    assert_eq!(missing, 0, "looks out of 40 that found no instance");
}

/// Two processes register the same instance.
#[tokio::test(start_paused = true)]
async fn a_former_process_leaves_an_equal_instance_alone() {
    let (cluster, kv) = start().await;
    let other = cluster.client();
    let (one, two) = (kv.registry("web").with_ttl(TTL), other.registry("web").with_ttl(TTL));
    let first = one.register("1", "a:1").await.unwrap();
    let _second = two.register("1", "a:1").await.unwrap();
    first.deregister().await.unwrap();
    assert_eq!(values(&one).await, ["a:1"]);
}

/// The call is dropped after the lock was acquired for it, but before it was polled again.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_late_frees_the_lock() {
    let (_cluster, kv) = start().await;
    let lock = kv.lock("jobs").with_ttl(Duration::from_secs(60));
    let mut call = lock.acquire().into_future();
    poll_once(&mut call).await;
    sleep(Duration::from_secs(1)).await;
    drop(call);
    sleep(Duration::from_secs(5)).await;
    let next = lock.try_acquire().await.unwrap();
    assert!(next.is_some(), "the key of the dropped call is still there");
}

/// A contender with a short time to live ends the guards of the process.
async fn short(ttl: Duration) -> bool {
    let (cluster, kv) = start().await;
    let holder = cluster.client().lock("b").with_ttl(Duration::from_secs(60)).acquire().await.unwrap();
    cluster.set_trouble(Trouble {
        shortest_delay: Duration::from_millis(4),
        longest_delay: Duration::from_millis(6),
        ..Trouble::none()
    });
    let long = kv.lock("a").with_ttl(TTL).acquire().await.unwrap();
    let lock = kv.lock("b").with_ttl(ttl);
    let short = tokio::spawn(lock.acquire().timeout(Duration::from_secs(30)).into_future());
    sleep(TTL * 4).await;
    short.abort();
    drop(holder);
    long.is_held()
}

#[tokio::test(start_paused = true)]
async fn a_short_time_to_live_ends_no_other_guard() {
    let mut lost = Vec::new();
    for ttl in [10, 30, 40, 50, 60, 200] {
        if !short(Duration::from_millis(ttl)).await {
            lost.push(ttl);
        }
    }
    assert_eq!(lost, [0; 0], "guards with 2 s were lost next to these times to live, in ms");
}

/// The timeout of the handle that began the first renewal bounds all renewals.
#[tokio::test(start_paused = true)]
async fn a_handle_with_a_short_timeout_ends_no_other_guard() {
    let (cluster, kv) = start().await;
    let quick = kv.clone().with_timeout(Duration::from_millis(50));
    let _here = quick.registry("web").with_ttl(TTL).register("1", "a").timeout(TTL).await.unwrap();
    let guard = kv.lock("a").with_ttl(Duration::from_secs(10)).acquire().await.unwrap();
    cluster.set_trouble(Trouble {
        shortest_delay: Duration::from_millis(30),
        longest_delay: Duration::from_millis(40),
        ..Trouble::none()
    });
    sleep(Duration::from_secs(30)).await;
    assert!(guard.is_held());
}

/// Each failed update leaves a task behind.
#[tokio::test(start_paused = true)]
async fn failed_updates_leave_one_task() {
    let (cluster, kv) = start().await;
    let registry = kv.with_timeout(Duration::from_millis(50)).registry("web").with_ttl(TTL);
    let here = registry.register("1", "a").await.unwrap();
    for node in cluster.nodes() {
        cluster.isolate(node);
    }
    sleep(TTL).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for number in 0..200 {
        let _ = here.update(format!("{number}")).await;
    }
    let after = tasks();
    let begun = Instant::now();
    let _ = here.deregister().await;
    let took = begun.elapsed();
    assert!(after < before + 20 && took < Duration::from_secs(1), "{before} tasks, then {after}; removal {took:?}");
}

/// An update next to one that is refused.
#[tokio::test(start_paused = true)]
async fn an_update_next_to_a_refused_one_is_kept() {
    let (_cluster, kv) = start().await;
    let registry = kv.registry("web").with_ttl(TTL);
    let here = registry.register("1", "a:1").await.unwrap();
    let (_refused, done) = tokio::join!(here.update(vec![0; 70 << 20]), here.update("b"));
    sleep(TTL * 3).await;
    let found = values(&registry).await;
    assert!(found == ["b"] && done.is_ok(), "{found:?}");
}

/// An update that arrives after the registration was removed.
#[test]
fn a_late_update_restores_nothing() {
    Cluster::builder().explore(0..20, |cluster| async move {
        let kv = cluster.client();
        kv.put("warm", "up").await.unwrap();
        let registry = kv.with_timeout(Duration::from_millis(300)).registry("web").with_ttl(TTL);
        let here = registry.register("1", "a:1").await.unwrap();
        cluster.next_outcome_unknown(Fate::Late);
        let _ = here.update("a:2").await;
        here.deregister().await.unwrap();
        for _ in 0..40 {
            assert_eq!(values(&registry).await, [""; 0]);
            sleep(TTL / 20).await;
        }
    });
}

/// A registration whose time to live is very short writes without a pause.
#[tokio::test(start_paused = true)]
async fn a_very_short_time_to_live_causes_no_storm() {
    let (_cluster, kv) = start().await;
    let mut writes = Vec::new();
    for ttl in [0, 1, 5] {
        let registry = kv.registry("web").with_ttl(Duration::from_millis(ttl));
        let before = kv.put("a", "v").await.unwrap().version.sequence.0;
        let here: Registration = registry.register("1", "a").await.unwrap();
        sleep(Duration::from_secs(5)).await;
        writes.push(kv.put("a", "v").await.unwrap().version.sequence.0 - before);
        drop(here);
        sleep(Duration::from_secs(1)).await;
    }
    assert!(writes.iter().all(|&writes| writes < 250), "{writes:?} updates in 5 s");
}

/// Many updates while no write is answered.
#[tokio::test(start_paused = true)]
async fn a_registration_survives_many_failed_updates() {
    let (cluster, kv) = start().await;
    let registry = kv.registry("web").with_ttl(TTL);
    let here = registry.register("1", "a").await.unwrap();
    cluster.set_trouble(Trouble { lost_answers: 1.0, ..Trouble::none() });
    for number in 0..2100 {
        let mut update = Box::pin(here.update(format!("{number}")));
        poll_once(&mut update).await;
        drop(update);
        // Otherwise tokio's budget ends before the value is set.
        tokio::task::yield_now().await;
    }
    cluster.set_trouble(Trouble::none());
    while here.update("last").await.is_err() {}
    sleep(TTL * 4).await;
    assert_eq!(values(&registry).await, ["last"]);
}
