//! Acknowledgements that the watermark implies, and acknowledgements that it does not imply.

use std::time::Duration;

use super::rig::*;
use crate::{Timestamp, replica::*};

/// The number of control frames from the middle to the head during `count` successive writes.
fn controls_of(rig: &mut Rig, count: usize) -> usize {
    let mut controls = 0;
    for _ in 0..count {
        let put = rig.put(1, "k", "v");
        for _ in 0..4 {
            rig.transmit();
            controls += rig.controls(2, 1).len();
            [(1, 2), (2, 1), (2, 3), (3, 2), (3, 1)].into_iter().for_each(|(from, to)| while rig.deliver(from, to) {});
        }
        rig.committed(put);
    }
    controls
}

fn acknowledged(rig: &Rig, by: u8, of: u8) -> u64 {
    rig.replicas[&by].peers.get(Some(member(of))).unwrap().stream().acknowledged().0
}

#[test]
fn the_watermark_acknowledges_for_a_member_between_head_and_tail() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    assert_eq!(controls_of(&mut rig, 100), 0);
    assert_eq!((acknowledged(&rig, 1, 2), acknowledged(&rig, 2, 3)), (100, 100));
}

#[test]
fn a_member_acknowledges_by_itself_when_no_watermark_comes() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    let until = |rig: &Rig| rig.replicas[&2].next_tick();
    rig.put(1, "k", "v");
    rig.run(1, 2);
    let at = until(&rig).unwrap();
    assert!(at <= rig.now + Duration::from_millis(5), "sooner than any heartbeat");
    rig.transmit();
    assert_eq!(rig.controls(2, 1).len(), 0);
    rig.now = Timestamp::from_nanos(at.as_nanos() - 1);
    rig.input(2, ReplicaInput::Tick);
    rig.run(2, 1);
    assert_eq!(acknowledged(&rig, 1, 2), 0);
    rig.now = at;
    rig.input(2, ReplicaInput::Tick);
    rig.run(2, 1);
    assert_eq!(acknowledged(&rig, 1, 2), 1, "the tail does not have the update yet");
    assert!(until(&rig).is_none_or(|at| at > rig.now), "one acknowledgement is enough");
}

#[test]
fn the_watermark_does_not_acknowledge_for_a_joiner() {
    let mut rig = Rig::new(&[1, 2, 3], &ReplicaSettings { close_behind: 0, ..ReplicaSettings::default() });
    rig.enter(&[1, 2, 3], &joining(2, &[1, 2], 3));
    rig.settle();
    rig.promotions.clear();
    rig.input(2, ReplicaInput::Disconnected(member(3)));
    rig.enter(&[2, 1], &joining(3, &[1, 2], 3));
    rig.settle();
    rig.commit(1, "k", "v");
    assert_eq!(acknowledged(&rig, 2, 3), 0, "the joiner has no update yet");
    assert_eq!(rig.promotions, []);
}

#[test]
fn a_withheld_acknowledgement_does_not_make_a_hop_slow() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    controls_of(&mut rig, 3);
    let usual = rig.replicas[&1].progress().report(ChainId(0), rig.now).unwrap().hop.usual;
    let put = rig.put(1, "k", "v");
    rig.run(1, 2);
    rig.now = rig.replicas[&2].next_tick().unwrap();
    rig.input(2, ReplicaInput::Tick);
    rig.run(2, 1);
    let hop = rig.replicas[&1].progress().report(ChainId(0), rig.now).unwrap().hop;
    assert_eq!((hop.takes(), hop.usual), (usual, usual));
    rig.settle();
    rig.committed(put);
}

/// Frames from the tail to the head are lost. Each update has time to be committed before the next one is written.
#[test]
fn acknowledgements_carry_the_watermark_past_a_dead_link_while_updates_flow() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    for written in 1..=19 {
        rig.put(1, "k", "v");
        for _ in 0..3 {
            rig.settle_without(&[(3, 1)]);
            rig.wire.remove(&(3, 1));
            rig.now = rig.now + Duration::from_millis(2);
            rig.input(2, ReplicaInput::Tick);
        }
        assert!(rig.watermark(1) + 1 >= written, "{} of {written}", rig.watermark(1));
    }
}
