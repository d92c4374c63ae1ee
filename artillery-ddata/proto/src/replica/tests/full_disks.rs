//! Members whose disks are full.

use super::{super::*, rig::*};
use crate::{
    api::{ReadMode, Step, Write},
    guards::Mutant,
};

fn chain(mutant: Option<Mutant>) -> Rig {
    let mut rig = Rig::open(&[1, 2, 3], &ReplicaSettings { durable: true, ..without(mutant) });
    rig.commit(1, "k", "1");
    rig
}

fn fill(rig: &mut Rig, n: u8, is_full: bool) {
    rig.replicas.get_mut(&n).unwrap().disk_is_full(is_full);
    rig.settle();
}

/// The reply to a put while this member's disk is full.
fn put_while_full(n: u8, mutant: Option<Mutant>) -> Reply {
    let mut rig = chain(mutant);
    fill(&mut rig, n, true);
    let put = rig.put(1, "k", "2");
    rig.settle();
    rig.replies[&put].clone()
}

#[test]
fn a_full_disk_refuses_what_adds() {
    for n in [1, 2, 3] {
        assert_eq!(put_while_full(n, None), Reply::Refused(Refusal::DiskFull { member: member(n) }));
    }
}

#[test]
fn a_head_that_ignores_full_disks_adds() {
    assert!(matches!(put_while_full(3, Some(Mutant::FillFullDisks)), Reply::Committed(_)));
}

#[test]
fn deletes_and_reads_go_on() {
    let mut rig = chain(None);
    fill(&mut rig, 2, true);
    let read = rig.read(3, "k", ReadMode::Strong);
    let delete = rig.write(1, Write::Delete { key: "k".into() });
    let steps = vec![Step::Delete { key: "a".into() }, Step::Put { key: "b".into(), value: "2".into() }];
    let batch = rig.write(1, Write::Batch(steps));
    rig.settle();
    assert!(matches!(rig.replies[&read], Reply::Read(_)), "{:?}", rig.replies[&read]);
    rig.committed(delete);
    assert_eq!(rig.replies[&batch], Reply::Refused(Refusal::DiskFull { member: member(2) }), "a batch that adds");
    assert_eq!(rig.last(3), rig.last(1), "nothing of what was refused is there");
}

#[test]
fn a_full_disk_is_told_again_until_it_has_room() {
    let mut rig = chain(None);
    fill(&mut rig, 3, true);
    rig.beat(20);
    let put = rig.put(1, "k", "2");
    assert_eq!(rig.replies[&put], Reply::Refused(Refusal::DiskFull { member: member(3) }));
    fill(&mut rig, 3, false);
    rig.commit(1, "k", "3");
}

#[test]
fn a_lost_word_refuses_nothing_for_ever() {
    let mut rig = chain(None);
    fill(&mut rig, 3, true);
    rig.replicas.get_mut(&3).unwrap().disk_is_full(false);
    rig.lose_frames();
    let put = rig.put(1, "k", "2");
    assert!(matches!(rig.replies[&put], Reply::Refused(_)), "the head doesn't know");
    // A version query keeps the heart beating meanwhile.
    rig.put(1, "other", "2");
    rig.beat(5);
    rig.commit(1, "k", "3");
}

#[test]
fn a_joiner_with_a_full_disk_refuses_nothing() {
    let mut rig = chain(None);
    fill(&mut rig, 3, true);
    rig.enter_all(&joining(2, &[1, 2], 3));
    rig.settle();
    rig.commit(1, "k", "2");
}
