mod histories;

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;

use super::*;
use crate::{
    Batch, ChainId, Error, Kv, NodeId, NotLocal, Place, ReadMode, Refusal, RequestId, Script, Session, Version,
    api::{Computed, Expected, GroupFailure, Query, ReadPath, StepOutcome},
    driver::fake::{self, FakeNode, alone, unique},
    error::{NotApplied, Unknown},
    kv::keep::pair,
    message::request::Operation,
    types::{keep::SHORT, update::RequestFailure},
    wire::request::decode_request,
};

fn kv_of_one() -> (FakeNode, Kv) {
    let node = alone(&unique("kv"));
    let kv = node.kv();
    (node, kv)
}

#[tokio::test]
async fn a_chain_of_one_serves_reads_and_writes() {
    let (_node, kv) = kv_of_one();
    assert_eq!(kv.get("k").await.unwrap().version(), Version::NONE);
    let put = kv.put("k", "one").await.unwrap();
    // The first update opened the client's session.
    let id = RequestId { session: Version::new(1, 1), number: 1, ..put.request_id };
    assert_eq!(put, Committed::new(Version::new(1, 2), 1, id, false, ()));

    let seen = kv.get("k").await.unwrap();
    assert_eq!(seen.value(), Some(&Bytes::from("one")));
    assert_eq!((seen.version(), seen.state), (put.version, ReadState::Clean));
    assert_eq!(seen.served, Served::new(NodeId::from_name("alone"), Place::Head, ReadPath::Local));
    let local = kv.get_local("k").unwrap();
    assert_eq!(local, Some(Versioned { version: put.version, value: Bytes::from("one") }));

    let swapped = kv.compare_and_swap("k", put.version, "two").await.unwrap();
    let conflict = kv.compare_and_swap("k", put.version, "three").await.unwrap_err().into_conflict().unwrap();
    assert_eq!(conflict.current, Some((swapped.version, Bytes::from("two"))));
    assert_eq!(conflict.to_string(), format!("the key has version {}", swapped.version));
    kv.compare_and_delete("k", swapped.version).await.unwrap();
    assert_eq!(kv.get_local("k"), Ok(None), "tombstones aren't shown");
    let absent = kv.compare_and_swap("k", swapped.version, "x").await.unwrap_err().into_conflict().unwrap();
    assert_eq!((absent.current.clone(), absent.version()), (None, Version::NONE));
    kv.compare_and_swap("k", Version::NONE, "created").await.unwrap();
    kv.delete("k").await.unwrap();
    assert_eq!(kv.get("k").mode(ReadMode::Eventual).await.unwrap().value(), None);
}

#[tokio::test]
async fn results_of_writes_are_returned_and_replayed() {
    let (_node, kv) = kv_of_one();
    assert_eq!(kv.append("log", "ab").await.unwrap().result, 2);
    let id = kv.new_request_id("log").await.unwrap();
    let appended = kv.append("log", "c").request_id(id).await.unwrap();
    assert_eq!((appended.result, appended.replayed), (3, false));
    let again = kv.append("log", "c").request_id(id).await.unwrap();
    assert_eq!((again.result, again.replayed, again.version), (3, true, appended.version));
    assert_eq!(kv.increment("sold", 40).await.unwrap().result, 40);
    assert_eq!(kv.increment("sold", -50).await.unwrap().result, -10);
    let not = kv.increment("log", 1).await.unwrap_err();
    assert!(matches!(not, Error::Refused { reason: Refusal::NotANumber, .. }), "{not:?}");
    let other = kv.increment("sold", 1).request_id(id).await.unwrap_err();
    assert!(matches!(other, Error::Refused { reason: Refusal::OtherRequest, .. }), "{other:?}");
    let id = kv.new_request_id("log").await.unwrap();
    let taken = kv.get_delete("log").request_id(id).await.unwrap();
    let expected = Versioned { version: appended.version, value: Bytes::from("abc") };
    assert_eq!(taken.result, Taken::Value(expected.clone()));
    assert_eq!(kv.get_delete("log").await.unwrap().result, Taken::Nothing);
    let again = kv.get_delete("log").request_id(id).await.unwrap();
    assert_eq!((again.result, again.replayed), (Taken::Value(expected), true));
}

#[tokio::test]
async fn an_outcome_can_be_resolved() {
    let (_node, kv) = kv_of_one();
    let id = kv.new_request_id("paid").await.unwrap();
    let paid = kv.increment("paid", 40).request_id(id).await.unwrap();
    let record = Record::new(paid.version, Computed::Number(40));
    assert_eq!(kv.resolve(id).await, Ok(Resolution::Applied(record)));
    let never = kv.new_request_id("paid").await.unwrap();
    assert_ne!(never, id);
    assert_eq!(kv.resolve(never).await, Ok(Resolution::NeverApplied));
    let late = kv.increment("paid", 2).request_id(never).await.unwrap_err();
    assert!(matches!(late, Error::Refused { reason: Refusal::Barred, .. }), "{late:?}");
    assert_eq!(kv.resolve(never).await, Ok(Resolution::NeverApplied), "for ever");
    let unknown = RequestId { session: Version::new(1, 999), ..id };
    assert_eq!(kv.resolve(unknown).await, Ok(Resolution::Forgotten));
    let other_cluster = RequestId { cluster: crate::ClusterId(u128::MAX), ..id };
    let error = kv.resolve(other_cluster).await.unwrap_err();
    assert!(matches!(error, Error::Refused { reason: Refusal::OtherHistory, .. }), "{error:?}");
    assert_eq!(kv.get("paid").await.unwrap().value(), Some(&Bytes::from("40")));
}

#[tokio::test]
async fn a_batch_is_applied_as_a_whole_and_read_at_one_point() {
    let (_node, kv) = kv_of_one();
    kv.put("cart/3", "x").await.unwrap();
    let order =
        Batch::new().require("order/9", Expected::Absent).put("order/9", "7").increment("sold", 1).delete("cart/3");
    let id = kv.new_request_id("order/9").await.unwrap();
    let done = kv.write(order.clone()).request_id(id).await.unwrap();
    let cut = kv.get_many(["order/9", "sold", "cart/3"]).await.unwrap();
    let values: Vec<_> = cut.values().map(|value| value.map(|value| &value[..])).collect();
    assert_eq!(values, [Some(&b"7"[..]), Some(b"1"), None]);
    assert_eq!(cut.entries[0].as_ref().unwrap().version, done.version);
    let conflict = kv.write(order.clone()).await.unwrap_err().into_conflict().unwrap();
    assert_eq!((conflict.step, conflict.version()), (0, done.version));
    assert_eq!(conflict.current, Some((done.version, Bytes::from("7"))));
    let again = kv.write(order).request_id(id).await.unwrap();
    assert!(again.replayed && again.version == done.version);
    let empty = kv.write(Batch::new()).await.unwrap_err();
    let Some(Error::Refused { reason: Refusal::BatchSize { len: 0, .. }, .. }) = empty.call() else {
        panic!("{empty:?}")
    };
}

#[tokio::test]
async fn scripts_return_their_results_once() {
    let (_node, kv) = kv_of_one();
    let before = kv.put("greeting", "hi").await.unwrap();
    let script = || {
        let greet = Group::new().get("greeting").put("greeting", "hello").length("greeting").delete("nobody");
        let count = Group::new().increment("visits", 1).append("log", "x").get_delete("greeting");
        let wrong = Group::new().put("never", "v").increment("log", 1);
        let unless = Group::new().require("visits", Expected::Absent).put("visits", "0");
        Script::from_iter([greet, count, wrong, unless])
    };
    let id = kv.new_request_id("greeting").await.unwrap();
    let done = kv.run(script().require("visits", Expected::Absent)).request_id(id).await.unwrap();
    let [Ok(greet), Ok(count), Err(wrong), Err(unless)] = &done.result[..] else { panic!("{done:?}") };
    let found = |version, value: &'static str| StepOutcome::Found(Some((version, Bytes::from(value))));
    let hi = found(before.version, "hi");
    assert_eq!(greet, &[hi, StepOutcome::Done, StepOutcome::Length(Some(5)), StepOutcome::Deleted(false)]);
    assert_eq!(count, &[StepOutcome::Number(1), StepOutcome::Appended(1), found(done.version, "hello")]);
    assert_eq!(*wrong, GroupFailure::Failed { step: 1, failure: RequestFailure::NotANumber });
    assert_eq!(*unless, GroupFailure::Unmet { requirement: 0, version: done.version });
    assert_eq!(kv.get("never").await.unwrap().value(), None);

    let again = kv.run(script()).request_id(id).await.unwrap_err();
    assert_eq!(again.to_string().split(": ").last(), Some("it was applied as version 1.4, but its results are lost"));
    let Err(Error::OutcomeUnknown { reason: Unknown::ResultsLost(version), request_id }) = again.into_conflict() else {
        panic!("it ran before")
    };
    assert_eq!((version, request_id), (done.version, id));
    let Resolution::Applied(record) = kv.resolve(id).await.unwrap() else { panic!("it ran") };
    assert_eq!((record.version, record.result), (done.version, Computed::RanForgotten));

    let conflict = kv.run(script().require("visits", Expected::Absent)).await.unwrap_err().into_conflict().unwrap();
    assert_eq!((conflict.step, conflict.current), (0, Some((done.version, Bytes::from("1")))));
    let empty = kv.run(Script::new()).await.unwrap_err();
    let Some(Error::Refused { reason: Refusal::BatchSize { len: 0, .. }, .. }) = empty.call() else {
        panic!("{empty:?}")
    };
}

#[tokio::test]
async fn scans_page_and_continue_after_a_key() {
    let (_node, kv) = kv_of_one();
    for n in 0..600 {
        kv.put(format!("stock/{n:03}"), n.to_string()).await.unwrap();
    }
    kv.put("stocks", "not below the prefix").await.unwrap();
    let mut scan = kv.scan("stock/").snapshot();
    let mut keys = Vec::new();
    while let Some(entry) = scan.next().await {
        let entry = entry.unwrap();
        if keys.is_empty() {
            kv.delete("stock/500").await.unwrap();
        }
        keys.push(entry.key);
    }
    assert_eq!(keys.len(), 600, "a snapshot shows keys that were deleted since");
    assert!(keys.is_sorted());
    let mut rest = kv.scan("stock/").after(&keys[497]).limit(2);
    let mut found = Vec::new();
    while let Some(entry) = rest.next().await {
        found.push(entry.unwrap().key);
    }
    assert_eq!(found, ["stock/498", "stock/499"]);
    let mut none = kv.scan("nothing");
    assert!(none.next().await.is_none() && none.next().await.is_none());
}

#[tokio::test]
async fn a_cursor_is_valid_at_any_node() {
    let cluster = unique("kv");
    let (node, spare) = (alone(&cluster), FakeNode::start(&cluster, "spare"));
    spare.form(&fake::routing(fake::config(&[node.me()], 1), &[&node, &spare]));
    let kvs = [node.kv(), spare.kv()];
    for n in 0..300 {
        kvs[0].put(format!("stock/{n:03}"), "v").await.unwrap();
    }
    kvs[0].delete("stock/007").await.unwrap();
    let (mut keys, mut cursor, mut pages) = (Vec::new(), 0, 0);
    loop {
        let page = kvs[pages % 2].scan_hashed(cursor).limit(7).await.unwrap();
        assert!(page.keys.len() <= 7);
        keys.extend(page.keys);
        (cursor, pages) = (page.next, pages + 1);
        if cursor == 0 {
            break;
        }
    }
    assert_eq!((keys.len(), pages), (299, 299_usize.div_ceil(7)));
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 299, "no key twice while nothing changes");
    assert_eq!(kvs[1].scan_hashed(0).await.unwrap().keys.len(), 10, "the default limit");
}

#[tokio::test]
async fn a_watch_shows_each_change_once_and_resumes() {
    let (_node, kv) = kv_of_one();
    kv.put("stock/0", "before").await.unwrap();
    let mut watch = kv.watch("stock/").await.unwrap();
    kv.put("stock/1", "v").await.unwrap();
    let first = watch.next().await.unwrap().unwrap();
    assert_eq!(first.key, "stock/1", "the change after the opening, and none before");
    let position = watch.position();
    assert_eq!(position.floor(ChainId(0)), first.version.sequence);
    kv.write(Batch::new().put("stock/2", "a").put("stock/3", "b").put("other", "c")).await.unwrap();
    kv.delete("stock/2").await.unwrap();
    let mut again = kv.watch("stock/").from(position).await.unwrap();
    let mut last = first.version;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let change = again.next().await.unwrap().unwrap();
        assert!(change.version >= last);
        last = change.version;
        seen.push((change.key, change.value));
    }
    let expected = [("stock/2", Some("a")), ("stock/3", Some("b")), ("stock/2", None)];
    assert_eq!(seen, expected.map(|(key, value)| (Bytes::from(key), value.map(Bytes::from))));
    let mut elsewhere = crate::Frontier::default();
    elsewhere.raise(crate::ClusterId(u128::MAX), ChainId(0), crate::Sequence(1));
    let other = kv.watch("").from(elsewhere).await;
    assert!(matches!(other, Err(Error::Refused { reason: Refusal::OtherHistory, .. })), "{other:?}");
}

#[tokio::test]
async fn a_watch_reports_previous_values() {
    let (_node, kv) = kv_of_one();
    let first = kv.put("stock/0", "one").await.unwrap();
    let mut watch = kv.watch("stock/").with_previous().await.unwrap();
    let second = kv.put("stock/0", "two").await.unwrap();
    kv.write(Batch::new().put("stock/1", "new").delete("stock/0")).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let change = watch.next().await.unwrap().unwrap();
        seen.push((change.key, change.previous));
    }
    let found = |version, value: &'static str| Some(Versioned { version, value: Bytes::from(value) });
    let (one, two) = (found(first.version, "one"), found(second.version, "two"));
    assert_eq!(seen, [("stock/0".into(), one), ("stock/0".into(), two), ("stock/1".into(), None)]);
}

#[tokio::test]
async fn a_watch_has_begun_once_it_is_open() {
    let (_node, kv) = kv_of_one();
    let before = kv.put("stock/0", "before").await.unwrap();
    let mut watch = kv.watch("stock/").timeout(Duration::from_secs(5)).await.unwrap();
    let opened = watch.position();
    assert_eq!(opened.floor(ChainId(0)), before.version.sequence, "the position is settled");
    let put = kv.put("stock/1", "between").await.unwrap();
    assert_eq!(watch.position(), opened, "the change wasn't returned");
    let change = watch.next().await.unwrap().unwrap();
    assert_eq!((&change.key[..], change.version), (&b"stock/1"[..], put.version));
    assert_eq!(watch.position().floor(ChainId(0)), put.version.sequence);
    let mut fresh = kv.watch("stock/").from(Session::new().frontier()).await.unwrap();
    assert_eq!(fresh.position(), watch.position(), "a session that has seen nothing has no earlier position");
    let put = kv.put("stock/2", "v").await.unwrap();
    assert_eq!(fresh.next().await.unwrap().unwrap().version, put.version);
}

/// The head doesn't answer, so its streams show the requests.
#[tokio::test]
async fn a_watch_that_is_not_awaited_sends_nothing() {
    let cluster = unique("kv");
    let (sender, mut streams) = tokio::sync::mpsc::channel(16);
    let silent = FakeNode::start_with(&cluster, "silent", move |stream| drop(sender.try_send(stream)));
    let spare = FakeNode::start(&cluster, "spare");
    spare.form(&fake::routing(fake::config(&[silent.me()], 1), &[&silent, &spare]));
    let kv = spare.kv();
    drop(kv.watch("a"));
    drop(kv.watch("b").into_future());
    drop(kv.watch("c").from(crate::Frontier::default()).timeout(Duration::from_secs(1)).into_future());
    let read = tokio::spawn(async move { kv.get("k").await });
    let mut stream = streams.recv().await.unwrap();
    let request = decode_request(&stream.reader.next().await.unwrap().unwrap()).unwrap();
    assert!(matches!(request.operation, Operation::Read { query: Query::Key(_), .. }), "{request:?}");
    read.abort();
}

/// The steps that `Watch` describes, while other tasks write and delete.
#[tokio::test]
async fn a_watch_and_a_scan_from_its_position_keep_a_copy() {
    let (_node, kv) = kv_of_one();
    for n in 0..600 {
        kv.put(format!("stock/{n:03}"), "old").await.unwrap();
    }
    let mut watch = kv.watch("stock/").await.unwrap();
    let change = |n: u32| {
        let kv = kv.clone();
        async move {
            kv.put(format!("stock/{:03}", n % 600), n.to_string()).await.unwrap();
            kv.delete(format!("stock/{:03}", (n + 1) % 600)).await.unwrap();
        }
    };
    change(598).await;
    let session = Session::resume(watch.position());
    let mut scan = kv.scan("stock/").mode(ReadMode::Eventual).session(&session);
    let mut copy = std::collections::BTreeMap::new();
    let mut n = 0;
    while let Some(entry) = scan.next().await {
        let entry = entry.unwrap();
        copy.insert(entry.key, (entry.version, entry.value));
        n += 7;
        change(n).await;
    }
    let last = kv.put("stock/last", "v").await.unwrap();
    let mut skipped = 0;
    loop {
        let change = watch.next().await.unwrap().unwrap();
        if copy.get(&change.key).is_some_and(|&(version, _)| change.version <= version) {
            skipped += 1;
            continue;
        }
        match change.value {
            Some(value) => copy.insert(change.key, (change.version, value)),
            None => copy.remove(&change.key),
        };
        if change.version == last.version {
            break;
        }
    }
    assert!(skipped > 0, "the scan showed no change that the watch returned");
    let mut scan = kv.scan("stock/");
    while let Some(entry) = scan.next().await {
        let entry = entry.unwrap();
        assert_eq!(copy.remove(&entry.key), Some((entry.version, entry.value)));
    }
    assert!(copy.is_empty(), "{copy:?}");
}

#[tokio::test]
async fn a_session_keeps_its_floor() {
    let node = alone(&unique("kv"));
    let session = Session::new();
    let kv = node.kv().in_session(&session);
    let chain = ChainId(0);
    let put = kv.put("k", "v").await.unwrap();
    assert_eq!(session.frontier().floor(chain), put.version.sequence);
    node.kv().put("other", "v").await.unwrap();
    kv.get("absent").await.unwrap();
    assert_eq!(session.frontier().floor(chain).0, put.version.sequence.0 + 1, "an absent key raises the floor too");
    let resumed = Session::resume(session.frontier().to_string().parse().unwrap());
    let seen = node.kv().get("k").mode(ReadMode::Eventual).session(&resumed).await.unwrap();
    assert_eq!(seen.state, ReadState::Clean);
    let mut elsewhere = crate::Frontier::default();
    elsewhere.raise(crate::ClusterId(u128::MAX), chain, crate::Sequence(1));
    let other = Session::resume(elsewhere);
    let error = node.kv().get("k").session(&other).await.unwrap_err();
    assert!(matches!(error, Error::Refused { reason: Refusal::OtherHistory, .. }), "{error:?}");
}

#[tokio::test]
async fn no_timeout_is_too_long() {
    let node = alone(&unique("kv"));
    let kv = node.kv().with_timeout(Duration::MAX);
    kv.put("k", "v").await.unwrap();
    assert_eq!(kv.get("k").mode(ReadMode::ThroughChain).await.unwrap().value(), Some(&Bytes::from("v")));
    assert_eq!(kv.scan("").next().await.unwrap().unwrap().key, "k");
}

#[tokio::test]
async fn each_mode_takes_its_own_path() {
    let (_node, kv) = kv_of_one();
    kv.put("k", "v").await.unwrap();
    for (mode, way) in [(ReadMode::Eventual, ReadPath::Local), (ReadMode::ThroughChain, ReadPath::Chain)] {
        let seen = kv.get("k").mode(mode).await.unwrap();
        assert_eq!((seen.value(), seen.served.way), (Some(&Bytes::from("v")), way));
        assert_eq!(kv.clone().with_read_mode(mode).get("k").await.unwrap().served.way, way);
    }
}

#[tokio::test]
async fn oversized_requests_are_refused_locally() {
    let (_node, kv) = kv_of_one();
    let long = vec![b'k'; 5000];
    let too_long = Refusal::KeyTooLong { len: 5000, limit: 4096 };
    assert_eq!(kv.put(&long, "v").await, Err(Error::refused(too_long, None)));
    assert_eq!(kv.get(&long).mode(ReadMode::Eventual).await, Err(Error::refused(too_long, None)));
    let limit = fake::MAX_VALUE;
    let error = kv.put("k", vec![0; limit as usize + 1]).await.unwrap_err();
    assert_eq!(error, Error::refused(Refusal::ValueTooLarge { len: limit + 1, limit }, None));
    kv.put("k", vec![0; limit as usize]).await.unwrap();
}

#[tokio::test]
async fn calls_wait_for_the_cluster_to_be_formed() {
    let node = FakeNode::start(&unique("kv"), "late");
    let kv = node.kv();
    assert_eq!(kv.get_local("k"), Err(NotLocal::NotHere));
    let none = kv.put("k", "v").timeout(Duration::from_millis(30)).await;
    assert_eq!(none, Err(Error::not_applied(NotApplied::NotFormed)));
    let put = tokio::spawn(kv.put("k", "v").into_future());
    tokio::task::yield_now().await;
    node.form(&fake::routing(fake::config(&[node.me()], 1), &[&node]));
    put.await.unwrap().unwrap();
}

#[test]
fn short_values_are_copied() {
    let bytes = Bytes::from_iter(0..=255);
    for (len, key) in (0..=255).flat_map(|len| [0, len / 3, len].map(|key| (len, key))) {
        let (key, value) = (bytes.slice(..key), bytes.slice(key..len));
        let (own_key, own_value) = pair(&key, value.clone());
        assert_eq!((&own_key, &own_value), (&key, &value));
        let is_copy = own_value.as_ptr() != value.as_ptr();
        assert_eq!(is_copy, len <= SHORT, "{len} bytes");
    }
}

#[test]
fn local_reads_allocate_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_node, kv) = runtime.block_on(async {
        let node = alone(&unique("kv"));
        let kv = node.kv();
        kv.put("stock/7", "4").await.unwrap();
        (node, kv)
    });
    let read = move || {
        let once = || {
            assert_eq!(kv.get_local("stock/7").unwrap().unwrap().value, "4");
            assert_eq!(kv.get_local("absent"), Ok(None));
            let mut get = pin!(kv.get("stock/7").into_future());
            match get.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Ok(read)) => assert_eq!(read.value(), Some(&Bytes::from_static(b"4"))),
                other => panic!("{other:?}"),
            }
        };
        // The first read may allocate thread-local state.
        once();
        let used = allocation_counter::measure(|| (0..1000).for_each(|_| once()));
        assert_eq!((used.count_total, used.bytes_total), (0, 0));
        assert!(allocation_counter::measure(|| drop(kv.put("k", "v"))).count_total > 0, "the counter counts");
    };
    #[allow(clippy::disallowed_methods, reason = "the test needs a thread without a runtime")]
    std::thread::spawn(read).join().unwrap();
}

/// A loop of reads that are ready at once must let other tasks on its thread run.
#[tokio::test]
async fn ready_reads_spend_the_budget() {
    let (_node, kv) = kv_of_one();
    let other = tokio::spawn(async {});
    let mut reads = 0;
    while !other.is_finished() {
        kv.get("k").await.unwrap();
        reads += 1;
        assert!(reads < 100_000, "the other task never ran");
    }
}
