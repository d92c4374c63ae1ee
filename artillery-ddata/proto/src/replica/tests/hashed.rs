//! Pages of keys in hash order.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::rig::*;
use crate::{
    api::*,
    store::{MemoryStore, position},
};

fn page(rig: &Rig, token: u64) -> &HashedReply {
    match &rig.replies[&token] {
        Reply::Hashed(page) => page,
        other => panic!("{other:?} is no page"),
    }
}

fn ask(rig: &mut Rig, n: u8, from: u64, limit: u32) -> HashedReply {
    let token = rig.ask(n, Query::Hashed(HashedQuery { from, limit }), ReadMode::Strong, None);
    rig.settle();
    page(rig, token).clone()
}

const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

fn filled(mut rig: Rig) -> Rig {
    for key in NAMES {
        rig.put(1, key, "v");
    }
    rig.beat(1);
    rig
}

/// Walks from start to end, with pages from these members in turn. Calls `meanwhile` between pages.
fn walk(rig: &mut Rig, members: &[u8], limit: u32, mut meanwhile: impl FnMut(&mut Rig, usize)) -> Vec<Bytes> {
    let (mut keys, mut from) = (Vec::new(), 0);
    for turn in 0..1000 {
        let page = ask(rig, members[turn % members.len()], from, limit);
        keys.extend(page.keys);
        if page.next == 0 {
            return keys;
        }
        assert!(page.next >= from.max(1), "the cursor never goes back");
        from = page.next;
        meanwhile(rig, turn);
    }
    panic!("the walk never ends: {keys:?}");
}

#[test]
fn any_member_goes_on_from_the_cursor_of_another() {
    let mut rig = filled(Rig::chain(&[1, 2, 3]));
    let mut expected = NAMES.map(Bytes::from);
    expected.sort_by_key(|key| position(key));
    for limit in [1, 2, 5, 12, u32::MAX] {
        assert_eq!(walk(&mut rig, &[2, 1, 3], limit, |_, _| {}), expected, "{limit} at a time");
    }
    assert_eq!(ask(&mut rig, 3, 0, 0).keys, expected[..1], "a page has at least one key");
    let behind = ask(&mut rig, 3, position(&expected[11]) + 1, 9);
    assert_eq!((behind.keys, behind.next), (Vec::new(), 0));
}

#[test]
fn keys_that_stay_are_shown_while_others_come_and_go() {
    let mut rig = filled(Rig::chain(&[1, 2, 3]));
    let found = walk(&mut rig, &[3, 2], 2, |rig, turn| {
        let (gone, new) = (["a", "b", "c", "d"][turn % 4], ["x", "y", "z"][turn % 3]);
        rig.write(1, Write::Delete { key: gone.into() });
        rig.put(1, new, "v");
    });
    let found: BTreeSet<Bytes> = found.into_iter().collect();
    assert!(NAMES[4..].iter().all(|name| found.contains(name.as_bytes())), "{found:?}");
}

/// With three positions for all keys, no page ends between keys of one position, and each cursor is a position.
#[test]
fn keys_of_one_position_stay_together() {
    let coarse = || MemoryStore::with_seed(1).with_positions(|key| u64::MAX - 2 + u64::from(key[0]) % 3, 1 << 10);
    let mut rig = filled(Rig::chain_with(&[1, 2], coarse));
    let first = ask(&mut rig, 2, 0, 1);
    assert_eq!((first.keys, first.next), (["c", "f", "i", "l"].map(Bytes::from).to_vec(), u64::MAX - 1));
    let last = ask(&mut rig, 1, u64::MAX, 1);
    assert_eq!((last.keys.len(), last.next), (4, 0));
    for limit in 1..13 {
        assert_eq!(walk(&mut rig, &[2, 1], limit, |_, _| {}).len(), 12, "{limit} at a time");
    }
}

#[test]
fn a_member_without_hash_order_says_so() {
    let slow = || MemoryStore::with_seed(1).with_positions(position, 5);
    let mut rig = filled(Rig::chain_with(&[1, 2], slow));
    for (from, next) in [(0, 1), (1, 1)] {
        let page = ask(&mut rig, 2, from, 9);
        assert_eq!((page.keys, page.next), (Vec::new(), next));
    }
    assert_eq!(ask(&mut rig, 2, 1, 9).keys.len(), 9);
    assert_eq!(walk(&mut rig, &[1], 5, |_, _| {}).len(), 12, "each member builds its own index");
}

#[test]
fn a_page_shows_no_pending_key() {
    let mut rig = filled(Rig::chain(&[1, 2, 3]));
    rig.put(1, "new", "v");
    rig.write(1, Write::Delete { key: "a".into() });
    rig.run(1, 2);
    let all = Query::Hashed(HashedQuery { from: 0, limit: 99 });
    let strong = rig.ask(2, all.clone(), ReadMode::Strong, None);
    assert!(!rig.replies.contains_key(&strong), "it must query the tail");
    let eventual = rig.ask(2, all, ReadMode::Eventual, None);
    let old = page(&rig, eventual);
    assert!(old.keys.contains(&"a".into()) && !old.keys.contains(&"new".into()) && old.clean, "{old:?}");
    rig.settle();
    let new = page(&rig, strong);
    assert!(new.keys.len() == 12 && new.way == ReadPath::Query, "{new:?}");
    assert_eq!(rig.replicas[&2].status().size.keys, 12);
}
