//! Entries of a group of the journal, as a start finds them on the disk.
#![no_main]

use artillery_proto::journal::{decode_entries, encode_entries};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let group = Bytes::copy_from_slice(data);
    let entries: Vec<_> = decode_entries(&group).map_while(Result::ok).collect();
    let written = Bytes::from(encode_entries(&entries).expect("a decoded entry can be encoded"));
    let again: Result<Vec<_>, _> = decode_entries(&written).collect();
    assert_eq!(again.as_ref(), Ok(&entries));
});
