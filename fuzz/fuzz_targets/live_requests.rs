//! Requests of clients at a running replica: they don't end it, the memory that it holds for them is bounded, and each gets
//! one reply that can be sent. The harness is that of a test of artillery-proto.
#![no_main]

#[path = "../../artillery-ddata/proto/tests/bytes/live_requests/harness.rs"]
mod harness;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    harness::run(data);
});
