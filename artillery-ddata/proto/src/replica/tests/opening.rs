//! The start of an epoch.

use super::{super::*, rig::*};
use crate::{
    Epoch, Version,
    api::*,
    message::{Control, Position, Truncate},
};

#[test]
fn an_epoch_opens_from_head_to_tail() {
    let mut rig = Rig::new(&[1, 2, 3], &ReplicaSettings::default());
    rig.enter(&[1], &config(1, &[1, 2, 3]));
    assert!(rig.is_open(1) && !rig.is_open(2));
    rig.settle();
    assert!(!rig.is_open(2), "member 2 has not entered");
    rig.enter(&[2], &config(1, &[1, 2, 3]));
    rig.beat(1);
    assert!(rig.is_open(2) && !rig.is_open(3));
    rig.enter(&[3], &config(1, &[1, 2, 3]));
    rig.beat(1);
    assert!(rig.is_open(3));
    let opened: Vec<_> =
        rig.events.iter().filter(|(_, event)| *event == ReplicaEvent::Opened(Epoch(1))).map(|e| e.0).collect();
    assert_eq!(opened, [1, 2, 3]);
}

#[test]
fn an_unopened_tail_neither_commits_nor_answers() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.put(1, "k", "v");
    rig.run(1, 2);
    rig.enter(&[1, 2], &config(2, &[1, 2]));
    rig.wire.clear();
    let (at_head, at_tail) = (rig.read(1, "k", ReadMode::Strong), rig.read(2, "k", ReadMode::Strong));
    rig.transmit();
    for frame in rig.wire.get_mut(&(1, 2)).unwrap() {
        if let ChainMessage::Control(control) = &mut frame.message {
            control.open = None;
        }
    }
    while rig.deliver(1, 2) {}
    rig.run(2, 1);
    assert!(!rig.is_open(2));
    assert_eq!(rig.watermark(2), 0);
    assert!(!rig.replies.contains_key(&at_head), "no query is answered (trap 23)");
    assert!(!rig.replies.contains_key(&at_tail));
    rig.heartbeat();
    rig.beat(1);
    for get in [at_head, at_tail] {
        assert_eq!(rig.found(get).0, Some("v".into()));
    }
}

#[test]
fn an_opened_tail_first_commits_what_it_held() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.put(1, "k", "v");
    rig.run(1, 2);
    // The tail is removed. The middle, which holds more than was committed, becomes the tail.
    assert_eq!((rig.watermark(2), rig.last(2)), (0, Version::new(1, 1)));
    rig.enter(&[1, 2], &config(2, &[1, 2]));
    assert_eq!(rig.watermark(2), 0, "nothing is committed before it is open");
    rig.settle();
    assert_eq!((rig.watermark(2), rig.watermark(1)), (1, 1));
    assert_eq!(rig.committed(1), Version::new(1, 1));
}

#[test]
fn sequences_go_on_in_the_next_epoch() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.commit(1, "k", "1");
    rig.enter(&[2, 3], &config(2, &[2, 3]));
    rig.settle();
    assert_eq!(rig.commit(2, "k", "2"), Version::new(2, 2));
}

#[test]
fn a_successor_drops_what_its_new_predecessor_never_had() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.commit(1, "k", "1");
    let lost = rig.put(1, "k", "lost");
    // The old head has an update that no other member has. It returns as the joiner.
    rig.enter(&[2, 3], &config(2, &[2, 3]));
    rig.settle();
    rig.commit(2, "k", "kept");
    rig.wire.clear();
    rig.enter_all(&joining(3, &[2, 3], 1));
    rig.beat(2);
    assert_eq!(rig.replies[&lost], Reply::Expired, "the outcome of its update is unknown");
    assert_eq!(rig.last(1), Version::new(2, 2));
    let held = rig.stores[&1].read(ChainId(0), b"k", Sequence::MAX).unwrap().unwrap();
    assert_eq!(held.value.unwrap(), "kept");
    assert_eq!(rig.local(1, "k"), Err(NotLocal::NotHere), "a syncing member doesn't serve");
    assert!(!rig.events.iter().any(|(_, event)| matches!(event, ReplicaEvent::Halted(_))), "{:?}", rig.events);
}

#[test]
fn a_committed_update_is_never_dropped() {
    let mut rig = Rig::chain(&[1, 2]);
    rig.put(1, "k", "1");
    rig.beat(1);
    rig.enter(&[2], &config(2, &[1, 2]));
    // The cut that a predecessor without this history would request. No rule permits it.
    let cut = Truncate { said: Version::new(1, 1), keep: Version::NONE };
    let message = ChainMessage::Control(Control { cut: Some(cut), ..Control::default() });
    let frame = ChainFrame { chain: ChainId(0), epoch: Epoch(2), index: 2, message };
    rig.input(2, ReplicaInput::Receive { from: member(1), frame });
    let halted = Halt::DropCommitted { to: Sequence(0), watermark: Sequence(1) };
    assert!(rig.events.contains(&(2, ReplicaEvent::Halted(halted))), "{:?}", rig.events);
}

#[test]
fn older_and_foreign_configurations_are_ignored() {
    let mut rig = Rig::chain(&[1, 2]);
    rig.enter(&[1], &config(1, &[2, 1]));
    rig.enter(&[1], &config(5, &[2]));
    let mut other_chain = (*config(7, &[1, 2])).clone();
    other_chain.chain = ChainId(1);
    rig.input(1, ReplicaInput::Enter(Arc::new(other_chain)));
    assert_eq!(rig.replicas[&1].status().config.unwrap().epoch, Epoch(1));
}

#[test]
fn a_watermark_above_the_history_of_a_serving_member_halts_it() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.put(1, "k", "1");
    rig.run(1, 2);
    rig.transmit();
    let mut frame = rig.wire[&(2, 3)].back().unwrap().clone();
    frame.message = ChainMessage::Control(Control { watermark: Sequence(9), ..Control::default() });
    rig.input(3, ReplicaInput::Receive { from: member(2), frame });
    let halted = Halt::WatermarkAhead { watermark: Sequence(9), last: Sequence(0) };
    assert!(rig.events.contains(&(3, ReplicaEvent::Halted(halted))));
}

/// On links that reorder frames, the position that a member reports may be older than the backlog.
#[test]
fn an_old_position_of_a_serving_member_is_ignored() {
    let mut rig = Rig::new(&[1, 2], &ReplicaSettings { backlog: 300, ..ReplicaSettings::default() });
    rig.enter_all(&config(1, &[1, 2]));
    rig.put(1, "k", "v");
    rig.transmit();
    let position = Position { last: Version::NONE, epochs: vec![] };
    let stale = Control { resume: Some(position), ..Control::default() };
    rig.settle();
    for _ in 0..20 {
        rig.commit(1, "k", "v");
    }
    let frame = ChainFrame { chain: ChainId(0), epoch: Epoch(1), index: 1, message: ChainMessage::Control(stale) };
    rig.input(1, ReplicaInput::Receive { from: member(2), frame });
    assert_eq!(rig.replicas[&1].status().halted, None);
    let put = rig.put(1, "k", "w");
    rig.beat(1);
    rig.committed(put);
}
