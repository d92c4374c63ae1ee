//! Locks, elections and registries at one node, in real time.

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::{
    Batch, Kv,
    driver::fake::{FakeNode, alone, unique},
    kv::WriteError,
};

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(20);

fn kv_of_one() -> (FakeNode, Kv) {
    let node = alone(&unique("recipes"));
    let kv = node.kv();
    (node, kv)
}

async fn keys(kv: &Kv, prefix: &Bytes) -> usize {
    let (mut scan, mut count) = (kv.scan(prefix), 0);
    while scan.next().await.transpose().unwrap().is_some() {
        count += 1;
    }
    count
}

/// Waits until a dropped guard has deleted its key.
async fn empty(kv: &Kv, prefix: &Bytes) {
    while keys(kv, prefix).await > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_lock_is_held_by_one_and_then_by_the_next() {
    let (_node, kv) = kv_of_one();
    let lock = kv.lock("jobs").with_owner("me");
    let first = lock.acquire().await.unwrap();
    assert!(first.is_held() && first.held_for() > Duration::from_secs(9));
    assert_eq!(kv.get(first.key()).await.unwrap().value().unwrap(), "me");
    assert!(lock.try_acquire().await.unwrap().is_none());
    let late = lock.acquire().timeout(SHORT).await.unwrap_err();
    assert_eq!(late, LockError::TimedOut { last: None });

    let waiting = tokio::spawn(lock.acquire().timeout(LONG).into_future());
    while keys(&kv, &lock.prefix()).await < 2 {
        tokio::task::yield_now().await;
    }
    let batch = |guard: &Guard| Batch::new().held(guard).put("data", "new");
    kv.write(batch(&first)).await.unwrap();
    let (token, batch_of_first) = (first.token(), batch(&first));
    first.release().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    assert!(second.token() > token);
    assert!(matches!(kv.write(batch_of_first).await, Err(WriteError::Conflict(_))));
    kv.write(batch(&second)).await.unwrap();
    drop(second);
    empty(&kv, &lock.prefix()).await;
    let third = lock.try_acquire().await.unwrap().unwrap();
    assert!(third.is_held());
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_no_key() {
    let (_node, kv) = kv_of_one();
    let lock = kv.lock("jobs");
    let guard = lock.acquire().await.unwrap();
    let mut waiting = tokio::spawn(lock.acquire().timeout(LONG).into_future());
    while keys(&kv, &lock.prefix()).await < 2 {
        tokio::task::yield_now().await;
    }
    waiting.abort();
    let _ = (&mut waiting).await;
    while keys(&kv, &lock.prefix()).await > 1 {
        tokio::task::yield_now().await;
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn the_end_of_a_client_waits_until_keys_are_deleted() {
    let (_node, kv) = kv_of_one();
    let lock = kv.lock("jobs");
    let guard = lock.acquire().await.unwrap();
    let waiting = tokio::spawn(lock.acquire().timeout(LONG).into_future());
    while keys(&kv, &lock.prefix()).await < 2 {
        tokio::task::yield_now().await;
    }
    drop(guard);
    Leaving::close(&kv.router).await;
    if let Ok(guard) = waiting.await.unwrap() {
        // The drop made it the holder before the end.
        guard.release().await.unwrap();
    }
    assert_eq!(keys(&kv, &lock.prefix()).await, 0);
}

#[tokio::test]
async fn a_guard_whose_key_is_gone_is_lost() {
    let (_node, kv) = kv_of_one();
    let guard = kv.lock("jobs").with_ttl(SHORT).acquire().await.unwrap();
    kv.delete(guard.key()).await.unwrap();
    guard.lost().await;
    assert!(!guard.is_held());
    assert_eq!(guard.release().await, Err(LockError::Lost));
}

#[tokio::test]
async fn a_leader_proclaims_and_resigns() {
    let (_node, kv) = kv_of_one();
    let election = kv.election("db");
    assert_eq!(election.leader().await.unwrap(), None);
    let first = election.campaign("a:1").await.unwrap();
    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!((leader.value, leader.token), (Bytes::from("a:1"), first.token()));
    first.proclaim("a:2").await.unwrap();
    let other = election.campaign("b:1").timeout(SHORT).await.unwrap_err();
    assert_eq!(other, LockError::TimedOut { last: None });
    assert_eq!(election.leader().await.unwrap().unwrap().value, "a:2");
    let next = tokio::spawn(election.campaign("b:1").timeout(LONG).into_future());
    first.resign().await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert_eq!(election.leader().await.unwrap().unwrap().token, next.token());
    kv.delete(next.key()).await.unwrap();
    assert_eq!(next.proclaim("b:2").await, Err(LockError::Lost));
}

#[tokio::test]
async fn a_time_to_live_of_zero_ends_by_the_timeout() {
    let (_node, kv) = kv_of_one();
    let lock = kv.lock("jobs").with_ttl(Duration::ZERO);
    assert!(matches!(lock.acquire().timeout(SHORT).await, Err(LockError::TimedOut { .. })));
    assert!(kv.lock("jobs").acquire().await.unwrap().is_held());
}
