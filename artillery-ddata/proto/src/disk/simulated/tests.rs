use std::collections::BTreeSet;

use super::*;
use crate::disk::conformance;

const WHOLE: CutSettings = CutSettings { tears_sectors: false, leaves_garbage: false };
const HARSH: CutSettings = CutSettings { tears_sectors: true, leaves_garbage: true };
const ROOM: u64 = 1 << 20;

fn disk(seed: u64, settings: CutSettings) -> SimulatedDisk {
    SimulatedDisk::new(seed, ROOM, settings)
}

/// A durable file with a durable name and these bytes.
fn durable(disk: &SimulatedDisk, name: &str, bytes: &[u8]) -> Box<dyn DiskFile> {
    let mut file = disk.create(name).unwrap();
    file.write_at(0, bytes).unwrap();
    file.sync().unwrap();
    disk.sync_names().unwrap();
    file
}

fn bytes(disk: &SimulatedDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name).unwrap();
    let mut bytes = vec![0; usize::try_from(file.length().unwrap()).unwrap()];
    assert_eq!(file.read_at(0, &mut bytes), Ok(bytes.len()));
    bytes
}

/// All contents that a file has after `run` and a power cut, over 200 seeds. `None`: the file is gone.
fn left(settings: CutSettings, name: &str, run: impl Fn(&SimulatedDisk)) -> BTreeSet<Option<Vec<u8>>> {
    let after = |seed| {
        let disk = disk(seed, settings);
        run(&disk);
        disk.cut_power();
        disk.open(name).is_ok().then(|| bytes(&disk, name))
    };
    (0..200).map(after).collect()
}

#[test]
fn it_conforms() {
    conformance::run(&disk(1, HARSH));
}

#[test]
fn what_is_synced_outlives_every_power_cut() {
    let run = |disk: &SimulatedDisk| {
        let mut file = durable(disk, "f", &[1; 3000]);
        file.write_at(500, &[2; 700]).unwrap();
        file.sync().unwrap();
    };
    let expected = [vec![1; 500], vec![2; 700], vec![1; 1800]].concat();
    assert_eq!(left(HARSH, "f", run), BTreeSet::from([Some(expected)]));
}

#[test]
fn each_unsynced_sector_arrives_or_not_in_any_order() {
    let run = |disk: &SimulatedDisk| {
        let mut file = durable(disk, "f", &[0; 2 * 512]);
        file.write_at(0, &[1; 512]).unwrap();
        file.write_at(512, &[2; 512]).unwrap();
    };
    let of = |first, second| Some([[first; 512], [second; 512]].concat());
    assert_eq!(left(WHOLE, "f", run), BTreeSet::from([of(0, 0), of(1, 0), of(0, 2), of(1, 2)]));
}

#[test]
fn an_older_content_of_a_sector_may_be_what_arrives() {
    let run = |disk: &SimulatedDisk| {
        let mut file = durable(disk, "f", &[0; 4]);
        file.write_at(0, &[1; 4]).unwrap();
        file.write_at(0, &[2; 4]).unwrap();
    };
    assert_eq!(left(WHOLE, "f", run), BTreeSet::from([0, 1, 2].map(|byte| Some(vec![byte; 4]))));
}

#[test]
fn an_unsynced_end_is_lost_zero_or_garbage() {
    let run = |disk: &SimulatedDisk| durable(disk, "f", b"old").write_at(3, b"new").unwrap();
    let all = [&b"old"[..], b"oldnew", b"old\0\0\0"].map(|left| Some(left.to_vec()));
    assert_eq!(left(WHOLE, "f", run), BTreeSet::from(all));
    assert!(left(HARSH, "f", run).len() > 10, "garbage differs from seed to seed");
}

#[test]
fn a_sector_is_torn_only_where_the_settings_say_so() {
    let run = |disk: &SimulatedDisk| {
        durable(disk, "f", &[0; 512]).write_at(0, &[1; 512]).unwrap();
    };
    assert_eq!(left(WHOLE, "f", run).len(), 2);
    let is_mixed = |bytes: &&Vec<u8>| bytes.iter().all(|&byte| byte < 2) && bytes.is_sorted_by(|a, b| a >= b);
    let harsh = left(HARSH, "f", run);
    let mixed = harsh.iter().flatten().filter(is_mixed).count();
    assert!(mixed > 5 && harsh.len() > mixed + 5, "{mixed} of {} are mixed, the others garbage", harsh.len());
}

#[test]
fn a_name_is_lost_unless_it_is_synced_though_the_bytes_are() {
    let run = |disk: &SimulatedDisk| {
        let mut file = disk.create("f").unwrap();
        file.write_at(0, b"x").unwrap();
        file.sync().unwrap();
    };
    assert_eq!(left(WHOLE, "f", run), BTreeSet::from([None, Some(b"x".to_vec())]));
}

#[test]
fn a_renamed_file_has_one_name_or_the_other() {
    let run = |disk: &SimulatedDisk| {
        durable(disk, "old", b"1");
        durable(disk, "new", b"2");
        disk.rename("new", "old").unwrap();
    };
    assert_eq!(left(HARSH, "old", run), BTreeSet::from([b"1", b"2"].map(|bytes| Some(bytes.to_vec()))));
}

#[test]
fn of_what_a_failed_sync_was_to_write_a_part_may_stay() {
    let run = |disk: &SimulatedDisk| {
        let mut file = durable(disk, "f", &[0; 1024]);
        file.write_at(0, &[1; 1024]).unwrap();
        disk.fail_sync_after(Some(0));
        assert!(file.sync().is_err());
        assert_eq!(file.sync(), Ok(()), "the kernel considers the bytes written");
        disk.restart();
        assert_eq!(bytes(disk, "f"), [1; 1024], "and shows them to the next process");
    };
    let of = |first, second| Some([[first; 512], [second; 512]].concat());
    assert_eq!(left(WHOLE, "f", run), BTreeSet::from([of(0, 0), of(1, 0), of(0, 1), of(1, 1)]));
    let read: BTreeSet<_> = (0..50)
        .map(|seed| {
            let disk = disk(seed, WHOLE);
            run(&disk);
            disk.forget_pages();
            bytes(&disk, "f")
        })
        .collect();
    assert!(read.len() > 2, "until it discards them");
}

#[test]
fn a_removed_file_comes_back_with_its_bytes() {
    let run = |disk: &SimulatedDisk| {
        durable(disk, "f", b"old");
        disk.remove("f").unwrap();
        disk.restart();
    };
    assert_eq!(left(WHOLE, "f", run), BTreeSet::from([None, Some(b"old".to_vec())]));
}

#[test]
fn a_removed_file_takes_no_room_once_it_is_closed() {
    let disk = disk(1, WHOLE);
    let file = durable(&disk, "f", &[1; 1000]);
    disk.remove("f").unwrap();
    assert_eq!(disk.free(), Ok(ROOM - 1000));
    drop(file);
    assert_eq!(disk.free(), Ok(ROOM));
}

#[test]
fn a_killed_process_loses_its_handles_and_nothing_else() {
    let disk = disk(1, HARSH);
    let mut file = durable(&disk, "f", b"old");
    file.write_at(0, b"new").unwrap();
    disk.restart();
    assert_eq!(bytes(&disk, "f"), b"new");
    assert!(file.write_at(0, b"late").is_err() && file.sync().is_err());
    assert_eq!(disk.counts().cuts, 0);
}

#[test]
fn the_power_goes_at_each_write_and_sync_in_turn() {
    let run = |disk: &SimulatedDisk| -> Result<(), DiskError> {
        let mut file = disk.create("f")?;
        file.write_at(0, b"one")?;
        file.sync()?;
        disk.sync_names()
    };
    for operations in 0..6 {
        let disk = disk(operations, HARSH);
        disk.cut_power_after(operations);
        assert_eq!(run(&disk).is_err(), operations < 4, "{operations}");
        assert_eq!(disk.is_off(), operations < 4);
        assert_eq!(disk.names().is_err(), operations < 4, "nothing works without power");
        disk.restart();
        assert!(disk.names().is_ok());
    }
}

#[test]
fn a_full_disk_takes_what_fits_and_goes_on_when_there_is_room() {
    let disk = disk(1, WHOLE);
    let mut file = durable(&disk, "f", &[1; 100]);
    disk.set_room(150);
    assert_eq!(file.write_at(100, &[2; 100]), Err(DiskError::Full));
    assert_eq!((file.length(), disk.free()), (Ok(150), Ok(0)));
    assert_eq!(file.write_at(0, &[3; 150]), Ok(()), "this needs no further space");
    disk.set_room(200);
    assert_eq!(file.write_at(150, &[4; 50]), Ok(()));
}

#[test]
fn a_flipped_bit_stays_flipped_and_a_copy_does_not_change() {
    let disk = disk(1, WHOLE);
    durable(&disk, "f", &[0; 4]);
    let copy = disk.copy(2);
    disk.flip("f", 17);
    disk.cut_power();
    assert_eq!(bytes(&disk, "f"), [0, 0, 2, 0]);
    copy.cut_power();
    assert_eq!(bytes(&copy, "f"), [0; 4]);
}

#[test]
fn the_same_seed_leaves_the_same() {
    let run = |disk: &SimulatedDisk| {
        let mut file = durable(disk, "f", &[0; 5000]);
        (0..50).for_each(|n| file.write_at(n * 97, &[n as u8; 300]).unwrap());
        disk.cut_power();
        (bytes(disk, "f"), disk.counts())
    };
    assert_eq!(run(&disk(7, HARSH)), run(&disk(7, HARSH)));
    assert_ne!(run(&disk(7, HARSH)).0, run(&disk(8, HARSH)).0);
}
