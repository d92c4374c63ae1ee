//! Writes whose updates are larger than their requests.

use bytes::Bytes;

use super::{super::*, rig::*};
use crate::{api::*, types::update::RequestKey};

const VALUE: usize = 1000;

/// A chain whose head concatenates a hundred bytes per step.
fn chain(nodes: &[u8]) -> Rig {
    let settings = ReplicaSettings { join: 100, window: 4 * VALUE, max_value: 2 * VALUE, ..ReplicaSettings::default() };
    let mut rig = Rig::open(nodes, &settings);
    for key in ["a", "b", "c"] {
        rig.write(1, Write::put(key.into(), vec![b'.'; VALUE].into()));
        rig.settle();
    }
    rig
}

fn append(key: &'static str) -> Step {
    Step::append(key.into(), "!".into())
}

fn head(rig: &mut Rig) -> &mut Replica {
    rig.replicas.get_mut(&1).unwrap()
}

fn steps(rig: &mut Rig) -> usize {
    let now = rig.now;
    let mut steps = 0;
    while head(rig).is_behind() {
        head(rig).settle(now);
        steps += 1;
    }
    rig.settle();
    steps
}

fn length(rig: &Rig, n: u8, key: &str) -> usize {
    rig.local(n, key).unwrap().unwrap().value.unwrap().len()
}

#[test]
fn a_value_is_put_together_once_in_steps() {
    let mut rig = chain(&[1, 2]);
    let batch = rig.write(1, Write::Batch(vec![append("a"); 64]));
    assert!(head(&mut rig).is_behind() && !head(&mut rig).has_room());
    let other = rig.put(1, "k", "v");
    assert_eq!(rig.replies[&other], Reply::Refused(Refusal::Busy), "the next sequence is reserved");
    let read = rig.ask(1, Query::Key("a".into()), ReadMode::Eventual, None);
    assert!(rig.replies.contains_key(&read), "reads continue");
    let steps = steps(&mut rig);
    assert!((10..=13).contains(&steps), "{steps} steps of a hundred bytes");
    assert!(matches!(rig.replies[&batch], Reply::Committed(_)), "{:?}", rig.replies[&batch]);
    assert_eq!(length(&rig, 2, "a"), VALUE + 64);
    assert!(head(&mut rig).has_room());
}

#[test]
fn a_write_that_is_being_put_together_ends_with_its_epoch() {
    let mut rig = chain(&[1, 2]);
    let given_up = rig.write(1, Write::append("a".into(), "!".into()));
    rig.enter_all(&config(2, &[1, 2]));
    assert_eq!(rig.replies[&given_up], Reply::Refused(Refusal::NoChain));
    rig.settle();
    let until = rig.now + std::time::Duration::from_secs(1);
    let given_up = rig.write(1, Write::append("a".into(), "!".into()));
    rig.input(1, ReplicaInput::Close { epoch: crate::Epoch(2), until });
    assert_eq!(rig.replies[&given_up], Reply::Refused(Refusal::Busy));
    steps(&mut rig);
    assert_eq!(length(&rig, 2, "a"), VALUE);
}

#[test]
fn a_too_large_update_is_refused_on_record() {
    let mut rig = chain(&[1]);
    let opened = rig.write(1, Write::OpenSession);
    let Reply::Committed(WriteReply { version: session, .. }) = rig.replies[&opened] else { panic!("no session") };
    let request = RequestKey { session, number: 1, lowest: 1 };
    let write = |write| ReplicaInput::Write { token: Token(70), request: Some(request), write, deadline: FAR };
    let (len, limit) = (3 * VALUE as u64 + 3, 2 * VALUE as u64);
    let refused = Reply::Refused(Refusal::UpdateTooLarge { len, limit });
    let last = head(&mut rig).history().len();
    for write in [write(Write::Batch(vec![append("a"), append("b"), append("c")])), write(Write::Resolve)] {
        rig.input(1, write);
        assert_eq!(rig.replies.remove(&70), Some(refused.clone()));
        assert!(!head(&mut rig).is_behind(), "no value was copied");
        assert_eq!(head(&mut rig).history().len(), last + 1, "the request has exactly one record");
    }
    assert_eq!(length(&rig, 1, "a"), VALUE);
    let two = rig.write(1, Write::Batch(vec![append("a"), append("b")]));
    assert_eq!(rig.replies.get(&two), Some(&Reply::Refused(Refusal::UpdateTooLarge { len: limit + 2, limit })));
    let put = |key: &'static str| Step::put(key.into(), vec![0; VALUE].into());
    let two = rig.write(1, Write::Batch(vec![put("a"), put("b")]));
    assert!(matches!(rig.replies[&two], Reply::Committed(_)), "half of the window is the limit");
}

#[test]
fn few_large_writes_are_under_way() {
    let mut rig = chain(&[1, 2]);
    let put = |len: usize| Write::put("k".into(), Bytes::from(vec![0; len]));
    assert!(head(&mut rig).has_room_for_large());
    rig.write(1, put(VALUE / 2));
    assert!(head(&mut rig).has_room_for_large(), "half of the quarter is left");
    rig.write(1, put(VALUE / 2));
    assert!(!head(&mut rig).has_room_for_large() && head(&mut rig).has_room());
    rig.settle();
    for _ in 0..6 {
        rig.write(1, put(VALUE / 10));
    }
    assert!(head(&mut rig).has_room_for_large(), "one large write is admitted among any number of small ones");
    rig.write(1, put(VALUE / 2));
    assert!(!head(&mut rig).has_room_for_large() && head(&mut rig).has_room());
}
