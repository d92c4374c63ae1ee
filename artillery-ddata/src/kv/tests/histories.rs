//! Sessions and watches across a recovery, which begins another history.

use super::*;
use crate::{
    Frontier, Routing, Sequence,
    driver::fake::{config, routing},
};

fn recovered(routing: &Routing) -> Routing {
    let mut recovered = routing.clone();
    recovered.history = routing.history.next(9);
    recovered
}

fn is_of_another_history<T: std::fmt::Debug>(outcome: Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Refused { reason: Refusal::OtherHistory, .. }))
}

#[tokio::test]
async fn a_session_does_not_outlive_its_history() {
    let node = FakeNode::start(&unique("kv"), "alone");
    let first = routing(config(&[node.me()], 1), &[&node]);
    node.form(&first);
    let (kv, old) = (node.kv(), Session::new());
    kv.put("k", "v").session(&old).await.unwrap();
    kv.get("k").session(&old).await.unwrap();
    node.local.update(recovered(&first));
    assert!(is_of_another_history(kv.get("k").session(&old).await), "a read that could be served here");
    assert_eq!(kv.in_session(&old).get_local("k"), Err(NotLocal::NotHere));
    for mode in [ReadMode::Eventual, ReadMode::Bounded { versions: 1, age: Duration::from_secs(60) }] {
        assert!(is_of_another_history(kv.get("k").mode(mode).session(&old).await), "{mode:?}");
    }
    assert!(is_of_another_history(kv.get_many(["k"]).session(&old).await));
    assert!(is_of_another_history(kv.scan("").session(&old).next().await.unwrap()));
    assert!(is_of_another_history(kv.scan_hashed(0).session(&old).await));
    assert!(is_of_another_history(kv.put("k", "w").session(&old).await), "a write that the session could not read");
}

#[tokio::test]
async fn a_session_that_begins_after_a_recovery_is_of_the_new_history() {
    let node = FakeNode::start(&unique("kv"), "alone");
    let first = routing(config(&[node.me()], 1), &[&node]);
    node.form(&recovered(&first));
    let (kv, session) = (node.kv(), Session::new());
    kv.put("k", "v").await.unwrap();
    kv.get("k").session(&session).await.unwrap();
    assert_eq!(session.frontier().cluster(), Some(recovered(&first).history_id()));
    let seen = kv.get("k").mode(ReadMode::Eventual).session(&session).await.unwrap();
    assert_eq!(seen.value(), Some(&Bytes::from("v")));
}

#[tokio::test]
async fn a_watch_does_not_outlive_its_history() {
    let node = FakeNode::start(&unique("kv"), "alone");
    let first = routing(config(&[node.me()], 1), &[&node]);
    node.form(&first);
    let kv = node.kv();
    let put = kv.put("k", "v").await.unwrap();
    let mut from = Frontier::default();
    from.raise(first.history_id(), ChainId(0), Sequence(put.version.sequence.0 - 1));
    let mut watch = kv.watch("").from(from.clone()).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().version, put.version);
    node.local.update(recovered(&first));
    kv.put("k", "w").await.unwrap();
    assert!(is_of_another_history(watch.next().await.unwrap()), "the watch would skip changes");
    assert!(watch.next().await.is_none());
    assert!(is_of_another_history(kv.watch("").from(from).await), "the position belongs to the old history");
}

#[tokio::test]
async fn a_recovered_member_refuses_old_sessions_of_an_outdated_node() {
    let cluster = unique("kv");
    let (member, spare) = (FakeNode::start(&cluster, "member"), FakeNode::start(&cluster, "spare"));
    let first = routing(config(&[member.me()], 1), &[&member, &spare]);
    member.form(&recovered(&first));
    spare.form(&first);
    member.kv().put("k", "v").await.unwrap();
    let old = Session::new();
    old.raise(first.history_id(), ChainId(0), Sequence(1));
    for mode in [ReadMode::Strong, ReadMode::Eventual] {
        let seen = spare.kv().get("k").mode(mode).session(&old).await;
        assert!(is_of_another_history(seen), "{mode:?}");
    }
    assert!(is_of_another_history(spare.kv().watch("").await));
    assert!(spare.kv().get("k").await.is_ok(), "a read without a session names no history");
}
