//! Durable members: an update is committed only when it is on every serving member's disk.

use super::{super::*, rig::*};
use crate::{
    Version,
    api::ReadMode,
    guards::Mutant,
    journal::JournalEntry,
    message::{ChainMessage, Control},
};

fn durable(mutant: Option<Mutant>) -> ReplicaSettings {
    ReplicaSettings { durable: true, ..without(mutant) }
}

fn chain(nodes: &[u8], mutant: Option<Mutant>) -> Rig {
    Rig::open(nodes, &durable(mutant))
}

fn commits_without_the_disk_of(n: u8, mutant: Option<Mutant>) -> bool {
    let mut rig = chain(&[1, 2, 3], mutant);
    rig.commit(1, "k", "1");
    rig.disk(n, false);
    let put = rig.put(1, "k", "2");
    rig.settle();
    rig.replies.contains_key(&put)
}

#[test]
fn a_write_waits_for_the_disk_of_each_member() {
    for n in [1, 2, 3] {
        assert!(!commits_without_the_disk_of(n, None), "{n}");
    }
    let mut rig = chain(&[1, 2, 3], None);
    rig.disk(2, false);
    let put = rig.put(1, "k", "1");
    rig.settle();
    assert_eq!((rig.last(3), rig.watermark(3)), (Version::new(1, 1), 0), "it is forwarded before it is durable");
    rig.disk(2, true);
    rig.settle();
    assert_eq!(rig.committed(put), Version::new(1, 1));
    assert_eq!([1, 2, 3].map(|n| rig.watermark(n)), [1; 3]);
}

#[test]
fn a_tail_that_ignores_marks_commits_what_the_head_may_lose() {
    assert!(commits_without_the_disk_of(1, Some(Mutant::IgnoreMarks)));
    assert!(!commits_without_the_disk_of(3, Some(Mutant::IgnoreMarks)));
}

#[test]
fn a_tail_that_ignores_disks_commits_what_no_disk_holds() {
    assert!(commits_without_the_disk_of(3, Some(Mutant::CommitUndurable)));
}

#[test]
fn a_lone_member_waits_for_its_disk() {
    let mut rig = chain(&[1], None);
    rig.disk(1, false);
    let put = rig.put(1, "k", "1");
    rig.settle();
    assert!(!rig.replies.contains_key(&put));
    rig.disk(1, true);
    rig.settle();
    assert_eq!(rig.committed(put), Version::new(1, 1));
}

#[test]
fn a_lost_mark_is_said_again() {
    let mut rig = chain(&[1, 2], None);
    rig.disk(1, false);
    let put = rig.put(1, "k", "1");
    rig.settle();
    rig.disk(1, true);
    rig.lose_frames();
    rig.settle();
    assert!(!rig.replies.contains_key(&put), "the mark was lost");
    rig.beat(2);
    assert_eq!(rig.committed(put), Version::new(1, 1));
}

/// Whether a cut update that becomes durable late makes the update that replaces it at the same sequence durable.
fn counts_what_was_cut(mutant: Option<Mutant>) -> bool {
    let mut rig = chain(&[1, 2, 3], mutant);
    rig.commit(1, "k", "1");
    // Member 2 gets an update that 3 never gets, and is cut off while the others continue.
    rig.disk(2, false);
    rig.put(1, "k", "lost");
    rig.run(1, 2);
    rig.transmit();
    let written = rig.disks[&2].0;
    assert_eq!(rig.last(2), Version::new(1, 2));
    rig.wire.clear();
    for n in [1, 2, 3] {
        (1..=3).filter(|&other| other != n).for_each(|other| rig.cut_link(n, other));
    }
    rig.enter(&[3, 2], &config(2, &[3, 2]));
    rig.join_link(2, 3);
    rig.put(3, "k", "2");
    rig.settle();
    assert_eq!(rig.last(2), Version::new(2, 2), "the other update is cut");
    // The pending sync completes.
    rig.input(2, ReplicaInput::Durable(written));
    rig.watermark(2) == 2
}

#[test]
fn a_cut_update_that_becomes_durable_counts_for_nothing() {
    assert!(!counts_what_was_cut(None));
}

#[test]
fn a_cut_update_that_counts_commits_the_one_in_its_place() {
    assert!(counts_what_was_cut(Some(Mutant::KeepCutMarks)));
}

/// Whether a tail accepts a mark that refers to another update.
fn takes_a_foreign_mark(mutant: Option<Mutant>) -> bool {
    let mut rig = chain(&[1, 2], mutant);
    rig.disk(1, false);
    let put = rig.put(1, "k", "1");
    rig.settle();
    let config = rig.status(1).config.unwrap();
    let message = ChainMessage::Durable(Version::new(0, 1));
    let frame = ChainFrame { chain: ChainId(0), epoch: config.epoch, index: config.index, message };
    rig.receive(1, 2, [frame]);
    rig.settle();
    rig.replies.contains_key(&put)
}

#[test]
fn a_mark_of_another_history_counts_for_nothing() {
    assert!(!takes_a_foreign_mark(None));
}

#[test]
fn a_mark_of_another_history_that_counts_commits_what_no_disk_holds() {
    assert!(takes_a_foreign_mark(Some(Mutant::TakeAnyMark)));
}

/// A write is acknowledged, and then the tail is removed before the others learn of the commit. Returns what a read at
/// the head of the new chain finds while the new tail's mark is in transit.
fn read_at_a_new_tail(mutant: Option<Mutant>) -> Option<Option<bytes::Bytes>> {
    let mut rig = chain(&[1, 2, 3], mutant);
    rig.commit(1, "k", "old");
    rig.put(1, "k", "new");
    // Member 3 commits, but members 1 and 2 do not learn of it.
    rig.settle_without(&[(3, 1), (3, 2)]);
    assert_eq!([1, 2, 3].map(|n| rig.watermark(n)), [1, 1, 2]);
    for n in [1, 2] {
        rig.cut_link(n, 3);
    }
    rig.disk(1, false);
    rig.enter(&[1, 2], &config(2, &[1, 2]));
    let is_mark = |frame: &ChainFrame| matches!(frame.message, ChainMessage::Durable(_));
    let read = rig.read(1, "k", ReadMode::Strong);
    for _ in 0..20 {
        rig.transmit();
        // The marks of the new epoch are lost.
        rig.wire.values_mut().for_each(|queue| queue.retain(|frame| !is_mark(frame)));
        rig.run(1, 2);
        rig.run(2, 1);
    }
    let found = rig.replies.contains_key(&read).then(|| rig.found(read).0);
    rig.disk(1, true);
    rig.beat(3);
    assert_eq!(rig.local(2, "k").unwrap().unwrap().value.unwrap(), "new");
    found
}

#[test]
fn a_new_tail_answers_once_its_watermark_covers_what_was_committed() {
    assert_eq!(read_at_a_new_tail(None), None);
}

#[test]
fn a_new_tail_that_answers_at_once_shows_an_older_value() {
    assert_eq!(read_at_a_new_tail(Some(Mutant::SpeakTooSoon)), Some(Some("old".into())));
}

/// A chain of 1 and 2 with data, and 3 without data. A joiner would need a snapshot.
fn resyncing() -> Rig {
    let mut rig = Rig::new(&[1, 2, 3], &ReplicaSettings { backlog: 0, ..durable(None) });
    rig.enter(&[1, 2], &config(1, &[1, 2]));
    rig.settle();
    for key in ["a", "b", "c"] {
        rig.commit(1, key, "value");
    }
    rig
}

#[test]
fn a_joiner_counts_once_a_checkpoint_of_its_resync_is_durable() {
    let mut rig = resyncing();
    rig.settle();
    rig.disk(3, false);
    rig.enter_all(&joining(2, &[1, 2], 3));
    rig.beat(3);
    assert_eq!((rig.last(3), rig.promotions.len()), (Version::new(1, 3), 0), "every update, but not on its disk");
    assert!(rig.journals[&3].contains(&JournalEntry::NotWhole { chain: ChainId(0) }));
    rig.disk(3, true);
    rig.beat(2);
    assert!(!rig.promotions.is_empty());
    rig.enter_all(&config(3, &[1, 2, 3]));
    rig.settle();
    rig.commit(1, "d", "value");
    assert_eq!([1, 2, 3].map(|n| rig.watermark(n)), [4; 3]);
}

#[test]
fn a_member_reports_how_long_its_own_disk_takes() {
    let mut rig = chain(&[1, 2, 3], None);
    rig.commit(1, "k", "1");
    rig.disk(2, false);
    rig.put(1, "k", "2");
    rig.settle();
    rig.heartbeat();
    rig.settle();
    let waits = |n: u8| rig.replicas[&n].progress().report(ChainId(0), rig.now).unwrap().disk.waits;
    assert_eq!([1, 3].map(waits), [None, None]);
    assert!(waits(2).is_some_and(|(at, age)| at == Sequence(2) && !age.is_zero()), "{:?}", waits(2));
}

#[test]
fn an_idle_chain_writes_its_watermark() {
    let mut rig = chain(&[1, 2], None);
    rig.commit(1, "k", "1");
    rig.beat(3);
    for n in [1, 2] {
        let written = JournalEntry::Watermark { chain: ChainId(0), watermark: Sequence(1) };
        assert!(rig.journals[&n].contains(&written), "{n}: {:?}", rig.journals[&n]);
        assert!(rig.replicas[&n].next_tick().is_none(), "then it has no timer");
    }
}

#[test]
fn a_member_in_memory_writes_nothing_and_says_no_mark() {
    let mut rig = Rig::chain(&[1, 2]);
    rig.put(1, "k", "1");
    rig.transmit();
    assert!(rig.journals.is_empty());
    assert!(rig.wire.values().flatten().all(|frame| !matches!(frame.message, ChainMessage::Durable(_))));
}

/// An idle chain of 1, 2 and 3, and a configuration in which 3 is the joiner behind the others.
fn idle_before_a_joiner() -> (Rig, Arc<ChainConfig>) {
    let mut rig = chain(&[1, 2, 3], None);
    rig.commit(1, "k", "1");
    rig.beat(3);
    (rig, joining(2, &[1, 2], 3))
}

#[test]
fn a_mark_that_a_joiner_said_too_early_is_asked_for() {
    let (mut rig, next) = idle_before_a_joiner();
    rig.enter(&[3], &next);
    rig.run(3, 2);
    rig.enter(&[1, 2], &next);
    rig.beat(5);
    assert!(!rig.promotions.is_empty());
}

#[test]
fn a_lost_mark_of_a_joiner_is_asked_for() {
    let (mut rig, next) = idle_before_a_joiner();
    rig.enter_all(&next);
    for _ in 0..5 {
        rig.transmit();
        let is_mark = |frame: &ChainFrame| matches!(frame.message, ChainMessage::Durable(_));
        rig.wire.get_mut(&(3, 2)).unwrap().retain(|frame| !is_mark(frame));
        rig.run_others(0, 0);
    }
    rig.beat(5);
    assert!(!rig.promotions.is_empty());
}

#[test]
fn writes_go_on_while_a_joiner_writes_its_checkpoint() {
    let mut rig = resyncing();
    rig.settle();
    rig.disk(3, false);
    rig.enter_all(&joining(2, &[1, 2], 3));
    rig.beat(5);
    let put = rig.put(1, "d", "value");
    rig.beat(5);
    assert!(rig.replies.contains_key(&put));
}

/// The joiner 3 reports that update 2 of epoch 1 is on its disk. Then the tail cuts that update, and update 2 of epoch
/// 2 replaces it. Returns whether the tail commits the replacement although the joiner's disk does not have it.
fn counts_what_the_joiner_lacks(mutant: Option<Mutant>) -> bool {
    let mut rig = chain(&[1, 2, 3, 4], mutant);
    rig.commit(1, "k", "1");
    rig.beat(3);
    rig.put(1, "k", "lost");
    rig.settle_without(&[(3, 4)]);
    assert_eq!([1, 2, 3, 4].map(|n| rig.last(n).sequence.0), [2, 2, 2, 1]);
    for n in 1..=4 {
        (n + 1..=4).for_each(|other| rig.cut_link(n, other));
    }
    rig.enter(&[2, 3, 4], &joining(2, &[4, 2], 3));
    rig.join_link(2, 3);
    rig.run(3, 2);
    rig.disk(3, false);
    rig.join_link(2, 4);
    rig.put(4, "k", "2");
    rig.beat(5);
    assert_eq!((rig.last(2), rig.last(3)), (Version::new(2, 2), Version::new(2, 2)));
    assert_eq!(rig.replicas[&3].log.durable(), Some(Sequence(1)));
    let counted = rig.replicas[&2].peers.held_by(&rig.replicas[&2].log, member(3)) >= Sequence(2);
    assert_eq!(counted, mutant.is_some());
    rig.watermark(2) == 2 && rig.promotions.iter().any(|&(tail, epoch, joiner)| (tail, epoch.0, joiner) == (2, 2, 3))
}

#[test]
fn a_mark_of_what_was_cut_here_counts_for_nothing() {
    assert!(!counts_what_the_joiner_lacks(None));
}

#[test]
fn a_mark_that_outlives_a_cut_commits_what_the_joiner_lacks() {
    assert!(counts_what_the_joiner_lacks(Some(Mutant::KeepHeardMarks)));
}

#[test]
fn marks_do_not_wait_behind_updates() {
    let mut rig = chain(&[1, 2], None);
    (rig.frames, rig.room) = (1, 1);
    for _ in 0..100 {
        rig.put(1, "k", "1");
    }
    for _ in 0..60 {
        rig.transmit();
        rig.deliver(1, 2);
        rig.deliver(1, 2);
        rig.deliver(2, 1);
    }
    assert!(rig.watermark(2) > 10 && rig.last(2).sequence.0 < 100, "{} of {}", rig.watermark(2), rig.last(2));
}

#[test]
fn a_joiner_gets_no_marks_beside_its_snapshot() {
    let mut rig = resyncing();
    (rig.frames, rig.room) = (1, 1);
    rig.enter_all(&joining(2, &[1, 2], 3));
    let (mut updates, mut marks) = (0, 0);
    for n in 0..40 {
        if n % 4 == 0 {
            rig.put(1, "d", "value");
        }
        rig.transmit();
        if rig.replicas[&2].source.is_sending() {
            updates += rig.updates(2, 3).len();
            marks += rig.on_link(2, 3, |message| matches!(message, ChainMessage::Durable(_)).then_some(())).len();
        }
        rig.run_others(0, 0);
    }
    assert!(updates > 0 && marks == 0, "{updates} updates, {marks} marks");
    rig.beat(5);
    assert!(!rig.promotions.is_empty(), "marks follow the snapshot");
}

#[test]
fn a_halted_tail_commits_nothing() {
    let mut rig = chain(&[1, 2], None);
    rig.disk(2, false);
    rig.put(1, "k", "1");
    rig.settle();
    rig.replicas.get_mut(&2).unwrap().halt(Halt::NotWhole);
    rig.disk(2, true);
    rig.settle();
    assert_eq!(rig.watermark(2), 0);
}

const WINDOW: usize = 64 << 10;

/// A joiner whose disk accepts no writes while the chain continues, and the number of bytes waiting for that disk.
fn clogged(mutant: Option<Mutant>) -> (Rig, usize) {
    let (backlog, joiner_buffer) = (WINDOW, WINDOW / 2);
    let settings = ReplicaSettings { window: WINDOW, backlog, joiner_buffer, close_behind: 1 << 10, ..durable(mutant) };
    let mut rig = Rig::new(&[1, 2], &settings);
    rig.enter_all(&config(1, &[1]));
    rig.settle();
    let put = |rig: &mut Rig| {
        let put = rig.write(1, crate::api::Write::put("k".into(), vec![7; 1000].into()));
        rig.settle();
        rig.committed(put);
    };
    (0..10).for_each(|_| put(&mut rig));
    rig.unwritten.insert(2);
    rig.enter_all(&joining(2, &[1], 2));
    rig.beat(5);
    (0..1000).for_each(|_| put(&mut rig));
    let bytes = rig.replicas[&2].log.journal().unwrap().queued();
    (rig, bytes)
}

#[test]
fn a_joiner_whose_disk_takes_nothing_keeps_a_bounded_queue() {
    let (mut rig, bytes) = clogged(None);
    assert!(bytes < 2 * WINDOW, "{bytes} bytes wait for the joiner's disk, the window is {WINDOW}");
    rig.unwritten.clear();
    rig.beat(40);
    assert_eq!(rig.last(2), rig.last(1), "it follows once its disk has caught up");
}

#[test]
fn a_joiner_that_queues_all_has_no_bound() {
    assert!(clogged(Some(Mutant::QueueAll)).1 > 10 * WINDOW);
}

/// Whether a member halts when a joiner arrives with a watermark that covers updates abandoned by an operator; before or
/// after the member's own history is known to be a prefix.
fn believes_a_joiner(mutant: Option<Mutant>, before: bool) -> bool {
    let mut rig = chain(&[1, 2, 3], mutant);
    rig.enter_all(&joining(2, &[1, 2], 3));
    if !before {
        rig.settle();
    }
    let config = rig.status(3).config.unwrap();
    let control = Control { watermark: Sequence(445), ..Control::default() };
    let frame = ChainFrame {
        chain: ChainId(0),
        epoch: config.epoch,
        index: config.index,
        message: ChainMessage::Control(control),
    };
    rig.receive(3, 2, Some(frame));
    rig.settle();
    rig.status(2).halted.is_some()
}

#[test]
fn a_joiner_is_not_believed_what_is_committed() {
    assert!(!believes_a_joiner(None, false));
    assert!(!believes_a_joiner(None, true));
}

#[test]
fn a_joiner_that_is_believed_halts_a_member() {
    assert!(believes_a_joiner(Some(Mutant::LearnFromJoiners), false));
    assert!(believes_a_joiner(Some(Mutant::LearnFromJoiners), true));
}
