//! The report of a check of a small store.

use std::sync::Arc;

use super::{
    super::*,
    flips::bytes,
    small::{CLUSTER, STORE, small_store},
};
use crate::{
    Sequence, Version,
    control::message::StoreHolding,
    disk::{
        Disk,
        simulated::{CutSettings, SimulatedDisk},
    },
    fixtures,
    guards::Guards,
    journal::{GroupNumber, TornEnd},
};

fn checked(disk: &SimulatedDisk) -> Result<Option<StoreReport>, OpenError> {
    StoreReport::check(Arc::new(disk.clone()))
}

fn empty() -> SimulatedDisk {
    SimulatedDisk::new(1, 1 << 30, CutSettings { tears_sectors: true, leaves_garbage: true })
}

/// Writes to a file, and makes the CRC at its beginning match the bytes up to `end`.
fn patch(disk: &SimulatedDisk, name: &str, at: usize, patch: &[u8], end: usize) {
    let mut bytes = bytes(disk, name);
    bytes[at..at + patch.len()].copy_from_slice(patch);
    let sum = crc32c::crc32c(&bytes[4..end]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    disk.open(name).unwrap().write_at(0, &bytes).unwrap();
}

#[test]
fn a_check_says_what_a_store_holds_and_writes_nothing() {
    let disk = small_store(true);
    let newest = disk.names().unwrap().pop().unwrap();
    let whole_len = bytes(&disk, &newest).len() as u64;
    disk.open(&newest).unwrap().write_at(whole_len, b"cut short").unwrap();
    disk.create("notes.txt").unwrap();
    let before = disk.counts();
    let report = checked(&disk).unwrap().expect("a store");
    assert_eq!(disk.counts(), before);
    let StoreReport { node, incarnation, cluster, history, mode, weak, torn, unused, .. } = &report;
    assert_eq!((*node, incarnation.store, incarnation.starts), (fixtures::id(1).node, STORE, 3));
    assert_eq!((*cluster, history.map(|history| history.generation)), (Some(CLUSTER), Some(0)));
    assert_eq!((*mode, *weak), (Some(SyncMode::Batch), true));
    assert_eq!(*torn, Some(TornEnd { file: newest, offset: whole_len, bytes: 9 }));
    assert_eq!(unused[..], ["notes.txt"]);
    assert!(report.control.iter().all(|(_, state)| matches!(state, CopyState::Whole(_))));
    assert!(report.first > GroupNumber(0) && report.proven < report.end, "{report:?}");
    let chain = |chain, records, updates, unreplicated, (whole, last, watermark, synced)| ChainReport {
        holding: StoreHolding { chain: ChainId(chain), whole, last, watermark: Sequence(watermark), synced },
        records,
        updates,
        unreplicated,
    };
    let expected = [
        chain(0, 5, 6, 2, (true, Version::new(3, 9), 7, true)),
        chain(1, 0, 0, 0, (false, Version::NONE, 0, false)),
        chain(2, 2, 1, 0, (true, Version::new(3, 2), 2, false)),
    ];
    assert_eq!(report.chains[..], expected);
}

#[test]
fn a_directory_without_a_store_is_none() {
    assert_eq!(checked(&empty()), Ok(None));
    let others = empty();
    others.create("notes.txt").unwrap();
    assert_eq!(checked(&others), Ok(None));
}

#[test]
fn one_copy_of_the_control_file_is_enough_and_none_is_damage() {
    let disk = small_store(true);
    disk.flip("control-2", 8 * 20);
    let states = |disk| checked(disk).unwrap().unwrap().control.map(|(_, state)| state);
    assert!(matches!(states(&disk), [CopyState::Whole(_), CopyState::NotWhole]));
    disk.remove("control-2").unwrap();
    assert!(matches!(states(&disk), [CopyState::Whole(_), CopyState::Missing]));
    disk.remove("control-1").unwrap();
    let place = |file: &str, offset, kind| Some(DamagePlace { file: file.to_owned(), offset, kind });
    let error = checked(&disk).unwrap_err();
    assert_eq!(error.damage(), place("control-1", 0, "control"), "{error}");
    let opened = super::small::opened(&disk).unwrap_err();
    assert_eq!(opened, error, "a start doesn't treat it as a new store");
}

#[test]
fn a_journal_that_is_too_short_says_where_it_ends() {
    let disk = small_store(true);
    let newest = disk.names().unwrap().pop().unwrap();
    // The control file records that everything was synced.
    let mut found = ControlFile::find(&disk).unwrap().unwrap();
    found.record.synced = checked(&disk).unwrap().unwrap().end.0;
    ControlFile::begin(Arc::new(disk.clone()), found, Guards::ALL).unwrap();
    let all = bytes(&disk, &newest);
    disk.remove(&newest).unwrap();
    disk.create(&newest).unwrap().write_at(0, &all[..4096]).unwrap();
    let error = checked(&disk).unwrap_err();
    let DamagePlace { file, offset, kind } = error.damage().expect("damage");
    assert_eq!((file, offset, kind), (newest, 4096, "short"), "{error}");
}

#[test]
fn what_another_release_wrote_is_told_from_damage() {
    let disk = small_store(true);
    assert!(!checked(&disk.copy(1)).is_err_and(|error| error.is_of_another_release()));
    let newest = disk.names().unwrap().pop().unwrap();
    patch(&disk, &newest, 12, &2u32.to_le_bytes(), 4096);
    let error = checked(&disk).unwrap_err();
    assert!(error.is_of_another_release() && error.damage().is_some_and(|place| place.kind == "format"), "{error}");
    patch_control(&disk, |len| (12, 2, len));
    let error = checked(&disk).unwrap_err();
    assert!(error.is_of_another_release() && error.damage().is_none(), "{error}");
}

/// Replaces a number in both copies of the control file: `change` maps the record's length to place, value and new
/// length.
fn patch_control(disk: &SimulatedDisk, change: impl Fn(u32) -> (usize, u32, u32)) {
    for name in ["control-1", "control-2"] {
        let all = bytes(disk, name);
        let (at, value, len) = change(u32::from_le_bytes(std::array::from_fn(|n| all[24 + n])));
        patch(disk, name, at, &value.to_le_bytes(), 28 + len as usize);
    }
}

#[test]
fn a_record_with_unknown_fields_is_of_another_release() {
    let disk = small_store(true);
    patch_control(&disk, |len| (24, len + 1, len + 1));
    let error = checked(&disk).unwrap_err();
    assert!(matches!(error, OpenError::Control(ControlFileError::OtherRecord { file: "control-1", .. })), "{error}");
    assert!(error.is_of_another_release() && error.damage().is_none(), "{error}");
    assert_eq!(super::small::opened(&disk).unwrap_err(), error, "a start refuses it, too");
}
