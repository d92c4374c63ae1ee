//! Records above the watermark after a restart of all members, and how they are settled.

use std::time::Duration;

use bytes::Bytes;

use super::{super::*, restore::restored_as, rig::*};
use crate::{
    api::{Query, ReadMode, ReadPath, Step, Write},
    journal::JournalEntry,
};

/// A chain whose tail no longer syncs its disk, so that nothing more is committed.
fn stuck(nodes: &[u8]) -> Rig {
    let mut rig = Rig::chain_of_durable(nodes);
    rig.commit(nodes[0], "a", "1");
    rig.disk(*nodes.last().unwrap(), false);
    rig
}

/// All members restart from these journals. They are connected, but in no epoch yet.
fn restart(rig: &mut Rig, journals: &[(u8, &[JournalEntry])]) {
    rig.wire.clear();
    for &(n, journal) in journals {
        let found = restored_as(n, journal).unwrap().unwrap();
        rig.replicas.insert(n, found.replica);
        rig.stores.insert(n, found.store);
        rig.journals.remove(&n);
        rig.disks.remove(&n);
    }
    for &(n, _) in journals {
        rig.input(n, ReplicaInput::Lease(Timestamp::MAX));
        let others: Vec<_> = rig.nodes().into_iter().filter(|&other| other != n).collect();
        others.into_iter().for_each(|other| rig.input(n, ReplicaInput::Connected(member(other))));
    }
}

fn restart_all(rig: &mut Rig) {
    let journals = std::mem::take(&mut rig.journals);
    restart(rig, &journals.iter().map(|(&n, journal)| (n, journal.as_slice())).collect::<Vec<_>>());
}

fn left(rig: &Rig) -> Vec<u64> {
    rig.nodes().into_iter().map(|n| rig.status(n).rereplication.left).collect()
}

/// Delivers all frames. Returns the updates sent, with their links, and the number of snapshots.
fn sent(rig: &mut Rig) -> (Vec<(u8, u8, u64)>, usize) {
    let (mut updates, mut snapshots) = (Vec::new(), 0);
    loop {
        rig.transmit();
        let links: Vec<_> = rig.wire.iter().filter(|(_, queue)| !queue.is_empty()).map(|(&link, _)| link).collect();
        if links.is_empty() {
            return (updates, snapshots);
        }
        for (from, to) in links {
            let frames = rig.updates(from, to).into_iter().flat_map(|frame| &frame.updates);
            updates.extend(frames.map(|update| (from, to, update.version.sequence.0)));
            snapshots +=
                rig.on_link(from, to, |message| matches!(message, ChainMessage::Snapshot(_)).then_some(())).len();
            while rig.deliver(from, to) {}
        }
    }
}

#[test]
fn a_record_counts_once_by_its_last_update() {
    let mut rig = stuck(&[1, 2]);
    for (key, value) in [("b", "2"), ("c", "3"), ("b", "4")] {
        rig.put(1, key, value);
    }
    let put = |key: &'static str| Step::put(key.into(), "5".into());
    rig.write(1, Write::Batch(vec![put("c"), put("d")]));
    rig.settle();
    restart_all(&mut rig);
    assert_eq!(left(&rig), [3, 3]);
    rig.enter_all(&config(2, &[1, 2]));
    rig.settle();
    assert_eq!(left(&rig), [0, 0]);
    assert_eq!(rig.status(2).rereplication.by_start.done, 3);
}

#[test]
fn what_all_members_hold_is_settled_and_no_value_travels() {
    let mut rig = stuck(&[1, 2, 3]);
    for key in ["b", "c", "d", "e"] {
        rig.put(1, key, "value");
    }
    rig.settle();
    let versions: Vec<_> = [1, 2, 3].map(|n| rig.last(n)).into();
    restart_all(&mut rig);
    assert_eq!(left(&rig), [4, 4, 4]);
    rig.enter_all(&config(2, &[1, 2, 3]));
    assert_eq!(sent(&mut rig), (vec![], 0), "no member is missing an update");
    assert_eq!(left(&rig), [0, 0, 0]);
    assert_eq!([1, 2, 3].map(|n| rig.last(n)).to_vec(), versions);
    assert_eq!(rig.contents(1), rig.contents(3));
}

#[test]
fn a_member_is_sent_what_it_lacks_alone() {
    let mut rig = stuck(&[1, 2, 3]);
    for key in ["b", "c", "d", "e"] {
        rig.put(1, key, "value");
        rig.settle();
    }
    let journals = std::mem::take(&mut rig.journals);
    let short = &journals[&3][..journals[&3].len() - 2];
    restart(&mut rig, &[(1, &journals[&1]), (2, &journals[&2]), (3, short)]);
    assert_eq!((left(&rig), rig.last(3).sequence.0), (vec![4, 4, 2], 3));
    rig.enter_all(&config(2, &[1, 2, 3]));
    assert_eq!(sent(&mut rig), (vec![(2, 3, 4), (2, 3, 5)], 0));
    assert_eq!(left(&rig), [0, 0, 0]);
    assert_eq!(rig.contents(1), rig.contents(3));
}

#[test]
fn a_strong_read_is_a_dirty_read_that_settles_its_record() {
    let mut rig = stuck(&[1, 2, 3]);
    for key in ["b", "c", "d", "e"] {
        rig.put(1, key, key);
    }
    rig.settle();
    restart_all(&mut rig);
    rig.now = rig.now + Duration::from_secs(1);
    rig.enter_all(&config(2, &[1, 2, 3]));
    rig.now = rig.now + Duration::from_millis(30);
    let read = rig.read(2, "c", ReadMode::Strong);
    let keys = [Bytes::from("a"), "b".into(), "d".into()];
    let many = rig.ask(2, Query::Keys(keys.to_vec()), ReadMode::Strong, None);
    // Neither a clean read nor an eventual read settles a record.
    rig.read(2, "a", ReadMode::Strong);
    rig.read(2, "e", ReadMode::Eventual);
    assert!(!rig.replies.contains_key(&read), "it waits");
    rig.now = rig.now + Duration::from_millis(3);
    rig.settle();
    assert_eq!(rig.found(read), (Some("c".into()), true, ReadPath::Query));
    assert!(rig.replies.contains_key(&many));
    let Rereplication { left, by_start, by_read, time } = rig.status(2).rereplication;
    assert_eq!((left, by_start.done, by_read.done), (0, 1, 3));
    assert_eq!(time, Duration::from_millis(33));
    assert_eq!((by_start.total, by_read.total), (Duration::from_millis(33), Duration::from_millis(9)));
    assert_eq!((by_start.durations[5], by_read.durations[2]), (1, 3));
    assert_eq!(rig.status(1).rereplication.by_read, SettledRecords::default());
}

#[test]
fn what_the_chain_went_on_without_is_superseded() {
    let mut rig = stuck(&[1, 2]);
    rig.put(1, "k", "both");
    rig.settle();
    rig.cut_link(1, 2);
    rig.put(1, "k", "one");
    rig.put(1, "l", "one");
    rig.transmit();
    restart_all(&mut rig);
    assert_eq!(left(&rig), [2, 1]);
    rig.enter_all(&config(2, &[2, 1]));
    rig.settle();
    let Rereplication { left: rest, by_start, .. } = rig.status(1).rereplication;
    // The older update of k is counted again.
    assert_eq!((rest, by_start.superseded, by_start.done), (0, 2, 1));
    assert_eq!((left(&rig), rig.status(2).rereplication.by_start.done), (vec![0, 0], 1));
    assert_eq!(rig.contents(1), rig.contents(2));
}

#[test]
fn a_snapshot_supersedes_all_of_them() {
    let settings = ReplicaSettings { durable: true, backlog: 0, ..ReplicaSettings::default() };
    let mut rig = Rig::open(&[1, 2], &settings);
    rig.commit(1, "a", "1");
    rig.disk(2, false);
    rig.put(1, "k", "1");
    rig.settle();
    let journal = rig.journals[&2].clone();
    rig.disk(2, true);
    (0..9).for_each(|_| _ = rig.commit(1, "l", "2"));
    restart(&mut rig, &[(2, &journal)]);
    assert_eq!(left(&rig), [0, 1]);
    // The missing updates are no longer in the backlog, so a snapshot is sent.
    rig.enter_all(&joining(2, &[1], 2));
    rig.beat(3);
    let Rereplication { left, by_start, .. } = rig.status(2).rereplication;
    assert_eq!((left, by_start.superseded, by_start.done), (0, 1, 0));
}

#[test]
fn reports_come_while_records_are_left_and_at_the_end() {
    let mut rig = stuck(&[1, 2]);
    rig.put(1, "b", "2");
    rig.settle();
    restart_all(&mut rig);
    rig.events.clear();
    assert_eq!(rig.replicas[&1].next_tick(), Some(Timestamp::ZERO), "it reports outside of an epoch, too");
    let reports = |rig: &Rig| -> Vec<u64> {
        let of = |(n, event): &(u8, ReplicaEvent)| match event {
            ReplicaEvent::Rereplicating(so_far) if *n == 1 => Some(so_far.left),
            _ => None,
        };
        rig.events.iter().filter_map(of).collect()
    };
    // Ten heartbeats take one second.
    (0..250).for_each(|_| rig.heartbeat());
    assert_eq!(reports(&rig), [1, 1, 1]);
    rig.enter_all(&config(2, &[1, 2]));
    rig.settle();
    assert_eq!(reports(&rig), [1, 1, 1, 0]);
    rig.beat(120);
    assert_eq!(reports(&rig).len(), 4);
}

#[test]
fn a_member_that_was_never_restarted_has_none() {
    let mut rig = Rig::chain_of_durable(&[1, 2]);
    rig.commit(1, "a", "1");
    assert_eq!(rig.status(1).rereplication, Rereplication::default());
    // After a stop with the watermark on disk, nothing is left.
    rig.beat(2);
    restart_all(&mut rig);
    assert_eq!(left(&rig), [0, 0]);
    assert_eq!(rig.replicas[&1].next_tick(), None);
}
