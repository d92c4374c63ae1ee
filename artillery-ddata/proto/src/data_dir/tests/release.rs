//! A small store written by this release, in `tests/disk-1`. Each later release must open it. It never changes after
//! the release; until then `cargo test -p artillery-proto --lib -- --ignored make_the_store_anew` writes it again.

use std::{fs, path::PathBuf};

use super::{
    flips::bytes,
    small::{assert_all_there, opened, small_store},
};
use crate::disk::{
    Disk,
    simulated::{CutSettings, SimulatedDisk},
};

/// The length of the control files. The zeros at their ends aren't checked in.
const CONTROL_LEN: u64 = 64 << 10;

fn place() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/disk-1")
}

fn stored() -> SimulatedDisk {
    let disk = SimulatedDisk::new(1, 1 << 30, CutSettings { tears_sectors: true, leaves_garbage: true });
    for file in fs::read_dir(place()).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut file = disk.create(name).unwrap();
        if name.starts_with("control-") {
            file.write_at(CONTROL_LEN - 1, &[0]).unwrap();
        }
        file.write_at(0, &fs::read(&path).unwrap()).unwrap();
        file.sync().unwrap();
    }
    disk.sync_names().unwrap();
    disk
}

#[test]
fn a_store_of_this_release_is_opened() {
    assert_all_there(&opened(&stored()).unwrap());
}

#[test]
fn the_same_bytes_are_written_as_before() {
    let (stored, written) = (stored(), small_store(true));
    assert_eq!(stored.names(), written.names());
    for name in written.names().unwrap() {
        let (before, now) = (bytes(&stored, &name), bytes(&written, &name));
        let differs = before.iter().zip(&now).position(|(before, now)| before != now);
        assert_eq!((before.len(), differs), (now.len(), None), "{name}");
    }
}

#[test]
#[ignore = "writes the store of this release again"]
fn make_the_store_anew() {
    let (place, written) = (place(), small_store(true));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).unwrap();
    for name in written.names().unwrap() {
        let mut bytes = bytes(&written, &name);
        if name.starts_with("control-") {
            bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1);
        }
        fs::write(place.join(name), bytes).unwrap();
    }
}
