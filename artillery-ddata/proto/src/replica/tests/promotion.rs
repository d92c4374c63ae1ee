//! The joiner becomes the tail.

use std::time::Duration;

use super::{super::*, rig::*};
use crate::{Epoch, Version, api::*};

/// A chain of 1 and 2 with one update, and 3 as its joiner. No frame has been sent in epoch 2.
fn joined(settings: &ReplicaSettings) -> Rig {
    let mut rig = Rig::new(&[1, 2, 3], settings);
    rig.enter(&[1, 2], &config(1, &[1, 2]));
    rig.put(1, "k", "1");
    rig.beat(1);
    rig.enter_all(&joining(2, &[1, 2], 3));
    rig
}

#[test]
fn a_tail_asks_until_the_epoch_ends() {
    let mut rig = joined(&ReplicaSettings::default());
    rig.settle();
    assert_eq!(rig.promotions, [(2, Epoch(2), 3)]);
    rig.beat(2);
    assert_eq!(rig.promotions, [(2, Epoch(2), 3); 3], "one with each heartbeat");
    rig.enter_all(&config(3, &[1, 2, 3]));
    rig.beat(2);
    assert_eq!(rig.promotions.len(), 3);
    assert_eq!(rig.commit(1, "k", "2"), Version::new(3, 2));
    assert_eq!(rig.local(3, "k").unwrap().unwrap().value.unwrap(), "2");
}

#[test]
fn a_joiner_far_behind_is_not_promoted() {
    let mut rig = joined(&ReplicaSettings { close_behind: 150, backlog: 1 << 20, ..ReplicaSettings::default() });
    for _ in 0..3 {
        rig.put(1, "k", "more");
    }
    rig.settle_without(&[(2, 3), (3, 2)]);
    // The joiner reports its position, but gets no updates yet.
    rig.settle_without(&[(2, 3)]);
    assert_eq!((rig.watermark(2), rig.promotions.len()), (4, 0), "it commits without the joiner");
    rig.settle();
    assert_eq!(rig.promotions.len(), 1);
}

#[test]
fn a_joiner_needs_earlier_commits_before_promotion() {
    let mut rig = joined(&ReplicaSettings::default());
    rig.run(3, 2);
    let put = rig.put(1, "k", "2");
    rig.settle_without(&[(2, 3)]);
    assert_eq!(rig.promotions.len(), 0, "close, but the joiner is missing the first update, a committed one");
    assert!(!rig.replies.contains_key(&put), "from now on the joiner is treated as the tail");
    assert_eq!(rig.watermark(2), 1);
    rig.settle();
    assert_eq!(rig.promotions.len(), 1);
    assert_eq!(rig.committed(put), Version::new(2, 2));
}

#[test]
fn a_broken_link_does_not_end_the_wait_for_the_joiner() {
    let mut rig = joined(&ReplicaSettings::default());
    rig.settle();
    rig.cut_link(2, 3);
    let put = rig.put(1, "k", "2");
    let through = rig.read(1, "k", ReadMode::ThroughChain);
    rig.beat(3);
    assert!(!rig.replies.contains_key(&put) && !rig.replies.contains_key(&through));
    assert_eq!(rig.watermark(2), 1);
    rig.join_link(2, 3);
    rig.beat(1);
    assert_eq!(rig.committed(put), Version::new(2, 2));
    assert_eq!(rig.found(through).2, ReadPath::Chain);
}

#[test]
fn a_dead_joiner_is_dropped_by_a_configuration() {
    let mut rig = joined(&ReplicaSettings::default());
    rig.settle();
    rig.cut_link(2, 3);
    let put = rig.put(1, "k", "2");
    rig.beat(2);
    rig.input(3, ReplicaInput::Expelled(Epoch(3)));
    rig.enter(&[1, 2], &config(3, &[1, 2]));
    rig.beat(1);
    assert_eq!(rig.committed(put), Version::new(2, 2));
}

#[test]
fn a_sole_member_that_asked_reads_nothing_through_the_chain_alone() {
    let mut rig = Rig::new(&[1, 2], &ReplicaSettings::default());
    rig.enter(&[1], &config(1, &[1]));
    rig.put(1, "k", "v");
    rig.enter_all(&joining(2, &[1], 2));
    rig.settle();
    assert_eq!(rig.promotions, [(1, Epoch(2), 2)]);
    rig.cut_link(1, 2);
    let through = rig.read(1, "k", ReadMode::ThroughChain);
    rig.beat(2);
    assert!(!rig.replies.contains_key(&through), "the joiner may be the tail by now");
}

#[test]
fn an_unopened_tail_sends_its_joiner_no_updates() {
    let mut rig = Rig::new(&[1, 2, 3], &ReplicaSettings::default());
    rig.enter(&[1, 2], &config(1, &[1, 2]));
    rig.put(1, "k", "1");
    rig.beat(1);
    rig.enter(&[2, 3], &joining(2, &[1, 2], 3));
    rig.beat(3);
    assert_eq!(rig.last(3), Version::NONE, "it does not know yet whether its history is a prefix of the head's");
    assert_eq!(rig.promotions, []);
    rig.enter(&[1], &joining(2, &[1, 2], 3));
    rig.beat(3);
    assert!(!rig.promotions.is_empty());
}

#[test]
fn lost_acknowledgements_are_asked_for() {
    let settings = ReplicaSettings { resend: Some(Duration::from_millis(200)), ..ReplicaSettings::default() };
    let mut rig = joined(&settings);
    rig.settle();
    let put = rig.put(1, "k", "2");
    rig.settle_without(&[(3, 2)]);
    rig.wire.clear();
    rig.beat(6);
    rig.committed(put);
}
