//! Answers to a question by mDNS, which any host of the network may send.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| artillery_core::internal::fuzzing::mdns_answer(data));
