//! Keys that end: the removals of the head, and their effect on writes and readers (docs/adr/0031-chain-time.md).

use std::time::Duration;

use super::{super::*, rig::*};
use crate::{
    Expiry,
    api::{Computed, Query, ReadMode, Step, Ttl, WatchQuery, Write},
    guards::Mutant,
    store::{Held, Store},
    types::update::{RequestKey, UpdateKind},
};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn put(key: &'static str, value: &'static str, ttl: u64) -> Write {
    Write::Put { key: key.into(), value: value.into(), ttl: Ttl::Set(ttl) }
}

fn expire(key: &'static str, ttl: Option<u64>) -> Write {
    Write::Expire { key: key.into(), ttl, when: None }
}

/// Writes at head 1, and returns the result.
fn done(rig: &mut Rig, write: Write) -> Computed {
    let token = rig.write(1, write);
    rig.settle();
    rig.computed(token).2
}

/// Lets time pass, and the head act on it.
fn pass(rig: &mut Rig, n: u8, passed: u64) {
    rig.now = rig.now + millis(passed);
    rig.input(n, ReplicaInput::Tick);
    rig.settle();
}

fn shown(rig: &Rig, n: u8, key: &str) -> Option<Held> {
    rig.local(n, key).unwrap().filter(|held| held.value.is_some())
}

fn next_tick(rig: &Rig, n: u8) -> Option<Duration> {
    rig.replicas[&n].next_tick().map(|at| at - rig.now)
}

fn kinds(rig: &Rig, n: u8) -> Vec<UpdateKind> {
    rig.replicas[&n].history().map(|update| update.kind).collect()
}

#[test]
fn the_head_removes_a_key_once_it_is_due() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    done(&mut rig, put("k", "v", 5000));
    rig.beat(1);
    assert_eq!(next_tick(&rig, 1), Some(millis(4901)));
    assert_eq!(next_tick(&rig, 2), None, "no other member removes");
    pass(&mut rig, 1, 4900);
    assert!((1..=3).all(|n| shown(&rig, n, "k").is_some()), "less than 5 s may have passed since the put");
    pass(&mut rig, 1, 1);
    assert!((1..=3).all(|n| shown(&rig, n, "k").is_none()));
    assert_eq!(kinds(&rig, 3), [UpdateKind::WRITE, UpdateKind::EXPIRE]);
    assert_eq!(next_tick(&rig, 1).filter(|&next| next > millis(100)), None, "nothing is left to remove");
}

#[test]
fn readers_see_what_their_member_holds_and_how_long_it_stays() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    done(&mut rig, put("k", "v", 5000));
    rig.now = rig.now + millis(3000);
    for (n, mode) in [(1, ReadMode::Strong), (2, ReadMode::Eventual), (3, ReadMode::ThroughChain)] {
        let read = rig.read(n, "k", mode);
        rig.settle();
        let Reply::Read(read) = &rig.replies[&read] else { panic!("no read") };
        let left = read.held.as_ref().and_then(|held| held.expires).map(|expires| expires.left(read.chain_time));
        assert_eq!(left, Some(millis(2001)));
    }
    assert_eq!(rig.gates[&2].chain_time(rig.now), 3000);
    rig.now = rig.now + millis(60_000);
    assert!(shown(&rig, 2, "k").is_some(), "no reader hides a key by a clock");
}

#[test]
fn a_renewed_key_is_removed_at_its_new_time() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    done(&mut rig, put("k", "v", 5000));
    let before = shown(&rig, 2, "k").unwrap();
    rig.now = rig.now + millis(3000);
    assert_eq!(done(&mut rig, expire("k", Some(5000))), Computed::Changed(true));
    let renewed = shown(&rig, 2, "k").unwrap();
    assert_eq!((renewed.value, renewed.expires), (before.value, Some(Expiry::at(8001))));
    assert!(renewed.version > before.version);
    pass(&mut rig, 1, 2001);
    assert!(shown(&rig, 1, "k").is_some());
    assert_eq!(next_tick(&rig, 1).map(|next| next > millis(200)), Some(true), "the timer is set again");
    pass(&mut rig, 1, 3000);
    assert!(shown(&rig, 3, "k").is_none());
    assert_eq!(done(&mut rig, expire("k", Some(5000))), Computed::Changed(false), "the key is absent");
    assert_eq!(done(&mut rig, expire("k", None)), Computed::Changed(false));
}

#[test]
fn puts_clear_the_expiry_and_other_writes_keep_it() {
    let mut rig = Rig::chain(&[1, 2]);
    let expires = |rig: &Rig| shown(rig, 2, "k").unwrap().expires.map(Expiry::chain_time);
    done(&mut rig, put("k", "1", 5000));
    done(&mut rig, Write::increment("k".into(), 1));
    done(&mut rig, Write::append("k".into(), "0".into()));
    done(&mut rig, Write::Prepend { key: "k".into(), value: "1".into(), ttl: Ttl::IfNew(1) });
    assert_eq!(expires(&rig), Some(5001));
    assert_eq!(shown(&rig, 1, "k").unwrap().value, Some("120".into()));
    done(&mut rig, Write::Put { key: "k".into(), value: "2".into(), ttl: Ttl::Keep });
    assert_eq!(expires(&rig), Some(5001));
    assert_eq!(done(&mut rig, expire("k", None)), Computed::Changed(true));
    assert_eq!(expires(&rig), None);
    done(&mut rig, put("k", "3", 700));
    done(&mut rig, Write::put("k".into(), "4".into()));
    assert_eq!(expires(&rig), None);
    let steps = vec![Step::put("k".into(), "5".into()), Step::Expire { key: "k".into(), ttl: Some(9), when: None }];
    done(&mut rig, Write::Batch(steps));
    assert_eq!(expires(&rig), Some(10));
}

#[test]
fn a_sole_member_removes_many_keys_in_steps() {
    let mut rig = Rig::chain(&[1]);
    let step = |n: u32| Step::Put { key: n.to_string().into(), value: "v".into(), ttl: Ttl::Set(1000) };
    done(&mut rig, Write::Batch((0..1500).map(step).collect()));
    pass(&mut rig, 1, 1001);
    let mut ticks = 0;
    while let Some(next) = next_tick(&rig, 1) {
        ticks += 1;
        assert!(ticks < 10 && !next.is_zero(), "{ticks}");
        pass(&mut rig, 1, next.as_millis() as u64);
    }
    assert_eq!(rig.stores[&1].size(ChainId(0)).keys, 0);
    assert_eq!(rig.stores[&1].size(ChainId(0)).expiring, 0);
    assert_eq!(kinds(&rig, 1)[1..], [UpdateKind::EXPIRE; 3]);
}

/// The result of an increment of a key that held 41 and is due.
fn increments_when_due(mutant: Option<Mutant>) -> Computed {
    let mut rig = Rig::open(&[1, 2], &without(mutant));
    done(&mut rig, put("k", "41", 1000));
    rig.now = rig.now + millis(2000);
    // The head has had no chance to remove the key before.
    done(&mut rig, Write::Increment { key: "k".into(), by: 1, ttl: Ttl::IfNew(1000) })
}

#[test]
fn a_write_meets_no_dead_value() {
    assert_eq!(increments_when_due(None), Computed::Number(1));
    assert_eq!(increments_when_due(Some(Mutant::WriteToDead)), Computed::Number(42));
}

#[test]
fn an_idle_chain_with_keys_that_expire_is_stamped() {
    let mut rig = Rig::chain(&[1, 2]);
    done(&mut rig, Write::put("other".into(), "v".into()));
    rig.beat(1);
    assert_eq!(next_tick(&rig, 1), None, "no key expires");
    done(&mut rig, put("k", "v", 60_000));
    rig.beat(1);
    assert_eq!(next_tick(&rig, 1), Some(millis(9900)));
    pass(&mut rig, 1, 9900);
    pass(&mut rig, 1, 10_000);
    assert_eq!(kinds(&rig, 2)[2..], [UpdateKind::NOOP; 2]);
    assert_eq!(rig.replicas[&2].history().next_back().unwrap().chain_time, 20_100);
}

#[test]
fn a_new_head_removes_keys_of_the_one_before() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    done(&mut rig, put("k", "v", 5000));
    rig.lose_frames();
    rig.enter(&[2, 3], &config(2, &[2, 3]));
    rig.settle_without(&[(1, 2), (2, 1), (1, 3), (3, 1)]);
    rig.beat(1);
    let next = next_tick(&rig, 2).expect("it knows the key");
    pass(&mut rig, 2, next.as_millis() as u64);
    assert!(shown(&rig, 3, "k").is_none());
}

#[test]
fn with_too_few_members_nothing_is_removed() {
    let mut rig = Rig::chain(&[1, 2]);
    done(&mut rig, put("k", "v", 1000));
    let few = Arc::new(ChainConfig { min_members: 2, ..(*config(2, &[1])).clone() });
    rig.enter(&[1], &few);
    pass(&mut rig, 1, 5000);
    assert!(shown(&rig, 1, "k").is_some());
    assert!(next_tick(&rig, 1).is_some_and(|next| !next.is_zero()), "it waits before it tries again");
}

/// The replies to a renewal and to a put while a member's disk is full.
fn renews_when_full(mutant: Option<Mutant>) -> [Reply; 2] {
    let mut rig = Rig::open(&[1, 2], &ReplicaSettings { durable: true, ..without(mutant) });
    done(&mut rig, put("k", "v", 1000));
    rig.replicas.get_mut(&2).unwrap().set_disk_full(true);
    rig.settle();
    let renewal = rig.write(1, expire("k", Some(5000)));
    let put = rig.write(1, put("k", "w", 5000));
    rig.beat(2);
    [rig.replies[&renewal].clone(), rig.replies[&put].clone()]
}

#[test]
fn full_members_let_keys_be_renewed_and_removed() {
    let refused = Reply::Refused(Refusal::DiskFull { member: member(2) });
    let [renewal, put] = renews_when_full(None);
    assert!(matches!(renewal, Reply::Committed(_)) && put == refused, "{renewal:?} {put:?}");
    assert_eq!(renews_when_full(Some(Mutant::RefuseRenewals))[0], refused);
}

#[test]
fn a_retried_put_keeps_the_time_of_its_first_attempt() {
    let mut rig = Rig::chain(&[1, 2]);
    let session = rig.session(1);
    let request = Some(RequestKey { session, number: 1, lowest: 0 });
    let first = rig.request(1, request, put("k", "v", 5000));
    rig.settle();
    let expires = shown(&rig, 1, "k").unwrap().expires;
    rig.now = rig.now + millis(3000);
    let again = rig.request(1, request, put("k", "v", 5000));
    rig.settle();
    assert_eq!(rig.committed(first), rig.committed(again));
    assert_eq!(shown(&rig, 1, "k").unwrap().expires, expires);
}

#[test]
fn a_watch_tells_expired_from_deleted_keys_and_shows_no_renewals() {
    let mut rig = Rig::chain(&[1, 2]);
    done(&mut rig, put("a", "v", 1000));
    done(&mut rig, put("b", "v", 1000));
    done(&mut rig, expire("a", Some(500)));
    done(&mut rig, Write::Delete { key: "b".into() });
    pass(&mut rig, 1, 501);
    let watch = WatchQuery { prefix: "".into(), after: Some(Sequence::ZERO), shown: 0 };
    let watch = rig.ask(2, Query::Changes(watch), ReadMode::Eventual, None);
    let Reply::Changes(changes) = &rig.replies[&watch] else { panic!("no changes") };
    let seen = |record: &crate::store::ScanRecord| {
        let held = &record.held;
        (record.key.clone(), held.value.is_some(), held.value.is_none() && held.expires.is_some())
    };
    let seen: Vec<_> = changes.records.iter().map(seen).collect();
    let expected = [("a", true, false), ("b", true, false), ("b", false, false), ("a", false, true)];
    assert_eq!(seen, expected.map(|(key, present, expired)| (key.into(), present, expired)));
}

/// A joiner whose snapshot has no record of a key: it was renewed and then deleted before that part was made.
#[test]
fn a_renewal_of_an_absent_key_is_nothing() {
    let mut rig = super::resync::part_way(2);
    let renewed = rig.write(1, expire("key/20", Some(60_000)));
    let deleted = rig.write(1, Write::Delete { key: "key/20".into() });
    rig.run(1, 2);
    rig.run(2, 1);
    rig.beat(6);
    assert_eq!(rig.computed(renewed).2, Computed::Changed(true));
    rig.committed(deleted);
    assert!(rig.status(3).resync.full > 0);
    rig.assert_alike(2, 3);
    assert_eq!(rig.stores[&3].size(ChainId(0)).expiring, 0);
}
