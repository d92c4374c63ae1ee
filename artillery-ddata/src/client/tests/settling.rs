//! Clients some of whose outcomes are unknown.

use std::{collections::BTreeSet, sync::Mutex};

use super::*;
use crate::{Kv, error::Unknown, kv::Resolution, local::handle::WriteRequest};

/// As large as what is kept for a retry.
const VALUE: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(20);
/// So short that what happens meanwhile fits the table of sessions, however fast that is.
const HASTE: Duration = Duration::from_millis(10);

/// One of a hundred.
fn is_unlucky(n: usize) -> bool {
    n % 100 == 7
}

/// The get-and-deletes of these.
fn takes_unlucky(request: &WriteRequest) -> bool {
    let Write::GetDelete { key } = &request.write else { return false };
    key[..].try_into().is_ok_and(|key| is_unlucky(usize::from_be_bytes(key)))
}

/// A chain whose answers to these get lost: however often they are asked for, or the first one.
fn lossy(cluster: &str, always: bool) -> FakeNode {
    static LOST: Mutex<BTreeSet<(Version, u64)>> = Mutex::new(BTreeSet::new());
    let node = FakeNode::start(cluster, "alone");
    let loses: fn(&WriteRequest) -> bool = match always {
        true => takes_unlucky,
        false => |request| {
            let key = request.request.map(|request| (request.session, request.number));
            takes_unlucky(request) && key.is_some_and(|key| LOST.lock().unwrap().insert(key))
        },
    };
    node.form_losing(&routing(config(&[node.me()], 1), &[&node]), loses);
    node
}

fn value(n: usize) -> Bytes {
    n.to_be_bytes().repeat(VALUE / 8).into()
}

/// Puts a value and takes it away, perhaps in a haste where answers get lost; whether the outcome of the latter was unknown. It is settled at once, unless that is left.
async fn take(kv: &Kv, n: usize, hastes: bool, settles: bool) -> bool {
    let key = n.to_be_bytes();
    kv.put(key, value(n)).timeout(PATIENCE).await.unwrap();
    let timeout = if hastes && is_unlucky(n) { HASTE } else { PATIENCE };
    match kv.get_delete(key).timeout(timeout).await {
        Ok(taken) => {
            assert_eq!(taken.result.into_value().unwrap(), value(n));
            false
        }
        Err(Error::OutcomeUnknown { request_id, reason }) => {
            assert_ne!(reason, Unknown::SessionExpired);
            if settles {
                let resolution = kv.clone().with_timeout(PATIENCE).resolve(request_id).await.unwrap();
                settled(kv, n, resolution).await;
            }
            true
        }
        Err(error) => panic!("{n}: {error}"),
    }
}

async fn settled(kv: &Kv, n: usize, resolution: Resolution) {
    match resolution {
        Resolution::Applied(record) => {
            let Computed::Took(Some((_, taken))) = record.result else { panic!("{:?}", record.result) };
            assert_eq!(taken, value(n));
        }
        // Its session was full when it came.
        Resolution::NeverApplied => assert_eq!(kv.get(&n.to_be_bytes()).await.unwrap().into_value().unwrap(), value(n)),
        other => panic!("{n}: {other:?}"),
    }
}

/// So many, 64 at a time; how many outcomes were unknown.
async fn take_many(kv: &Kv, count: usize, hastes: bool, settles: bool) -> usize {
    let (mut calls, mut unknown) = (JoinSet::new(), 0);
    for n in 0..count {
        let kv = kv.clone();
        calls.spawn(async move { take(&kv, n, hastes, settles).await });
        if calls.len() >= 64 {
            unknown += usize::from(calls.join_next().await.unwrap().unwrap());
        }
    }
    unknown + calls.join_all().await.into_iter().filter(|&unknown| unknown).count()
}

#[tokio::test]
async fn outcomes_that_are_settled_hold_nothing_back() {
    let node = lossy(&unique("settling"), true);
    let unknown = take_many(&node.kv(), 6_000, true, true).await;
    assert_eq!(unknown, 60);
}

#[tokio::test]
async fn a_client_goes_on_beside_outcomes_that_are_never_settled() {
    let node = lossy(&unique("settling"), true);
    let unknown = take_many(&node.kv(), 6_000, true, false).await;
    assert_eq!(unknown, 60);
}

#[tokio::test]
async fn a_hundred_thousand_are_taken_though_answers_get_lost() {
    let node = lossy(&unique("settling"), false);
    assert_eq!(take_many(&node.kv(), 100_000, false, true).await, 0, "each is known in the end");
}
