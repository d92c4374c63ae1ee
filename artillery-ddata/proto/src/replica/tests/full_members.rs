//! Members that run out of space on their disks or in memory.

use super::{super::*, rig::*};
use crate::{
    api::{ReadMode, Step, Write},
    guards::Mutant,
    message::Fullness,
};

/// Bytes of keys and values that members may hold if memory is bounded.
const MOST: u64 = 20;

fn chain(mutant: Option<Mutant>) -> Rig {
    let mut rig = Rig::open(&[1, 2, 3], &ReplicaSettings { durable: true, ..without(mutant) });
    rig.commit(1, "k", "1");
    rig
}

fn fill(rig: &mut Rig, n: u8, is_full: bool) {
    rig.replicas.get_mut(&n).unwrap().set_disk_full(is_full);
    rig.settle();
}

/// A chain in memory in which this member may hold [`MOST`] bytes.
fn bounded(n: u8, mutant: Option<Mutant>) -> Rig {
    let mut rig = Rig::open(&[1, 2, 3], &without(mutant));
    rig.replicas.get_mut(&n).unwrap().membership.settings_mut().max_memory = Some(MOST);
    rig.commit(1, "k", "1");
    rig
}

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
fn a_head_that_ignores_full_members_adds() {
    assert!(matches!(put_while_full(3, Some(Mutant::FillFullDisks)), Reply::Committed(_)));
    let mut rig = bounded(3, Some(Mutant::FillFullDisks));
    rig.commit(1, "more", "0123456789abcdef");
    rig.commit(1, "another", "0123456789abcdef");
}

#[test]
fn full_memory_refuses_what_adds_until_deletes_made_room() {
    for n in [1, 2, 3] {
        let mut rig = bounded(n, None);
        rig.commit(1, "more", "0123456789abcdef");
        assert_eq!(rig.replicas[&n].status().full, Fullness::Memory);
        let put = rig.put(1, "k", "2");
        let batch = rig.write(1, Write::Batch(vec![Step::Delete { key: "k".into() }, put_step("b")]));
        let read = rig.read(n, "more", ReadMode::Strong);
        rig.settle();
        for token in [put, batch] {
            assert_eq!(rig.replies[&token], Reply::Refused(Refusal::MemoryFull { member: member(n) }));
        }
        assert!(matches!(rig.replies[&read], Reply::Read(_)), "{:?}", rig.replies[&read]);
        let delete = rig.write(1, Write::Delete { key: "more".into() });
        rig.settle();
        rig.committed(delete);
        rig.settle();
        assert_eq!(rig.replicas[&n].status().full, Fullness::Nothing);
        rig.commit(1, "k", "3");
    }
}

#[test]
fn a_member_without_a_bound_says_nothing_of_its_memory() {
    let mut rig = Rig::open(&[1, 2, 3], &without(None));
    rig.commit(1, "more", "0123456789abcdef");
    for n in [2, 3] {
        let Replica { membership, log, peers, .. } = rig.replicas.get_mut(&n).unwrap();
        assert_eq!(peers.poll_full(membership.at(rig.now), log, member(1)), None);
    }
}

#[test]
fn deletes_and_reads_go_on() {
    let mut rig = chain(None);
    fill(&mut rig, 2, true);
    let read = rig.read(3, "k", ReadMode::Strong);
    let delete = rig.write(1, Write::Delete { key: "k".into() });
    let batch = rig.write(1, Write::Batch(vec![Step::Delete { key: "a".into() }, put_step("b")]));
    rig.settle();
    assert!(matches!(rig.replies[&read], Reply::Read(_)), "{:?}", rig.replies[&read]);
    rig.committed(delete);
    assert_eq!(rig.replies[&batch], Reply::Refused(Refusal::DiskFull { member: member(2) }), "a batch that adds data");
    assert_eq!(rig.last(3), rig.last(1), "no refused write was applied");
}

fn put_step(key: &'static str) -> Step {
    Step::put(key.into(), "2".into())
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
fn of_two_full_members_the_other_one_counts_still() {
    let mut rig = chain(None);
    fill(&mut rig, 3, true);
    fill(&mut rig, 2, true);
    fill(&mut rig, 2, false);
    let put = rig.put(1, "k", "2");
    assert_eq!(rig.replies[&put], Reply::Refused(Refusal::DiskFull { member: member(3) }));
}

#[test]
fn a_lost_word_refuses_nothing_for_ever() {
    let mut rig = chain(None);
    fill(&mut rig, 3, true);
    rig.replicas.get_mut(&3).unwrap().set_disk_full(false);
    rig.lose_frames();
    let put = rig.put(1, "k", "2");
    assert!(matches!(rig.replies[&put], Reply::Refused(_)), "the head doesn't know");
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

/// An incomplete checkpoint would use the space of other chains and free nothing.
#[test]
fn a_joiner_begins_its_checkpoint_when_it_is_told_to() {
    let mut rig = chain(None);
    rig.commit(1, "k", "2");
    rig.disk(1, false);
    rig.put(1, "k", "3");
    rig.settle();
    let mut replica = rig.replicas.remove(&3).unwrap();
    assert!(replica.log.last().sequence > replica.log.watermark(), "an update is pending");
    let begun = |replica: &Replica| replica.log.journal().unwrap().checkpoints();
    let before = begun(&replica);
    replica.log.journal_mut().unwrap().not_whole();
    replica.log.await_checkpoint();
    let batch = replica.poll_journal(1 << 20).unwrap();
    assert!(batch.awaits && batch.data > 0, "the journal learns the space needed");
    assert_eq!(replica.log.journal().unwrap().newest(), replica.log.last(), "the next update follows it");
    assert_eq!(begun(&replica), before);
    replica.begin_checkpoint();
    let batches: Vec<_> = std::iter::from_fn(|| replica.poll_journal(1 << 20)).collect();
    assert!(begun(&replica) == before + 1 && batches.iter().all(|batch| !batch.awaits));
    replica.durable(Timestamp::ZERO, batches.last().unwrap().upto);
    assert_eq!(replica.log.durable(), Some(replica.log.last().sequence), "the pending update is durable too");
}
