use std::{collections::BTreeSet, sync::Mutex};

use super::*;
use crate::{Kv, error::Unknown, kv::Resolution, local::handle::WriteRequest};

/// The size of the largest result that is kept for a retry.
const VALUE: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(20);
/// Short enough that, on any machine, the writes made in this time fit the table of sessions.
const HASTE: Duration = Duration::from_millis(10);

/// One key in a hundred is unlucky.
fn is_unlucky(n: usize) -> bool {
    n % 100 == 7
}

fn takes_unlucky(request: &WriteRequest) -> bool {
    let Write::GetDelete { key } = &request.write else { return false };
    key[..].try_into().is_ok_and(|key| is_unlucky(usize::from_be_bytes(key)))
}

/// A chain that loses its answers to get-and-deletes of unlucky keys: `always`, or only the first answer to each.
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

/// Puts a value and removes it, with a short timeout for unlucky keys if `hastes`. Returns whether the outcome of the
/// removal was unknown. With `settles`, such an outcome is settled at once.
async fn take(kv: &Kv, n: usize, hastes: bool, settles: bool) -> bool {
    let key = n.to_be_bytes();
    kv.put(key, value(n)).timeout(PATIENCE).await.unwrap();
    let timeout = if hastes && is_unlucky(n) { HASTE } else { PATIENCE };
    let taken = loop {
        match kv.get_delete(key).timeout(timeout).await {
            // On a busy machine the short timeout may expire before the request is sent.
            Err(Error::Refused { .. } | Error::NotApplied { .. }) if timeout == HASTE => {}
            taken => break taken,
        }
    };
    match taken {
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
        // The session was full when the write arrived.
        Resolution::NeverApplied => assert_eq!(kv.get(&n.to_be_bytes()).await.unwrap().into_value().unwrap(), value(n)),
        other => panic!("{n}: {other:?}"),
    }
}

/// Takes `count` keys, 64 concurrently; returns the number of unknown outcomes.
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
async fn settled_outcomes_hold_nothing_back() {
    let node = lossy(&unique("settling"), true);
    let unknown = take_many(&node.kv(), 6_000, true, true).await;
    assert_eq!(unknown, 60);
}

#[tokio::test]
async fn unsettled_outcomes_do_not_stop_a_client() {
    let node = lossy(&unique("settling"), true);
    let unknown = take_many(&node.kv(), 6_000, true, false).await;
    assert_eq!(unknown, 60);
}

#[tokio::test]
async fn lost_answers_are_recovered_in_a_hundred_thousand_writes() {
    let node = lossy(&unique("settling"), false);
    assert_eq!(take_many(&node.kv(), 100_000, false, true).await, 0, "each outcome is known in the end");
}
