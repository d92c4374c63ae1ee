use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use bytes::Bytes;

use super::*;
use crate::{
    Batch, Error, Frontier, Kv, Map, Refusal, Session, Version,
    driver::fake::{self, FakeNode, alone, unique},
    error::NotApplied,
    kv::Versioned,
    map::{Decimal, MapError},
};

fn kv_of_one() -> (FakeNode, Kv) {
    let node = alone(&unique("view"));
    let kv = node.kv();
    (node, kv)
}

type Reported = Arc<Mutex<Vec<ViewChange>>>;

fn reported() -> (Reported, impl FnMut(&ViewChange) + Send + 'static) {
    let all = Reported::default();
    let record = all.clone();
    (all, move |change: &ViewChange| record.lock().unwrap().push(change.clone()))
}

/// The state that follows from the changes.
fn folded(reported: &Reported) -> BTreeMap<Bytes, Versioned<Bytes>> {
    let mut state = BTreeMap::new();
    for ViewChange { key, previous, value, .. } in reported.lock().unwrap().iter().cloned() {
        let former = match value {
            Some(value) => state.insert(key, value),
            None => state.remove(&key),
        };
        assert_eq!(former, previous);
    }
    state
}

fn state(view: &View) -> BTreeMap<Bytes, Versioned<Bytes>> {
    view.iter().map(|entry| (entry.key, Versioned { version: entry.version, value: entry.value })).collect()
}

#[tokio::test]
async fn a_view_shows_the_keys_and_then_each_change() {
    let (_node, kv) = kv_of_one();
    let first = kv.put("s/b", "1").await.unwrap();
    kv.put("other", "x").await.unwrap();
    let mut view = kv.view("s/").await.unwrap();
    assert_eq!(view.get("s/b"), Some(Versioned { version: first.version, value: "1".into() }));
    assert_eq!((view.len(), view.get("other"), view.contains_key("s/b")), (1, None, true));
    assert_eq!((view.version(), view.status().state), (first.version, ViewState::Level));

    let put = kv.put("s/a", "2").await.unwrap();
    view.changed().await.unwrap();
    assert_eq!((view.get("s/a").unwrap().version, view.version()), (put.version, put.version));
    let keys: Vec<_> = view.iter().map(|entry| entry.key).collect();
    assert_eq!(keys, ["s/a", "s/b"]);
    let gone = kv.write(Batch::new().delete("s/a").delete("s/b")).await.unwrap();
    view.caught_up_to(gone.version).await.unwrap();
    assert!(view.is_empty() && view.version() == gone.version);
    view.changed().await.unwrap();
    let none = tokio::time::timeout(Duration::from_millis(50), view.changed()).await;
    assert!(none.is_err(), "the state doesn't differ");
    let status = view.status();
    assert_eq!((status.entries, status.bytes, status.resyncs, status.last_error), (0, 0, 0, None));
}

#[tokio::test]
async fn a_view_reaches_positions_of_other_keys() {
    let (_node, kv) = kv_of_one();
    let view = kv.view("s/").await.unwrap();
    let session = Session::new();
    let other = kv.put("other", "x").session(&session).await.unwrap();
    view.caught_up_to(other.version).await.unwrap();
    assert!(view.position().floor(other.request_id.chain) >= other.version.sequence);
    assert_eq!(view.version(), Version::NONE);
    kv.put("other", "y").session(&session).await.unwrap();
    view.caught_up_to_session(&session).await.unwrap();
    kv.put("s/a", "1").session(&session).await.unwrap();
    assert!(kv.in_session(&session).view("s/").await.unwrap().contains_key("s/a"));

    let mut elsewhere = Frontier::default();
    elsewhere.raise(crate::ClusterId(u128::MAX), other.request_id.chain, crate::Sequence(1));
    let error = view.caught_up_to_session(&Session::resume(elsewhere)).await.unwrap_err();
    assert_eq!(error, Error::refused(Refusal::OtherHistory, None).into());
}

/// Updates of other keys are committed after the position of the view and before its pages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_opens_while_other_keys_change() {
    let (_node, kv) = kv_of_one();
    let writes: Vec<_> = (0..8)
        .map(|writer| {
            let kv = kv.clone();
            tokio::spawn(async move { while kv.put(format!("other/{writer}"), "x").await.is_ok() {} })
        })
        .collect();
    for n in 0..50 {
        let prefix = format!("s/{n}/");
        kv.view(&prefix).await.unwrap();
        drop(kv.watch(&prefix).with_previous().await.unwrap());
    }
    writes.iter().for_each(|writes| writes.abort());
}

#[tokio::test]
async fn a_callback_gets_each_change_once_and_ends_with_its_view() {
    let (_node, kv) = kv_of_one();
    kv.write(Batch::new().put("s/b", "1").put("s/a", "1")).await.unwrap();
    let (first, record) = reported();
    let view = kv.view("s/").on_change(record).await.unwrap();
    assert_eq!(folded(&first), state(&view));
    let keys: Vec<_> = first.lock().unwrap().iter().map(|change| change.key.clone()).collect();
    assert_eq!(keys, ["s/a", "s/b"]);
    for n in 0..20 {
        kv.put(format!("s/{}", n % 7), n.to_string()).await.unwrap();
    }
    // A callback of a copy that exists already.
    let (second, record) = reported();
    let other = kv.view("s/").on_change(record).await.unwrap();
    let last = kv.write(Batch::new().delete("s/b").put("s/0", "last")).await.unwrap();
    other.caught_up_to(last.version).await.unwrap();
    assert_eq!((folded(&first), folded(&second)), (state(&view), state(&other)));
    assert_eq!(first.lock().unwrap().len(), 2 + 20 + 2);
    let clone = other.clone();
    drop(other);
    assert_eq!(Arc::strong_count(&second), 2, "the clone keeps the callback");
    drop(clone);
    assert_eq!(Arc::strong_count(&second), 1);
}

#[tokio::test]
async fn a_callback_that_panics_is_not_called_again() {
    let (_node, kv) = kv_of_one();
    kv.put("s/a", "1").await.unwrap();
    let (calls, mut record) = reported();
    let panics = move |change: &ViewChange| {
        record(change);
        panic!("a test of a panic");
    };
    let view = kv.view("s/").on_change(panics).await.unwrap();
    let put = kv.put("s/a", "2").await.unwrap();
    view.caught_up_to(put.version).await.unwrap();
    assert_eq!(view.get("s/a").unwrap().value, "2");
    assert_eq!(calls.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn views_of_one_prefix_share_a_copy_until_the_last_is_dropped() {
    let (node, kv) = kv_of_one();
    kv.put("s/a", "1").await.unwrap();
    let routers = Arc::strong_count(&node.router);
    let view = kv.view("s/").await.unwrap();
    let views: Vec<_> = {
        let mut views = Vec::new();
        for _ in 0..1000 {
            views.push(kv.view("s/").await.unwrap());
        }
        views
    };
    assert!(views.iter().all(|other| other.shares_copy(&view)));
    assert!(!kv.view("s/").max_bytes(1 << 20).await.unwrap().shares_copy(&view));
    assert!(!kv.view("s").await.unwrap().shares_copy(&view));
    let shared = view.weak();
    drop(views);
    let put = kv.put("s/a", "2").await.unwrap();
    view.caught_up_to(put.version).await.unwrap();
    drop(view);
    // The task is dropped at its next turn.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(Weak::upgrade(&shared).is_none(), "a task keeps the copy");
    assert_eq!(Arc::strong_count(&node.router), routers, "a task keeps the router");
    assert!(kv.view("s/").await.unwrap().contains_key("s/a"));
}

#[tokio::test]
async fn a_view_that_grows_too_large_ends() {
    let (_node, kv) = kv_of_one();
    kv.put("s/a", vec![0; 1000]).await.unwrap();
    let too_large = |limit| ViewError::TooLarge { limit };
    assert_eq!(kv.view("s/").max_bytes(1000).await.unwrap_err(), too_large(1000));
    let mut view = kv.view("s/").max_bytes(2500).await.unwrap();
    assert!((1000..1500).contains(&view.status().bytes));
    kv.put("s/b", vec![0; 1000]).await.unwrap();
    view.changed().await.unwrap();
    kv.put("s/c", vec![0; 1000]).await.unwrap();
    while view.changed().await.is_ok() {}
    assert_eq!(view.changed().await, Err(too_large(2500)));
    assert_eq!(view.status().state, ViewState::Ended(too_large(2500)));
    assert_eq!(view.caught_up_to(Version::new(1, 1 << 40)).await, Err(too_large(2500)));
    assert!(view.contains_key("s/a"), "it shows its last state");
    kv.delete("s/a").await.unwrap();
    kv.delete("s/b").await.unwrap();
    let again = kv.view("s/").max_bytes(2500).await.unwrap();
    assert_eq!(again.len(), 1, "an ended copy isn't shared");
}

#[tokio::test]
async fn opening_ends_in_time() {
    let node = FakeNode::start(&unique("view"), "late");
    let opened = node.kv().view("s/").timeout(Duration::from_millis(30)).await;
    let last = Some(Error::not_applied(NotApplied::NotFormed));
    assert_eq!(opened.unwrap_err(), ViewError::TimedOut { last });
    let long = node.kv().view(vec![b'k'; 5000]).await.unwrap_err();
    assert_eq!(long, Error::refused(Refusal::KeyTooLong { len: 5000, limit: 4096 }, None).into());
    // A chain without a member that answers.
    let mut config = fake::config(&[fake::member("gone")], 1);
    config.min_members = 1;
    node.form(&fake::routing(config, &[&node]));
    let opened = node.kv().view("s/").timeout(Duration::from_millis(30)).await;
    assert!(matches!(opened, Err(ViewError::TimedOut { .. })), "{opened:?}");
}

#[tokio::test]
async fn a_stopped_router_ends_its_views() {
    let (node, kv) = kv_of_one();
    kv.put("s/a", "1").await.unwrap();
    let mut view = kv.view("s/").await.unwrap();
    node.router.stop();
    kv.view("s/").await.unwrap_err();
    let stopped = ViewError::Call(Error::not_applied(NotApplied::Stopped));
    // The task notices it at its next query.
    let ended = view.caught_up_to(Version::new(1, u64::MAX)).await;
    assert_eq!((ended, view.changed().await), (Err(stopped.clone()), Err(stopped)));
    assert!(view.contains_key("s/a"));
}

#[tokio::test]
async fn a_view_of_a_map_has_its_types() {
    let (_node, kv) = kv_of_one();
    let hits: Map<(u32, String), i64, Decimal> = kv.map("hits").unwrap();
    hits.put(&(2, "b".to_owned()), &20).await.unwrap();
    let put = hits.put(&(1, "a".to_owned()), &10).await.unwrap();
    let changes = Arc::new(Mutex::new(Vec::new()));
    let all = changes.clone();
    let view = hits.view().timeout(Duration::from_secs(20)).max_bytes(1 << 20);
    let view = view.on_change(move |change| {
        let value = change.value.as_ref().map(|value| value.as_ref().map(|value| value.value));
        all.lock().unwrap().push((change.key.as_ref().ok().cloned(), value.ok().flatten()));
    });
    let mut view = view.await.unwrap();
    let found = Versioned { version: put.version, value: 10 };
    assert_eq!(view.get(&(1, "a".to_owned())).unwrap(), Some(found));
    let keys: Vec<_> = view.iter().map(|entry| entry.unwrap().key).collect();
    assert_eq!(keys, [(1, "a".to_owned()), (2, "b".to_owned())]);
    hits.delete(&(1, "a".to_owned())).await.unwrap();
    view.changed().await.unwrap();
    assert!(!view.contains_key(&(1, "a".to_owned())).unwrap() && view.len() == 1);
    let wrong = kv.put(hits.key(&(3, "c".to_owned())).unwrap(), "text").await.unwrap();
    view.caught_up_to(wrong.version).await.unwrap();
    assert!(matches!(view.get(&(3, "c".to_owned())), Err(MapError::Value(_))));
    assert_eq!(view.iter().filter(Result::is_err).count(), 1);
    let expected = [(1, "a", Some(10)), (2, "b", Some(20)), (1, "a", None), (3, "c", None)];
    let expected = expected.map(|(number, name, value)| (Some((number, name.to_owned())), value));
    assert_eq!(*changes.lock().unwrap(), expected);
}
