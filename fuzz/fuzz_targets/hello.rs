//! The first frame on a connection, and the reason with which one is closed: nobody's certificate vouches for it yet.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| artillery_core::internal::fuzzing::hello(data));
