//! The first frame on a connection, and the reason with which a connection is closed. Their sender is not authenticated yet.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| artillery_core::internal::fuzzing::hello(data));
