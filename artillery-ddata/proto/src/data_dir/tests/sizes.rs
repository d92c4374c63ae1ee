//! Records of all sizes on disks that fill up, and nodes that restart on them repeatedly.

use super::*;
use crate::api::Refusal;

/// Records of one size on a disk that they can fill.
#[derive(Clone, Copy)]
struct Sizes {
    disk: u64,
    value: usize,
    /// Bytes of values in one write.
    batch: usize,
    chains: u32,
}

const ALL: [Sizes; 5] = [
    Sizes { disk: 5 << 20, value: 8, batch: 8 << 10, chains: 3 },
    Sizes { disk: 8 << 20, value: 1 << 10, batch: 32 << 10, chains: 3 },
    Sizes { disk: 32 << 20, value: 32 << 10, batch: 32 << 10, chains: 3 },
    Sizes { disk: 64 << 20, value: 1 << 20, batch: 1 << 20, chains: 3 },
    Sizes { disk: 32 << 20, value: 32 << 10, batch: 32 << 10, chains: 1 },
];

/// A node over several starts, whose clients fill its disk.
struct Filled {
    run: Run,
    of: Sizes,
    start: Option<Start>,
    replies: BTreeMap<u64, Reply>,
    /// Keys that were written and not deleted.
    keys: Vec<u32>,
    next: u32,
}

impl Filled {
    fn new(of: Sizes) -> Self {
        let mut run = Run::new(1, Guards::ALL);
        run.chunk = 64 << 10;
        run.disk.set_room(of.disk);
        run.settings = OpenSettings { segment_bytes: 1 << 20, room: 2 << 20, reserve: 1 << 20, ..run.settings };
        let mut filled = Self { run, of, start: None, replies: BTreeMap::new(), keys: Vec::new(), next: 0 };
        filled.open();
        filled
    }

    fn start(&mut self) -> &mut Start {
        self.start.as_mut().expect("the node runs")
    }

    fn open(&mut self) {
        let mut start = self.run.open().expect("a node starts on a full disk");
        self.run.enter(&mut start);
        self.start = Some(start);
        (0..4).for_each(|_| self.persist());
    }

    fn restart(&mut self, cut: bool) {
        self.start = None;
        if cut {
            self.run.disk.cut_power();
        } else {
            self.run.disk.restart();
        }
        self.open();
    }

    fn persist(&mut self) {
        self.start.as_mut().expect("the node runs").persist(1 << 20, &mut self.replies);
    }

    fn idle(&mut self) {
        (0..40).for_each(|_| self.persist());
    }

    fn write(&mut self, chain: u32, write: Write) -> Reply {
        self.start().write(chain as usize, write);
        self.persist();
        self.persist();
        self.replies.remove(&0).expect("a reply")
    }

    /// Writes one batch of records. `false`: the disk is considered full.
    fn put(&mut self) -> bool {
        let records = (self.of.batch / self.of.value).max(1) as u32;
        let keys: Vec<_> = (0..records).map(|number| self.next + number).collect();
        let put = |&key: &u32| (full::key(key), Bytes::from(vec![key as u8; self.of.value]));
        let write = match &keys[..] {
            [key] => Write::put(put(key).0, put(key).1),
            keys => Write::Batch(keys.iter().map(put).map(|(key, value)| crate::api::Step::put(key, value)).collect()),
        };
        let chain = self.next / records % self.of.chains;
        match self.write(chain, write) {
            Reply::Committed(_) => {
                self.next += records;
                self.keys.extend(keys);
                true
            }
            Reply::Refused(Refusal::DiskFull { .. }) => false,
            reply => panic!("{reply:?}"),
        }
    }

    fn fill(&mut self) {
        while self.put() {}
    }

    fn delete(&mut self, key: u32) {
        let records = (self.of.batch / self.of.value).max(1) as u32;
        let chain = key / records % self.of.chains;
        let deleted = self.write(chain, Write::Delete { key: full::key(key) });
        assert!(matches!(deleted, Reply::Committed(_)), "{deleted:?}");
    }

    /// Deletes until a write finds space again, as most clients do on a full disk.
    fn recover(&mut self) {
        let keys = std::mem::take(&mut self.keys);
        let count = keys.len();
        for (number, key) in keys.into_iter().enumerate() {
            self.delete(key);
            if number % (count / 64).max(1) == 0 {
                self.idle();
            }
        }
        self.idle();
        self.idle();
        assert!(self.put(), "{} bytes of {} are free", self.run.disk.free().unwrap(), self.of.disk);
    }
}

#[test]
fn records_of_all_sizes_fill_a_disk_and_deletes_free_it() {
    for of in ALL {
        let mut node = Filled::new(of);
        node.fill();
        let records = u64::from(node.next) * (of.value as u64 + 50);
        assert!(records > of.disk / 5, "{} records of {} bytes find space", node.next, of.value);
        node.recover();
    }
}

#[test]
fn a_full_disk_with_idle_clients_is_not_written() {
    for of in ALL {
        let mut node = Filled::new(of);
        node.fill();
        (0..20).for_each(|_| node.idle());
        let (segment, writes) = (node.start().control.record().segment, node.run.disk.counts().writes);
        (0..20).for_each(|_| node.idle());
        let after = node.start().control.record().segment;
        assert_eq!(after, segment, "values of {}: {} writes", of.value, node.run.disk.counts().writes - writes);
    }
}

/// Each start finds half a checkpoint of the earlier one.
#[test]
fn starts_in_the_middle_of_a_checkpoint_leave_the_disk_as_full_as_it_was() {
    for (of, cut) in ALL.into_iter().zip([false, true, false, true, true]) {
        let mut node = Filled::new(of);
        node.fill();
        node.idle();
        for turn in 0..5 {
            let writes = node.keys.len() / 400;
            for _ in 0..=writes {
                let key = node.keys.pop().expect("there are more keys");
                node.delete(key);
            }
            (0..turn).for_each(|_| node.persist());
            node.restart(cut);
            while node.put() {}
        }
        node.recover();
    }
}

/// Each delete uses a block of the reserve, and frees almost nothing before the next checkpoint.
#[test]
fn lone_deletes_of_small_records_find_room() {
    let mut node = Filled::new(Sizes { disk: 20 << 20, value: 100, batch: 64 << 10, chains: 1 });
    node.fill();
    let keys = std::mem::take(&mut node.keys);
    assert!(keys.len() > 30_000, "{} records", keys.len());
    for &key in keys.iter().take(3000) {
        node.delete(key);
    }
    node.idle();
    assert!(node.put());
}
