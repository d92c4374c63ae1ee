//! Updates that a member has forwarded but not stored yet.

use super::rig::Rig;
use crate::{
    Sequence,
    api::{ReadMode, Reply},
    replica::NotLocal,
    store::{Held, Store},
};

fn stored(rig: &Rig, n: u8, key: &str) -> Option<Held> {
    rig.stores[&n].read(crate::ChainId(0), key.as_bytes(), Sequence::MAX).unwrap()
}

#[test]
fn the_gate_is_held_until_the_store_has_what_others_may_know() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.put(1, "k", "v");
    assert!(rig.replicas[&1].is_behind());
    assert_eq!(stored(&rig, 1, "k"), None, "not stored yet");
    assert_eq!(rig.local(1, "k"), Err(NotLocal::Dirty));
    assert_eq!(rig.local(1, "another"), Err(NotLocal::Dirty));
    rig.transmit();
    assert!(!rig.replicas[&1].is_behind());
    assert!(stored(&rig, 1, "k").is_some());
    assert_eq!(rig.local(1, "k"), Err(NotLocal::Dirty), "the update is not committed");
    assert_eq!(rig.local(1, "another"), Ok(None));
    rig.deliver(1, 2);
    assert_eq!(rig.local(2, "another"), Err(NotLocal::Dirty), "the middle's gate is held too");
}

#[test]
fn the_tail_commits_before_it_stores_with_its_gate_held() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.put(1, "k", "v");
    rig.run_along(&[1, 2, 3]);
    assert_eq!(rig.watermark(3), rig.last(1).sequence.0);
    assert_eq!(stored(&rig, 3, "k"), None);
    assert_eq!(rig.local(3, "k"), Err(NotLocal::Dirty));
    assert!(rig.gates[&3].watermark() < rig.last(1).sequence, "the gate's watermark only covers stored updates");
    rig.transmit();
    assert_eq!(rig.gates[&3].watermark(), rig.last(1).sequence);
    assert_eq!(rig.local(3, "k").unwrap(), stored(&rig, 1, "k"));
}

#[test]
fn the_only_member_stores_before_it_answers() {
    let mut rig = Rig::chain(&[1]);
    let token = rig.put(1, "k", "v");
    let version = rig.committed(token);
    assert_eq!(stored(&rig, 1, "k").unwrap().version, version);
    assert_eq!(rig.local(1, "k").unwrap(), stored(&rig, 1, "k"));
}

#[test]
fn a_read_at_the_replica_finds_what_was_put_off() {
    let mut rig = Rig::chain(&[1, 2, 3]);
    rig.put(1, "k", "v");
    let token = rig.read(1, "k", ReadMode::Eventual);
    let Some(Reply::Read(read)) = rig.replies.get(&token) else { panic!("{:?}", rig.replies) };
    assert_eq!(read.held, stored(&rig, 1, "k"));
    assert!(read.held.is_some());
    assert!(!rig.replicas[&1].is_behind());
}

#[test]
fn a_deferred_commit_waits_for_later_updates() {
    let mut rig = Rig::chain(&[1, 2]);
    rig.commit(1, "k", "v");
    rig.put(1, "k", "w");
    rig.transmit();
    rig.deliver(1, 2);
    rig.transmit();
    rig.put(1, "l", "w");
    assert!(rig.replicas[&1].is_behind());
    while rig.deliver(2, 1) {}
    assert_eq!(rig.watermark(1), rig.watermark(2));
    assert_eq!(rig.local(1, "k"), Err(NotLocal::Dirty), "the second update is not stored");
    rig.settle();
    assert_eq!(rig.local(1, "k").unwrap(), stored(&rig, 2, "k"));
    rig.assert_same(1, 2);
}

#[test]
fn the_work_put_off_is_bounded() {
    let mut rig = Rig::chain(&[1, 2]);
    let keys: Vec<&'static str> = (0..600).map(|n| &*format!("k{n}").leak()).collect();
    for key in &keys {
        rig.put(1, key, "v");
    }
    assert_eq!(stored(&rig, 1, "k599"), None);
    for key in &keys {
        rig.put(1, key, "w");
    }
    assert!(stored(&rig, 1, "k599").is_some());
}
