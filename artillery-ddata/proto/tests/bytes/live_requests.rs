//! Client requests from random bytes, to a running replica: a short version of `fuzz/fuzz_targets/live_requests.rs`
//! that doesn't need a nightly toolchain.

#[path = "live_requests/harness.rs"]
mod harness;

use std::fs;

use artillery_core::{Frame, internal::frame::FrameDecoder};
use harness::Counts;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn add(all: &mut Counts, counts: Counts) {
    counts.into_iter().for_each(|(kind, count)| *all.entry(kind).or_default() += count);
}

/// Checks that every kind of reply occurred: otherwise the bytes don't reach the code that they should test.
fn assert_has(counts: &Counts, kinds: &[&str]) {
    kinds.iter().for_each(|kind| assert!(counts.contains_key(kind), "no {kind} in {counts:?}"));
}

#[test]
fn random_requests_do_no_harm() {
    let mut counts = Counts::new();
    for seed in 0..1200 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut input = vec![0; random.random_range(2..2000)];
        random.fill_bytes(&mut input);
        input[0] &= 2;
        add(&mut counts, harness::run(&input));
    }
    println!("{counts:?}");
    assert_has(&counts, &["committed", "computed", "ran", "forgotten", "conflict", "read", "cut", "page", "last page"]);
    assert_has(&counts, &["changes", "part of changes", "no changes", "hashed", "expired", "busy", "session full"]);
    assert_has(&counts, &["session expired", "compacted", "update too large"]);
}

/// The requests among the vectors.
fn vectors() -> Vec<Frame> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire-1");
    let mut files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with("request-"));
    files.iter().map(|path| frame(&fs::read_to_string(path).unwrap())).collect()
}

fn frame(hex: &str) -> Frame {
    let digits: Vec<u8> = hex.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    let mut decoder = FrameDecoder::new(1 << 20);
    decoder.push(&bytes);
    decoder.next_frame().unwrap().unwrap()
}

#[test]
fn damaged_frames_do_no_harm() {
    let (vectors, mut counts) = (vectors(), Counts::new());
    for seed in 0..2000 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut input = vec![1 | (seed as u8 & 2)];
        for _ in 0..random.random_range(1..40) {
            let Frame { header, body } = &vectors[random.random_range(0..vectors.len())];
            let mut bytes = [&header[..], body].concat();
            for _ in 0..random.random_range(0..3) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
            input.extend([header.len(), body.len()].iter().flat_map(|&len| (len as u16).to_le_bytes()));
            input.extend(bytes);
        }
        add(&mut counts, harness::run(&input));
    }
    println!("{counts:?}");
    // The floors of the vectors' watches aren't reached here, so these wait.
    assert_has(&counts, &["committed", "computed", "conflict", "read", "cut", "last page", "no changes", "hashed"]);
}
