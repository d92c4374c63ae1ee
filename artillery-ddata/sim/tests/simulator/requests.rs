//! The guarantees for requests, in worlds made for them: applied once, settled permanently, atomic, monotonic.

use std::time::Duration;

use artillery_sim::{
    client::{Keys, Mix},
    faults::{Fault, Planned},
    network::Profile,
    oracle::Oracle,
    runner::run,
    scenario::{SECOND, Scenario, Setup},
    world::{Counts, Outcome, World},
};

const MILLI: u64 = 1_000_000;

fn retries(seed: u64) -> Setup {
    Scenario::Retries.setup(seed, None)
}

/// One application with more than 4,096 appends and increments in flight, over lossy links. Each is retried up to three
/// times through any node, and half of the answered ones are duplicated later. The size of the session table is checked
/// after each step.
#[test]
fn thousands_in_flight_are_each_applied_once() {
    let lossy = |fault| Planned { fault, start: 0, end: 9 * SECOND };
    // Nothing is committed until all clients have sent a request.
    let broken = Planned { fault: Fault::Break(1, 2), start: 12 * MILLI, end: 600 * MILLI };
    let base = retries(1);
    let profile = Profile { delay: 300_000, jitter: 300_000, room: 4 << 20, nasty: true, uneven: false };
    let setup = Setup {
        members: 3,
        clients: 4800,
        lanes: 4800,
        keys: Keys { registers: 0, lists: 1, counters: 1, chains: 1 },
        mix: Mix { writes: 1000, batches: 0, numbered: 1000, duplicates: 500, settled: 0, writers: 0, ..base.mix },
        window: 64 << 20,
        // A session may use a quarter of the table, which must hold the records of all requests in flight.
        session_bytes: 2 << 20,
        backlog: 64 << 20,
        padding: 0,
        patience: (8 * SECOND, 10 * SECOND),
        attempt: (5 * MILLI, 800 * MILLI),
        retries: 3,
        bursts: Some(SECOND / 2),
        profile,
        resend: Some(Duration::from_millis(50)),
        // At this number of turns, late ones would leave no time for anything else.
        late_turns: 0,
        late_polls: 0,
        batch: 64,
        most: 4801,
        faults: vec![lossy(Fault::Loss(200)), lossy(Fault::Duplication(300)), lossy(Fault::Reorder(300)), broken],
        crash: None,
        wired: false,
        ..base
    };
    let Outcome { counts, failure, .. } = World::new(1, setup, false).run();
    assert_eq!(failure, None);
    assert!(counts.in_flight >= 4096, "{counts:?}");
    assert!(counts.retries >= 1000 && counts.duplicates >= 1000, "{counts:?}");
    assert_eq!(counts.most_retries, 3);
    assert!(counts.acknowledged >= 4096 && counts.unanswered < 200, "{counts:?}");
    assert!(counts.session_bytes >= 4096 * 96 && counts.session_bytes <= 1 << 20, "{counts:?}");
}

#[test]
fn retry_in_an_evicted_session_is_refused() {
    let counts = sum(Scenario::Evictions, 0..4);
    assert!(counts.expired_sessions >= 100, "{counts:?}");
    assert!(counts.acknowledged >= 4000, "{counts:?}");
}

/// A session moves between nodes and never goes backwards. Without its floor it does, and the client history shows it.
#[test]
fn a_session_without_its_floor_goes_back() {
    let seeds = 0..8;
    for seed in seeds.clone() {
        assert_eq!(run(Scenario::Sessions, seed, None, false).failure, None);
    }
    let went_back = |seed| {
        let setup = Setup { floors: false, ..Scenario::Sessions.setup(seed, None) };
        let failure = World::new(seed, setup, false).run().failure?;
        assert_eq!(failure.oracle, Oracle::History, "{failure}");
        assert!(failure.what.starts_with("a session went back"), "{failure}");
        Some(seed)
    };
    let caught: Vec<u64> = seeds.filter_map(went_back).collect();
    assert!(!caught.is_empty());
}

/// Ten keys are written only by batches, while clients read them together and scan them.
#[test]
fn whole_batches_are_seen_whole() {
    for seed in 0..6 {
        let base = Scenario::Batches.setup(seed, None);
        let keys = Keys { registers: 10, lists: 0, counters: 0, chains: 1 };
        let mix = Mix { whole_batches: true, writes: 500, swaps: 0, cuts: 800, ..base.mix };
        let outcome = World::new(seed, Setup { keys, mix, ..base }, false).run();
        assert_eq!(outcome.failure, None);
        assert!(outcome.counts.acknowledged >= 200, "{:?}", outcome.counts);
    }
}

#[test]
fn dirty_reads_of_a_hot_key_share_their_queries() {
    let counts = sum(Scenario::Readers, 0..6);
    assert!(counts.version_queries >= 100, "{counts:?}");
    assert!(counts.dirty_reads >= 8 * counts.version_queries, "{counts:?}");
}

/// Snapshots that are too old or too costly fail. Scans still succeed.
#[test]
fn snapshots_end() {
    for seed in 0..4 {
        let base = Scenario::Batches.setup(seed, None);
        let mix = Mix { scans: 900, cuts: 0, ..base.mix };
        let setup = Setup { mix, snapshot_age: Duration::from_millis(200), snapshot_bytes: 4 << 10, ..base };
        assert_eq!(World::new(seed, setup, false).run().failure, None);
    }
}

fn sum(scenario: Scenario, seeds: std::ops::Range<u64>) -> Counts {
    let mut sum = Counts::default();
    for seed in seeds {
        let outcome = run(scenario, seed, None, false);
        assert_eq!(outcome.failure, None, "seed {seed}");
        sum.add(&outcome.counts);
    }
    sum
}

/// Walks complete and show all keys that stay. Most of their pages end between positions shared by several keys.
#[test]
fn walks_in_hash_order_end() {
    let counts = sum(Scenario::Walks, 0..6);
    assert!(counts.walks >= 300, "{counts:?}");
}
