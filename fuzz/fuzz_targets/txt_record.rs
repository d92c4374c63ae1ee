//! TXT records, which any host of the network may announce by mDNS.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| artillery_core::internal::fuzzing::txt_record(data));
