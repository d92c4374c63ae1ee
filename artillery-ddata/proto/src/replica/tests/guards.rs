//! Guards that matter only in unlikely orders of events. Each case runs with the guard and without it.

use super::{super::*, rig::*};
use crate::{Epoch, Version, api::*, guards::Mutant};

/// Four members and a spare. The tail has just committed an update, and no other member has learned of the commit.
fn committed_by_the_tail(mutant: Option<Mutant>) -> (Rig, u64) {
    let mut rig = Rig::new(&[1, 2, 3, 4, 5], &without(mutant));
    rig.enter(&[1, 2, 3, 4], &config(1, &[1, 2, 3, 4]));
    rig.settle();
    let put = rig.put(1, "k", "committed");
    rig.run_along(&[1, 2, 3, 4]);
    (rig, put)
}

#[test]
fn an_unopened_tail_would_answer_from_an_old_watermark() {
    let read = |mutant| {
        // Only the head learns of the commit. Then the tail is removed.
        let (mut rig, put) = committed_by_the_tail(mutant);
        rig.run(4, 1);
        rig.committed(put);
        rig.wire.clear();
        rig.enter(&[2, 3], &config(2, &[1, 2, 3]));
        let read = rig.read(2, "k", ReadMode::Strong);
        rig.beat(2);
        rig.replies.get(&read).map(|_| rig.found(read).0)
    };
    assert_eq!(read(None), None, "it waits for the head to enter");
    assert_eq!(read(Some(Mutant::AnswerBeforeOpen)), Some(None), "a committed update is missing");
}

#[test]
fn an_unopened_tail_would_promote_a_joiner_without_committed_updates() {
    let asked = |mutant| {
        let (mut rig, _) = committed_by_the_tail(mutant);
        assert_eq!(rig.watermark(4), 1, "the removed tail may have shown it to readers");
        rig.put(1, "k", "only the head has it");
        rig.wire.clear();
        rig.enter(&[1, 2, 3, 5], &joining(2, &[1, 2, 3], 5));
        rig.run(2, 1);
        // The middle learns that its history is a prefix, but gets none of the missing updates. So the epoch is not
        // open there.
        rig.transmit();
        rig.wire.get_mut(&(1, 2)).unwrap().retain(|frame| matches!(frame.message, ChainMessage::Control(_)));
        while rig.deliver(1, 2) {}
        rig.run_along(&[3, 2, 3]);
        rig.run(5, 3);
        assert_eq!(rig.last(5), Version::NONE);
        rig.promotions.clone()
    };
    assert_eq!(asked(None), []);
    assert_eq!(asked(Some(Mutant::AskBeforeOpen)), [(3, Epoch(2), 5)]);
}

#[test]
fn a_read_that_waits_on_would_be_answered_in_another_role() {
    let read = |mutant| {
        let mut rig = Rig::open(&[1, 2, 3], &without(mutant));
        rig.put(1, "k", "v");
        rig.run(1, 2);
        let read = rig.read(2, "k", ReadMode::Strong);
        rig.enter_all(&joining(2, &[1, 3], 2));
        rig.beat(2);
        rig.replies[&read].clone()
    };
    assert_eq!(read(None), Reply::Refused(Refusal::NoChain));
    assert!(matches!(read(Some(Mutant::KeepWaiting)), Reply::Read(_)));
}

#[test]
fn a_newer_epochs_watermark_would_commit_a_lost_update() {
    let written = |mutant| {
        let mut rig = Rig::open(&[1, 2, 3], &without(mutant));
        let lost = rig.put(1, "k", "no other member has it");
        // The others continue in an epoch in which member 1 is a joiner. Member 1 does not know that.
        rig.enter(&[2, 3], &joining(2, &[2, 3], 1));
        rig.wire.clear();
        rig.commit(2, "k", "another");
        rig.replies.get(&lost).cloned()
    };
    assert_eq!(written(None), None);
    assert!(matches!(written(Some(Mutant::TakeNewerEpoch)), Some(Reply::Committed(_))));
}

#[test]
fn an_answer_of_another_epoch_would_show_a_superseded_value() {
    let read = |mutant| {
        let mut rig = Rig::open(&[1, 2, 3], &without(mutant));
        let old = rig.put(1, "k", "old");
        rig.beat(2);
        // Without a lease, a member queries the tail before it serves a strong read.
        rig.input(2, ReplicaInput::Lease(Timestamp::ZERO));
        // The others make member 2 a joiner. Member 2 does not know that.
        rig.enter(&[1, 3], &joining(2, &[1, 3], 2));
        rig.beat(1);
        let new = rig.put(1, "k", "new");
        rig.beat(1);
        assert!(rig.committed(new) > rig.committed(old));
        let read = rig.read(2, "k", ReadMode::Strong);
        rig.beat(2);
        rig.replies.get(&read).map(|_| rig.found(read).0)
    };
    assert_eq!(read(None), None, "it waits until it learns of the new epoch");
    assert_eq!(read(Some(Mutant::TakeAnyAnswer)), Some(Some("old".into())), "a newer value is committed");
}
