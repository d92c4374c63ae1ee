//! A node whose disk is full.

use super::*;
use crate::api::{Refusal, Step};

const ROOM: u64 = 2 << 20;

/// A start of a node, and the outcomes of its writes.
struct Full {
    run: Run,
    start: Start,
    replies: BTreeMap<u64, Reply>,
}

impl Full {
    fn new() -> Self {
        let mut run = Run::new(1, Guards::ALL);
        run.chunk = 64 << 10;
        run.disk.set_room(ROOM);
        let mut start = run.open().unwrap();
        run.enter(&mut start);
        let mut full = Self { run, start, replies: BTreeMap::new() };
        (0..4).for_each(|_| full.persist());
        full
    }

    fn persist(&mut self) {
        self.start.persist(64 << 10, &mut self.replies);
    }

    /// The reply to a write in chain 0.
    fn write(&mut self, write: Write) -> Reply {
        self.start.write(0, write);
        self.persist();
        self.persist();
        self.replies.remove(&0).expect("a reply")
    }

    fn put(&mut self, number: u32) -> Reply {
        self.write(Write::put(key(number), vec![number as u8; 20_000].into()))
    }

    /// Puts values until the disk is considered full. Returns their number.
    fn fill(&mut self) -> u32 {
        let refused = Reply::Refused(Refusal::DiskFull { member: self.start.me });
        (0..1000).find(|&number| self.put(number) == refused).expect("the disk becomes full")
    }
}

pub(super) fn key(number: u32) -> Bytes {
    number.to_le_bytes().to_vec().into()
}

#[test]
fn a_disk_counts_as_full_before_it_is_and_has_room_again_after_deletes() {
    let mut full = Full::new();
    let count = full.fill();
    assert!(count > 10, "only {count} values fitted");
    for number in 0..count {
        let held = full.start.store.read(ChainId(0), &key(number), Sequence::MAX).unwrap();
        assert_eq!(held.and_then(|held| held.value).map(|value| value.len()), Some(20_000), "{number}");
    }
    for number in 0..count {
        let deleted = full.write(Write::Delete { key: key(number) });
        assert!(matches!(deleted, Reply::Committed(_)), "{deleted:?}");
    }
    (0..20).for_each(|_| full.persist());
    assert!(!full.start.journal.is_full(), "{} bytes of {ROOM} are free", full.run.disk.free().unwrap());
    let put = full.put(0);
    assert!(matches!(put, Reply::Committed(_)), "{put:?}");
}

#[test]
fn a_journal_may_be_bounded_below_its_disk() {
    let mut run = Run::new(1, Guards::ALL);
    run.settings.most = 1 << 20;
    let mut start = run.open().unwrap();
    run.enter(&mut start);
    let mut full = Full { run, start, replies: BTreeMap::new() };
    full.fill();
    assert!(full.start.journal.bytes() < 1 << 20);
}

/// Another program uses all the space of a disk.
fn fill_up(disk: &SimulatedDisk) {
    disk.set_room((1 << 30) - disk.free().unwrap());
}

#[test]
fn a_node_starts_and_votes_on_a_full_disk() {
    let mut run = ended(SyncMode::Batch, Guards::ALL);
    fill_up(&run.disk);
    let start = run.open().unwrap();
    run.check(&start).unwrap();
    assert!(start.journal.is_full());
    // Longer than the space reserved in the control file.
    start.control.change(|record| record.log = vec![9; 70 << 10]).unwrap();
}

/// Votes and the next start need the ballast.
#[test]
fn values_of_clients_take_no_ballast() {
    let mut full = Full::new();
    let has_ballast = |full: &Full| full.run.disk.names().unwrap().contains(&"ballast".to_owned());
    let take_in = |full: &mut Full, write| {
        full.start.write(0, write);
        vec![(ChainId(0), full.start.chains[0].poll_journal(64 << 10).unwrap())]
    };
    assert!(has_ballast(&full));
    let free = full.run.disk.free().unwrap();
    full.run.disk.set_room(ROOM - free);
    let put = take_in(&mut full, Write::put(key(1), vec![1; 9000].into()));
    assert_eq!(full.start.journal.write(&put), Err(JournalError::Full));
    assert!(has_ballast(&full));
    full.run.disk.set_room(ROOM);
    full.start.journal.write(&put).unwrap();
    full.run.disk.set_room(ROOM - full.run.disk.free().unwrap());
    let delete = take_in(&mut full, Write::Delete { key: key(1) });
    full.start.journal.write(&delete).unwrap();
    assert!(!has_ballast(&full));
}

#[test]
fn a_full_disk_gets_its_ballast_back() {
    let mut run = ended(SyncMode::Batch, Guards::ALL);
    fill_up(&run.disk);
    let mut start = run.open().unwrap();
    assert!(!run.disk.names().unwrap().contains(&"ballast".to_owned()));
    run.disk.set_room(1 << 30);
    start.journal.tidy().unwrap();
    assert!(!start.journal.is_full());
    assert!(run.disk.names().unwrap().contains(&"ballast".to_owned()));
}

/// Records of eight bytes use several times as much space in a checkpoint.
#[test]
fn small_records_leave_room_for_their_checkpoint() {
    let mut full = Full::new();
    let refused = Reply::Refused(Refusal::DiskFull { member: full.start.me });
    let batch = |number: u32| {
        let puts = (0..400).map(|key| Step::put(self::key(number * 400 + key), vec![7; 4].into()));
        Write::Batch(puts.collect())
    };
    let count = (0..1000).find(|&number| full.write(batch(number)) == refused).expect("the disk becomes full");
    assert!(count > 20, "only {count} batches fitted");
    (0..100).for_each(|_| full.persist());
    let segment = full.start.control.record().segment;
    (0..300).for_each(|_| full.persist());
    assert_eq!(full.start.control.record().segment, segment, "no client has written anything");
    // The disk refuses no delete.
    for number in 0..count * 400 {
        if number % 3 == 0 {
            let deleted = full.write(Write::Delete { key: key(number) });
            assert!(matches!(deleted, Reply::Committed(_)), "{deleted:?}");
        }
    }
    (0..200).for_each(|_| full.persist());
    let put = full.put(0);
    assert!(matches!(put, Reply::Committed(_)), "{put:?}");
}
