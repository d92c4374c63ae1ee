//! One bit of every byte of a small store is flipped, one at a time.

use std::{ops::Range, thread};

use super::small::{Opened, assert_all_there, opened, opened_by, small_store};
use crate::{
    data_dir::ControlFile,
    disk::{Disk, simulated::SimulatedDisk},
    guards::{Guards, Mutant},
};

const BLOCK: usize = 4096;

pub(super) fn bytes(disk: &SimulatedDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name).unwrap();
    let mut bytes = vec![0; usize::try_from(file.length().unwrap()).unwrap()];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]))
}

/// A group of a segment: its number, its content, and the bytes of its last CRC.
#[derive(Clone)]
struct Frame {
    number: u64,
    said: Range<usize>,
    crc: Range<usize>,
}

impl Frame {
    fn has(&self, byte: usize) -> bool {
        self.said.contains(&byte) || self.crc.contains(&byte)
    }
}

/// The groups of a segment, as docs/disk-format.md describes them.
fn frames(segment: &[u8]) -> Vec<Frame> {
    let (mut frames, mut at) = (Vec::new(), BLOCK);
    while at < segment.len() {
        let len = u32::from_le_bytes(std::array::from_fn(|n| segment[at + 4 + n])) as usize;
        let said = at..at + 24 + len;
        let end = (said.end + 4).next_multiple_of(BLOCK);
        frames.push(Frame { number: number(segment, at + 8), said, crc: end - 4..end });
        at = end;
    }
    frames
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    flips: usize,
    named: usize,
    harmless: usize,
    /// Flips after which the last group is lost.
    torn: usize,
    /// Flips in valid groups.
    in_frames: usize,
    named_in_frames: usize,
}

impl Counts {
    fn and(self, other: Self) -> Self {
        Self {
            flips: self.flips + other.flips,
            named: self.named + other.named,
            harmless: self.harmless + other.harmless,
            torn: self.torn + other.torn,
            in_frames: self.in_frames + other.in_frames,
            named_in_frames: self.named_in_frames + other.named_in_frames,
        }
    }
}

/// The store with all its groups, and without its last group.
struct Store {
    disk: SimulatedDisk,
    whole: Opened,
    without_last: Opened,
}

impl Store {
    fn new() -> Self {
        let disk = small_store(true);
        let whole = opened(&disk.copy(1)).unwrap();
        assert_all_there(&whole);
        let without_last = opened(&small_store(false)).unwrap();
        assert_ne!(whole.records, without_last.records);
        Self { disk, whole, without_last }
    }

    fn segments(&self) -> Vec<String> {
        self.disk.names().unwrap().into_iter().filter(|name| name.starts_with("journal-")).collect()
    }

    /// The valid groups: those before the first group of the next segment.
    fn frames(&self) -> Vec<(String, Frame)> {
        let segments = self.segments();
        let until = |at: usize| segments.get(at + 1).map_or(u64::MAX, |next| number(&bytes(&self.disk, next), 64));
        let counting = |(at, name): (usize, &String)| {
            let frames = frames(&bytes(&self.disk, name)).into_iter().filter(move |frame| frame.number < until(at));
            frames.map(|frame| (name.clone(), frame)).collect::<Vec<_>>()
        };
        segments.iter().enumerate().flat_map(counting).collect()
    }

    /// Flips a bit of this byte in a copy of the store, and starts it.
    fn flip(&self, name: &str, byte: usize, frame: Option<bool>, counts: &mut Counts) {
        let disk = self.disk.copy(1);
        disk.flip(name, byte * 8 + byte % 8);
        counts.flips += 1;
        counts.in_frames += usize::from(frame.is_some());
        match opened(&disk) {
            Ok(found) if found == self.whole => counts.harmless += 1,
            Ok(found) if frame == Some(true) && found == self.without_last => counts.torn += 1,
            Ok(found) => panic!("byte {byte} of {name}: {:?}", found.holdings),
            Err(error) => {
                let place = error.damage().unwrap_or_else(|| panic!("byte {byte} of {name}: {error}"));
                assert_eq!(place.file, name, "byte {byte}: {error}");
                let is_there = place.offset as usize <= byte && !place.kind.is_empty();
                assert!(is_there && error.to_string().contains(name), "byte {byte} of {name}: {error}");
                counts.named += 1;
                counts.named_in_frames += usize::from(frame.is_some());
            }
        }
    }
}

/// Runs `flip` for each byte, on a few threads.
fn for_each(bytes: usize, flip: impl Fn(usize, &mut Counts) + Sync) -> Counts {
    const THREADS: usize = 4;
    let some = |first: usize| {
        let mut counts = Counts::default();
        (first..bytes).step_by(THREADS).for_each(|byte| flip(byte, &mut counts));
        counts
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || some(first))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).fold(Counts::default(), Counts::and)
    })
}

#[test]
fn a_flipped_bit_of_a_journal_is_named_or_takes_the_last_group_alone() {
    let store = Store::new();
    let frames = store.frames();
    let last = frames.iter().map(|(_, frame)| frame.number).max().unwrap();
    let flip_all = |name: String| {
        for_each(bytes(&store.disk, &name).len(), |byte, counts| {
            let of = frames.iter().find(|(file, frame)| *file == name && frame.has(byte));
            store.flip(&name, byte, of.map(|(_, frame)| frame.number == last), counts);
        })
    };
    let counts = store.segments().into_iter().map(flip_all).fold(Counts::default(), Counts::and);
    println!("{counts:?}");
    assert!(counts.torn > 300 && counts.flips > 20_000 && counts.in_frames > 20_000, "{counts:?}");
    assert!(counts.named_in_frames * 10 >= counts.in_frames * 9, "{counts:?}");
    assert_eq!(counts.named_in_frames + counts.torn, counts.in_frames, "each flip in a group is detected");
}

#[test]
fn damage_that_counts_as_torn_loses_what_was_synced() {
    let store = Store::new();
    let is_silent = |(name, frame): &(String, Frame)| {
        let disk = store.disk.copy(1);
        disk.flip(name, 8 * frame.said.start);
        let found = opened_by(&disk, Guards::without(Mutant::TakeDamageForTorn));
        found.is_ok_and(|found| found != store.whole && found != store.without_last)
    };
    assert!(store.frames().iter().any(is_silent));
}

/// Runs a whole start for each byte of the header and the record, and for some of the bytes after them. Everything else
/// depends on the content of the control file, so for the other bytes it is enough to read the file.
#[test]
fn a_flipped_bit_of_the_control_file_changes_nothing() {
    let store = Store::new();
    let found = ControlFile::find(&store.disk).unwrap().unwrap();
    let control = store.disk.copy(1);
    store.segments().iter().for_each(|name| control.remove(name).unwrap());
    let counts = ["control-1", "control-2"].map(|name| {
        let all = bytes(&store.disk, name);
        let said = 28 + u32::from_le_bytes(std::array::from_fn(|n| all[24 + n])) as usize;
        for_each(all.len(), |byte, counts| {
            if byte < said || byte % 64 == 0 {
                return store.flip(name, byte, None, counts);
            }
            let disk = control.copy(1);
            disk.flip(name, byte * 8 + byte % 8);
            assert_eq!(ControlFile::find(&disk).unwrap().unwrap().record, found.record, "byte {byte} of {name}");
            (counts.flips, counts.harmless) = (counts.flips + 1, counts.harmless + 1);
        })
    });
    println!("{counts:?}");
    assert!(counts.iter().all(|counts| counts.flips >= 64 << 10 && counts.harmless == counts.flips), "{counts:?}");
}
