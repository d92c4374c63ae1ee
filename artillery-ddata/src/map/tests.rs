use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::*;
use crate::Map;
use crate::{
    Batch, Error, Kv, Refusal, Session, Version,
    api::{ReadMode, ReadPath},
    driver::fake::{FakeNode, alone, unique},
    error::NotApplied,
    replica::NotLocal,
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct User {
    name: String,
    visits: u32,
}

fn ann(visits: u32) -> User {
    User { name: "Ann".into(), visits }
}

#[tokio::test]
async fn an_entry_is_written_and_read() {
    let node = alone(&unique("map"));
    let users: Map<String, User> = node.kv().map("users").unwrap();
    assert_eq!(users.get("ann").await.unwrap().version(), Version::NONE);
    assert_eq!(users.get_local("ann").unwrap(), None);
    let put = users.put("ann", &ann(1)).await.unwrap();
    let read = users.get("ann").await.unwrap();
    assert_eq!((read.value(), read.version(), read.served.way), (Some(&ann(1)), put.version, ReadPath::Local));
    let local = users.get_local("ann").unwrap().unwrap();
    assert_eq!((local.value, local.version), (ann(1), put.version));
    let raw = node.kv().get(&users.key("ann").unwrap()).await.unwrap();
    assert_eq!(raw.value(), Some(&users.value(&ann(1)).unwrap()), "the same bytes by hand");
    assert_eq!(users.get("anna").await.unwrap().value(), None);

    let swapped = users.compare_and_swap("ann", put.version, &ann(2)).await.unwrap();
    let conflict = users.compare_and_swap("ann", put.version, &ann(3)).await.unwrap_err();
    let (version, bytes) = conflict.conflict().unwrap().current.clone().unwrap();
    assert_eq!((version, users.decode(&bytes).unwrap()), (swapped.version, ann(2)));
    assert!(users.compare_and_delete("ann", put.version).await.unwrap_err().conflict().is_some());
    users.compare_and_delete("ann", swapped.version).await.unwrap();
    assert_eq!(users.get("ann").await.unwrap().value(), None);
    users.compare_and_swap("ann", Version::NONE, &ann(4)).await.unwrap();
    users.delete("ann").await.unwrap();
    assert_eq!(users.get("ann").await.unwrap().value(), None);
}

#[tokio::test]
async fn maps_with_similar_names_are_separate() {
    let node = alone(&unique("map"));
    let (a, ab): (Map<String, u8>, Map<String, u8>) = (node.kv().map("a").unwrap(), node.kv().map("ab").unwrap());
    a.put("k", &1).await.unwrap();
    ab.put("k", &2).await.unwrap();
    assert_eq!(all(a.scan()).await, [("k".to_owned(), 1)]);
    assert_eq!(all(ab.scan()).await, [("k".to_owned(), 2)]);
}

async fn all<K: serde::de::DeserializeOwned, V>(mut scan: MapScan<K, V>) -> Vec<(K, V)> {
    let mut found = Vec::new();
    while let Some(entry) = scan.next().await {
        let entry = entry.unwrap();
        found.push((entry.key, entry.value));
    }
    found
}

#[tokio::test]
async fn scans_show_keys_in_their_order() {
    let node = alone(&unique("map"));
    let orders: Map<(i32, String), u64> = node.kv().map("orders").unwrap();
    let keys = [(300, "b"), (-1, "z"), (7, "ab"), (7, "a"), (7, ""), (i32::MIN, "x"), (8, "a")];
    for (n, key) in keys.iter().enumerate() {
        orders.put(key, &(n as u64)).await.unwrap();
    }
    let found: Vec<_> = all(orders.scan()).await.into_iter().map(|(key, _)| key).collect();
    let mut sorted: Vec<_> = keys.iter().map(|&(a, b)| (a, b.to_owned())).collect();
    sorted.sort();
    assert_eq!(found, sorted);
    let of_seven = all(orders.scan_prefix(&7)).await;
    assert_eq!(of_seven, [((7, String::new()), 4), ((7, "a".into()), 3), ((7, "ab".into()), 2)]);
    let behind = orders.scan_prefix(&7).after(&(7, "")).limit(1).snapshot().mode(ReadMode::Strong);
    assert_eq!(all(behind.timeout(Duration::from_secs(5))).await, [((7, "a".to_owned()), 3)]);
    assert_eq!(all(orders.scan_prefix(&9)).await, []);
}

#[tokio::test]
async fn handles_have_defaults_and_calls_have_their_own() {
    let node = alone(&unique("map"));
    let session = Session::new();
    let numbers: Map<u8, u8> = node.kv().map("numbers").unwrap();
    let through = numbers.clone().with_read_mode(ReadMode::ThroughChain);
    let put = numbers.in_session(&session).put(&1, &1).await.unwrap();
    let floor = || session.frontier().floor(crate::ChainId(0));
    assert_eq!(floor(), put.version.sequence);
    let put = numbers.put(&1, &2).session(&session).timeout(Duration::from_secs(5)).await.unwrap();
    assert_eq!(floor(), put.version.sequence);
    assert_eq!(through.get(&1).await.unwrap().served.way, ReadPath::Chain);
    assert_eq!(numbers.get(&1).mode(ReadMode::ThroughChain).await.unwrap().served.way, ReadPath::Chain);
    assert_eq!(through.get(&1).mode(ReadMode::Strong).await.unwrap().served.way, ReadPath::Local);
    let updated = numbers.update(&1, |old| old.map(|n| n + 1)).session(&session).await.unwrap();
    assert_eq!((floor(), updated.result), (updated.version.sequence, Some(3)));

    let id = node.kv().new_request_id(numbers.key(&9).unwrap()).await.unwrap();
    let first = numbers.put(&9, &1).request_id(id).await.unwrap();
    let again = numbers.put(&9, &1).request_id(id).await.unwrap();
    assert_eq!((first.replayed, again.replayed, again.version), (false, true, first.version));

    let unformed = FakeNode::start(&unique("map"), "late");
    let numbers: Map<u8, u8> = unformed.kv().map("numbers").unwrap();
    assert!(matches!(numbers.get_local(&1), Err(MapError::NotLocal(NotLocal::NotHere))));
    let soon = numbers.with_timeout(Duration::from_millis(30));
    for error in [soon.put(&1, &1).await.unwrap_err(), soon.update(&1, |_| Some(1)).await.unwrap_err()] {
        assert_eq!(error.call(), Some(&Error::not_applied(NotApplied::NotFormed)));
    }
}

#[tokio::test]
async fn concurrent_updates_lose_no_increment() {
    let node = alone(&unique("map"));
    let counts: Map<String, u32> = node.kv().map("counts").unwrap();
    let add = |counts: Map<String, u32>| async move {
        for _ in 0..100 {
            counts.update("all", |n| Some(n.unwrap_or(0) + 1)).await.unwrap();
        }
    };
    let tasks = [tokio::spawn(add(counts.clone())), tokio::spawn(add(counts.clone()))];
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(counts.get("all").await.unwrap().into_value(), Some(200));
}

#[tokio::test]
async fn an_update_creates_changes_and_deletes() {
    let node = alone(&unique("map"));
    let counts: Map<String, u32> = node.kv().map("counts").unwrap();
    let mut seen = Vec::new();
    let created = counts.update("n", |old| (seen.push(old), Some(1)).1).await.unwrap();
    assert_eq!((created.result, counts.get("n").await.unwrap().version()), (Some(1), created.version));
    let gone = counts.update("n", |old| (seen.push(old), None).1).await.unwrap();
    assert_eq!((gone.result, counts.get("n").await.unwrap().value()), (None, None));
    counts.update("n", |old| (seen.push(old), None).1).await.unwrap();
    assert_eq!(seen, [None, Some(1), None]);
}

/// The first attempt meets a conflict; the second starts from the value of the other write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_starts_over_from_the_other_write() {
    let node = alone(&unique("map"));
    let counts: Map<String, u32> = node.kv().map("counts").unwrap();
    let mut seen = Vec::new();
    let change = |old: Option<u32>| {
        seen.push(old);
        if seen.len() == 1 {
            let put = counts.put("n", &10);
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(put.into_future())).unwrap();
        }
        Some(old.unwrap_or(0) + 1)
    };
    let updated = counts.update("n", change).await.unwrap();
    assert_eq!((seen, updated.result), (vec![None, Some(10)], Some(11)));
    assert_eq!(counts.get("n").await.unwrap().into_value(), Some(11));
}

/// The closure itself writes the entry, so that each attempt meets a conflict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_ends_when_its_time_is_up() {
    let node = alone(&unique("map"));
    let counts: Map<String, u32> = node.kv().map("counts").unwrap();
    let mut tries = 0;
    let interfere = |_| {
        tries += 1;
        let put = counts.put("n", &tries);
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(put.into_future())).unwrap();
        Some(0)
    };
    let error = counts.update("n", interfere).timeout(Duration::from_millis(200)).await.unwrap_err();
    let error = error.call().unwrap();
    assert!(error.is_timeout(), "{error:?}");
    assert!(tries > 1, "only one attempt was made");
}

#[tokio::test]
async fn numbers_are_incremented() {
    let node = alone(&unique("map"));
    let hits: Map<String, i64, Decimal> = node.kv().map("hits").unwrap();
    assert_eq!(hits.increment("home", 2).await.unwrap().result, 2);
    assert_eq!(hits.increment("home", -5).await.unwrap().result, -3);
    assert_eq!(hits.get("home").await.unwrap().value(), Some(&-3));
    hits.put("home", &i64::MAX).await.unwrap();
    let error = hits.increment("home", 1).await.unwrap_err();
    assert!(matches!(error.call(), Some(Error::Refused { reason: Refusal::Overflow, .. })), "{error:?}");
}

#[tokio::test]
async fn undecodable_entries_are_errors_in_their_place() {
    let node = alone(&unique("map"));
    let kv = node.kv();
    let users: Map<u8, User> = kv.map("users").unwrap();
    users.put(&1, &ann(1)).await.unwrap();
    kv.put(users.key(&2).unwrap(), "no user").await.unwrap();
    users.put(&3, &ann(3)).await.unwrap();
    kv.put("users\0no key of one byte", "x").await.unwrap();
    assert!(matches!(users.get(&2).await, Err(MapError::Value(ValueError::Decode(_)))));
    assert!(matches!(users.get_local(&2), Err(MapError::Value(_))));
    assert!(matches!(users.update(&2, |_| unreachable!()).await, Err(MapError::Value(_))));
    let mut scan = users.scan();
    assert_eq!(scan.next().await.unwrap().unwrap().value, ann(1));
    assert!(matches!(scan.next().await, Some(Err(MapError::Value(_)))));
    assert_eq!(scan.next().await.unwrap().unwrap().value, ann(3));
    assert!(matches!(scan.next().await, Some(Err(MapError::Key(_)))));
    assert!(scan.next().await.is_none());
    assert_eq!(kv.get(&users.key(&2).unwrap()).await.unwrap().value(), Some(&Bytes::from("no user")));
}

#[tokio::test]
async fn changes_are_typed_and_undecodable_ones_are_errors_in_their_place() {
    let node = alone(&unique("map"));
    let kv = node.kv();
    let users: Map<u8, User> = kv.map("users").unwrap();
    users.put(&0, &ann(0)).await.unwrap();
    let mut watch = users.watch().timeout(Duration::from_secs(5)).await.unwrap();
    let opened = watch.position();
    let put = users.put(&1, &ann(1)).await.unwrap();
    kv.put(users.key(&2).unwrap(), "no user").await.unwrap();
    kv.put("users\0no key of one byte", "x").await.unwrap();
    kv.put("users2\0", "of another map").await.unwrap();
    let deleted = users.delete(&1).await.unwrap();
    users.put(&3, &ann(3)).ttl(Duration::ZERO).await.unwrap();
    let first = watch.next().await.unwrap().unwrap();
    assert_eq!(first, MapChange::new(1, put.version, Some(ann(1))));
    let after_first = watch.position();
    for mut watch in [watch, users.watch().from(after_first).timeout(Duration::from_secs(5)).await.unwrap()] {
        assert!(matches!(watch.next().await, Some(Err(MapError::Value(ValueError::Decode(_))))));
        assert!(matches!(watch.next().await, Some(Err(MapError::Key(_)))));
        assert_eq!(watch.next().await.unwrap().unwrap(), MapChange::new(1, deleted.version, None));
        assert_eq!(watch.position().floor(crate::ChainId(0)), deleted.version.sequence);
        let [created, expired] = [watch.next().await.unwrap().unwrap(), watch.next().await.unwrap().unwrap()];
        assert_eq!((created.key, created.value, created.expired), (3, Some(ann(3)), false));
        assert_eq!((expired.key, expired.value, expired.expired), (3, None, true));
    }
    assert_eq!(users.watch().from(opened).await.unwrap().next().await.unwrap().unwrap(), first);
    let mut elsewhere = crate::Frontier::default();
    elsewhere.raise(crate::ClusterId(u128::MAX), crate::ChainId(0), crate::Sequence(1));
    let error = users.watch().from(elsewhere).await.unwrap_err();
    assert!(matches!(error.call(), Some(Error::Refused { reason: Refusal::OtherHistory, .. })), "{error:?}");
}

#[tokio::test]
async fn a_map_whose_name_is_not_allowed_is_not_made() {
    let node = alone(&unique("map"));
    let bad: Result<Map<String, u8>, _> = node.kv().map("a\0b");
    assert_eq!(bad.unwrap_err(), NameError::Zero);
    let why = node.kv().map::<String, u8, Bincode>("").unwrap_err();
    assert_eq!(why.to_string(), "the name of a map is empty: it has 1 to 255 bytes, none of them zero");
}

#[tokio::test]
async fn encoding_errors_are_returned_by_the_call() {
    let node = alone(&unique("map"));
    let floats: Map<(u8, f64), u8> = node.kv().map("floats").unwrap();
    assert!(matches!(floats.put(&(1, 0.5), &1).await, Err(MapError::Key(KeyError::Unsupported(_)))));
    let long: Map<String, u8> = node.kv().map("long").unwrap();
    assert!(matches!(long.get(&"k".repeat(5000)).await, Err(MapError::Key(KeyError::TooLong { .. }))));
}

#[tokio::test]
async fn maps_share_a_batch() {
    let node = alone(&unique("map"));
    let kv: Kv = node.kv();
    let users: Map<String, User> = kv.map("users").unwrap();
    let orders: Map<(u32, u64), String> = kv.map("orders").unwrap();
    users.put("ann", &ann(1)).await.unwrap();
    let batch = Batch::new().delete(users.key("ann").unwrap());
    let batch = batch.put(orders.key(&(7, 1)).unwrap(), orders.value(&"tea".into()).unwrap());
    kv.write(batch).await.unwrap();
    assert_eq!(users.get("ann").await.unwrap().value(), None);
    assert_eq!(orders.get(&(7, 1)).await.unwrap().into_value().as_deref(), Some("tea"));
}
