//! The contract of a [`Disk`], as a test suite for every implementation.
//!
//! It can't simulate a power cut, so only the simulated disk shows which bytes are durable.

use super::{Disk, DiskError, DiskFile};

/// Checks an empty disk.
///
/// # Panics
/// If the disk breaks its contract.
pub fn run(disk: &dyn Disk) {
    bytes_are_read_as_they_were_written(disk);
    names_are_given_and_taken(disk);
    open_files_outlive_their_names(disk);
}

fn whole(file: &dyn DiskFile) -> Vec<u8> {
    let length = file.length().expect("the file has a length");
    let mut bytes = vec![0xEE; usize::try_from(length).expect("a short file") + 10];
    let read = file.read_at(0, &mut bytes).expect("the file can be read");
    assert_eq!(read as u64, length, "a read ends with the file");
    bytes.truncate(read);
    bytes
}

fn bytes_are_read_as_they_were_written(disk: &dyn Disk) {
    let before = disk.free().expect("the free space is known");
    let mut file = disk.create("bytes").expect("the name is free");
    assert_eq!(file.length(), Ok(0));
    file.write_at(0, b"hello").expect("there is space");
    file.write_at(3, b"p, disk").expect("there is space");
    assert_eq!(whole(&*file), b"help, disk");
    file.write_at(1000, &[7; 600]).expect("there is space");
    let bytes = whole(&*file);
    assert_eq!((bytes.len(), &bytes[..10]), (1600, &b"help, disk"[..]));
    assert!(bytes[10..1000].iter().all(|&byte| byte == 0), "a gap is zero");
    assert!(bytes[1000..].iter().all(|&byte| byte == 7));
    file.sync().expect("the file can be synced");
    assert_eq!(whole(&*disk.open("bytes").expect("the file exists")), bytes, "another handle reads the same");
    assert_eq!(file.read_at(5000, &mut [0; 4]), Ok(0), "no bytes follow the end");
    assert!(disk.free().expect("the free space is known") <= before, "bytes use space");
}

fn names_are_given_and_taken(disk: &dyn Disk) {
    for (name, bytes) in [("b", b"b"), ("a", b"a")] {
        disk.create(name).expect("the name is free").write_at(0, bytes).expect("there is space");
    }
    assert_eq!(disk.create("a").err(), Some(DiskError::Exists("a".into())));
    assert_eq!(disk.names(), Ok(vec!["a".into(), "b".into(), "bytes".into()]), "names are sorted");
    disk.rename("a", "b").expect("the file exists");
    assert_eq!(whole(&*disk.open("b").expect("the file exists")), b"a", "the other file has lost its name");
    for missing in [disk.open("a").err(), disk.rename("a", "c").err(), disk.remove("a").err()] {
        assert_eq!(missing, Some(DiskError::Missing("a".into())));
    }
    disk.remove("b").expect("the file exists");
    disk.sync_names().expect("names can be synced");
    assert_eq!(disk.names(), Ok(vec!["bytes".into()]));
}

fn open_files_outlive_their_names(disk: &dyn Disk) {
    let mut file = disk.create("open").expect("the name is free");
    file.write_at(0, b"still").expect("there is space");
    disk.rename("open", "moved").expect("the file exists");
    file.write_at(5, b" here").expect("there is space");
    assert_eq!(whole(&*disk.open("moved").expect("the file exists")), b"still here");
    disk.remove("moved").expect("the file exists");
    assert_eq!(whole(&*file), b"still here");
    file.sync().expect("the file can be synced");
}
