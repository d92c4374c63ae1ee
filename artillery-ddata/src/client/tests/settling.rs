//! Clients some of whose outcomes are unknown.

use super::*;
use crate::{Kv, Resolution, driver::handle::WriteRequest, error::Unknown};

/// As large as what is kept for a retry.
const VALUE: usize = 4096;

/// The answers to one of a hundred get-and-deletes get lost, however often they are asked for.
fn loses(request: &WriteRequest) -> bool {
    let is_asked = matches!(request.write, Write::GetDelete { .. });
    is_asked && request.request.is_some_and(|request| request.number % 100 == 7)
}

fn lossy(cluster: &str) -> FakeNode {
    let node = FakeNode::start(cluster, "alone");
    node.form_losing(&routing(config(&[node.me()], 1), &[&node]), loses);
    node
}

fn value(n: usize) -> Bytes {
    n.to_be_bytes().repeat(VALUE / 8).into()
}

/// Puts a value and takes it away; whether the outcome of the latter was unknown. It is settled at once, unless that is left.
async fn take(kv: &Kv, n: usize, settles: bool) -> bool {
    let key = n.to_be_bytes();
    kv.put(key, value(n)).await.unwrap();
    match kv.get_delete(key).timeout(Duration::from_millis(30)).await {
        Ok(taken) => {
            assert_eq!(taken.result.into_value().unwrap(), value(n));
            false
        }
        Err(Error::OutcomeUnknown { request_id, reason }) => {
            assert_ne!(reason, Unknown::SessionExpired);
            if settles {
                let Resolution::Applied(record) = kv.resolve(request_id).await.unwrap() else {
                    panic!("{n} never ran")
                };
                let Computed::Took(Some((_, taken))) = record.result else { panic!("{:?}", record.result) };
                assert_eq!(taken, value(n));
            }
            true
        }
        Err(error) => panic!("{n}: {error}"),
    }
}

/// So many, 64 at a time; how many outcomes were unknown.
async fn take_many(kv: &Kv, count: usize, settles: impl Fn(usize) -> bool) -> usize {
    let (mut calls, mut unknown) = (JoinSet::new(), 0);
    for n in 0..count {
        let (kv, settles) = (kv.clone(), settles(n));
        calls.spawn(async move { take(&kv, n, settles).await });
        if calls.len() >= 64 {
            unknown += usize::from(calls.join_next().await.unwrap().unwrap());
        }
    }
    unknown + calls.join_all().await.into_iter().filter(|&unknown| unknown).count()
}

#[tokio::test]
async fn outcomes_that_are_settled_hold_nothing_back() {
    let node = lossy(&unique("settling"));
    let unknown = take_many(&node.kv().with_timeout(Duration::from_secs(20)), 6_000, |_| true).await;
    assert!(unknown > 30, "{unknown} outcomes were unknown");
}

#[tokio::test]
async fn a_client_goes_on_beside_outcomes_that_nobody_settles() {
    let node = lossy(&unique("settling"));
    let unknown = take_many(&node.kv().with_timeout(Duration::from_secs(20)), 6_000, |_| false).await;
    assert!(unknown > 30, "{unknown} outcomes were unknown");
}

#[ignore = "takes a minute: `.ci/run overload`"]
#[tokio::test]
async fn a_hundred_thousand_are_taken_and_settled() {
    let node = lossy(&unique("settling"));
    let unknown = take_many(&node.kv().with_timeout(Duration::from_secs(20)), 100_000, |_| true).await;
    assert!(unknown > 500, "{unknown} outcomes were unknown");
}
