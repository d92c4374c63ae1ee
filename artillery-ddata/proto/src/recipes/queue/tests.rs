use std::time::Duration;

use super::*;
use crate::{
    api::ReadPath,
    guards::Mutant,
    store::{Held, ScanRecord},
};

const PREFIX: Bytes = Bytes::from_static(b"lock/{jobs}/");

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

fn contender(guards: Guards) -> Contender {
    let lease = KeyLease::new(Duration::from_secs(10), 10_000, guards);
    Contender::new(PREFIX, "me".into(), lease, guards)
}

fn version(sequence: u64) -> Version {
    Version::new(1, sequence)
}

fn page(sequences: &[u64], as_of: u64, is_last: bool) -> ScanReply {
    let record = |&sequence: &u64| ScanRecord {
        key: sequential_key(&PREFIX, version(sequence)),
        held: Held::new(version(sequence + 100), Some("it".into())),
    };
    let records: Vec<_> = sequences.iter().map(record).collect();
    let next = records.last().map(|record| record.key.clone()).filter(|_| !is_last);
    let (clean, way, as_of) = (true, ReadPath::Local, Sequence(as_of));
    ScanReply { records, next, clean, way, as_of, snapshot: None, chain_time: 0 }
}

fn deleted(sequence: u64, upto: u64) -> WatchReply {
    let held = Held::new(version(upto), None);
    let record = ScanRecord { key: sequential_key(&PREFIX, version(sequence)), held };
    WatchReply { records: vec![record], upto: Sequence(upto), shown: 0 }
}

/// A contender that waits behind 5 with its own key 7.
fn waiting(guards: Guards) -> Contender {
    let mut me = contender(guards);
    assert!(matches!(me.next(at(0)), QueueStep::Place(Write::PutSequential { ttl: Ttl::Set(10_000), .. })));
    me.placed(version(7), at(0), at(5));
    assert!(matches!(me.next(at(5)), QueueStep::Ask(Query::Scan(_), ReadMode::Strong)));
    me.looked(&page(&[3], 8, false));
    me.looked(&page(&[5, 7, 9], 12, true));
    me
}

fn watched(me: &mut Contender, now: u64) -> WatchQuery {
    match me.next(at(now)) {
        QueueStep::Ask(Query::Changes(query), ReadMode::Eventual) => query,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_waiter_watches_its_predecessor_from_its_first_page_on() {
    let mut me = waiting(Guards::ALL);
    let query = watched(&mut me, 10);
    assert_eq!((query.prefix, query.after), (sequential_key(&PREFIX, version(5)), Some(Sequence(8))));
    me.changed(&WatchReply { records: Vec::new(), upto: Sequence(20), shown: 0 });
    assert_eq!(watched(&mut me, 10).after, Some(Sequence(20)));
    me.changed(&deleted(5, 30));
    assert!(matches!(me.next(at(10)), QueueStep::Ask(Query::Scan(_), _)), "3 may still be in the queue");
    me.looked(&page(&[3, 7], 31, true));
    assert_eq!(watched(&mut me, 10).prefix, sequential_key(&PREFIX, version(3)));
    me.changed(&deleted(3, 40));
    me.looked(&page(&[7, 9], 41, true));
    assert_eq!(me.next(at(11)), QueueStep::Hold(version(7)));
    assert!(me.is_held(at(9_899)) && !me.is_held(at(9_900)));
    assert_eq!(me.next(at(9_900)), QueueStep::Lost);
    me.renewed(version(7), Renewal::Renewed, at(9_000), at(9_901));
    assert_eq!(me.next(at(9_902)), QueueStep::Lost, "a holder that has lost the lock never gets it back");
}

#[test]
fn a_watch_that_begins_with_the_next_change_misses_the_end_of_the_predecessor() {
    let mut me = waiting(Guards::without(Mutant::WatchFromNow));
    assert_eq!(watched(&mut me, 10).after, None);
}

#[test]
fn a_waiter_that_lets_a_dead_one_pass_it_holds_beside_the_holder() {
    let mut me = waiting(Guards::without(Mutant::PassDeadWaiter));
    me.changed(&deleted(5, 30));
    assert_eq!(me.next(at(10)), QueueStep::Hold(version(7)), "3 still holds");
}

#[test]
fn a_paused_waiter_confirms_its_key_before_it_holds() {
    let mut me = waiting(Guards::ALL);
    me.changed(&deleted(5, 30));
    me.looked(&page(&[7], 31, true));
    assert_eq!(me.next(at(20_000)), QueueStep::Confirm);
    let mut present = me.clone();
    present.renewed(version(7), Renewal::Renewed, at(20_000), at(20_010));
    assert_eq!(present.next(at(20_010)), QueueStep::Hold(version(7)));
    me.renewed(version(7), Renewal::Unknown, at(20_000), at(20_010));
    assert_eq!(me.next(at(20_010)), QueueStep::Confirm);
    me.renewed(version(7), Renewal::Gone, at(20_020), at(20_030));
    assert!(matches!(me.next(at(20_030)), QueueStep::Place(_)));
    me.placed(version(50), at(20_030), at(20_040));
    me.renewed(version(7), Renewal::Gone, at(20_030), at(20_050));
    assert_eq!(me.version(), Some(version(50)), "the renewal was of its former key");

    let mut trusting = waiting(Guards::without(Mutant::TrustWakeUp));
    trusting.changed(&deleted(5, 30));
    trusting.looked(&page(&[7], 31, true));
    assert_eq!(trusting.next(at(20_000)), QueueStep::Hold(version(7)));
}

#[test]
fn a_look_without_its_own_key_puts_another_one() {
    for rest in [&[3, 5, 9][..], &[3, 5], &[]] {
        let mut me = contender(Guards::ALL);
        me.placed(version(7), at(0), at(5));
        me.looked(&page(rest, 12, true));
        assert!(matches!(me.next(at(6)), QueueStep::Place(_)), "{rest:?}");
    }
}

#[test]
fn a_watch_that_fell_behind_looks_again() {
    let mut me = waiting(Guards::ALL);
    me.look_again();
    assert!(matches!(me.next(at(10)), QueueStep::Ask(Query::Scan(ScanQuery { after: None, .. }), _)));
}

#[test]
fn a_holder_whose_key_is_gone_has_lost_it() {
    let mut me = contender(Guards::ALL);
    me.placed(version(7), at(0), at(5));
    me.looked(&page(&[7], 12, true));
    assert_eq!(me.next(at(6)), QueueStep::Hold(version(7)));
    me.renewed(version(7), Renewal::Unknown, at(3_000), at(3_100));
    assert_eq!(me.lease().until(), at(9_900));
    me.renewed(version(7), Renewal::Gone, at(3_000), at(3_100));
    assert!(!me.is_held(at(3_100)));
    assert_eq!(me.next(at(3_100)), QueueStep::Lost);

    let guards = Guards::without(Mutant::TrustUnknownRenewal);
    let mut trusting = contender(guards);
    trusting.placed(version(7), at(0), at(5));
    trusting.renewed(version(7), Renewal::Unknown, at(3_000), at(3_100));
    assert_eq!(trusting.lease().until(), at(12_900));
}
