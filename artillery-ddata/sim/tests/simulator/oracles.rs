//! Each oracle reports a failure when its rule is broken: a check that never caught anything proves nothing.

use std::{sync::Arc, time::Duration};

use artillery_proto::{
    ChainId, Incarnation, MemberId, NodeId, Sequence, Version,
    follower::{Copy, CopyEdit},
    guards::Guards,
    message::Fullness,
    replica::{Halt, Rereplication, Status},
    store::{Held, MemoryStore, ScanRecord, Size, Store, StoreBatch, StoreOp},
    types::update::{KeyChange, RequestKey, RequestOutcome, Update, UpdateKind},
};
use artillery_sim::{
    faults::{Fault, Planned},
    oracle::{ChainOracle, CopyOracle, Failure, Oracle, Requests, check_content},
    scenario::{SECOND, Scenario},
    world::World,
};
use bytes::Bytes;

fn update(sequence: u64, value: &'static str) -> Update {
    Update {
        version: Version::new(1, sequence),
        kind: UpdateKind::WRITE,
        request: None,
        outcome: RequestOutcome::Done,
        chain_time: 5,
        changes: [KeyChange::new("key".into(), Some(value.into()))].into_iter().collect(),
    }
}

fn history() -> Vec<Update> {
    vec![update(1, "a"), update(2, "b"), update(3, "c")]
}

fn status(last: u64, watermark: u64) -> Status {
    Status {
        durable: None,
        rereplication: Rereplication::default(),
        config: None,
        open: true,
        last: if last == 0 { Version::NONE } else { Version::new(1, last) },
        watermark: Sequence(watermark),
        in_flight: 0,
        backlog: 0,
        parked_reads: 0,
        waiting_writes: 0,
        sessions: Default::default(),
        snapshots: 0,
        watchers: 0,
        reads: Default::default(),
        expelled: None,
        resync: Default::default(),
        halted: None,
        size: Size::default(),
        full: Fullness::Nothing,
    }
}

/// A chain of three members that all hold three updates, two of them committed.
fn healthy() -> ChainOracle {
    let mut oracle = ChainOracle::new(3);
    for (place, watermark) in [(0, 0), (1, 0), (2, 2), (0, 2), (1, 1)] {
        oracle.observe(place, &status(3, watermark), history().iter()).unwrap();
    }
    oracle
}

fn broken(place: usize, status: &Status, history: &[Update]) -> Oracle {
    healthy().observe(place, status, history.iter()).unwrap_err().oracle
}

#[test]
fn a_healthy_chain_passes() {
    let mut oracle = healthy();
    assert_eq!(oracle.committed_up_to(), Sequence(2));
    let longer = [history(), vec![update(4, "d")]].concat();
    oracle.observe(0, &status(4, 2), longer.iter()).unwrap();
    // A short backlog shows only the end.
    oracle.observe(1, &status(4, 2), longer[3..].iter()).unwrap();
}

#[test]
fn a_successor_ahead_is_seen() {
    let longer = [history(), vec![update(4, "d")]].concat();
    assert_eq!(broken(1, &status(4, 1), &longer), Oracle::Prefix);
}

#[test]
fn an_update_dropped_too_early_is_seen() {
    let mut oracle = ChainOracle::new(2);
    oracle.observe(0, &status(3, 0), history().iter()).unwrap();
    oracle.observe(1, &status(1, 1), history()[..1].iter()).unwrap();
    oracle.observe(0, &status(3, 1), history()[1..].iter()).unwrap();
    let failure = oracle.observe(0, &status(3, 1), history()[2..].iter()).unwrap_err();
    assert_eq!(failure.oracle, Oracle::Sent);
}

#[test]
fn a_successor_with_another_history_is_seen() {
    let mut oracle = healthy();
    let ours = [history(), vec![update(4, "d")]].concat();
    let theirs = [history(), vec![update(4, "not d")]].concat();
    oracle.observe(0, &status(4, 2), ours.iter()).unwrap();
    let failure = oracle.observe(1, &status(4, 1), theirs.iter()).unwrap_err();
    assert_eq!(failure.oracle, Oracle::Prefix);
}

#[test]
fn a_gap_and_a_step_back_are_seen() {
    let gap = [history(), vec![update(5, "e")]].concat();
    assert_eq!(broken(0, &status(5, 2), &gap), Oracle::Contiguity);
    assert_eq!(broken(1, &status(2, 1), &history()[..2]), Oracle::Contiguity);
    let mut early = update(4, "d");
    early.chain_time = 4;
    assert_eq!(broken(0, &status(4, 2), &[history(), vec![early]].concat()), Oracle::Contiguity);
    assert_eq!(broken(0, &status(4, 2), &history()), Oracle::Contiguity, "a status beyond the history");
}

#[test]
fn chain_time_that_runs_ahead_is_seen() {
    let member = MemberId { node: NodeId::from_name("n1"), incarnation: Incarnation { store: 1, starts: 1 } };
    // The second update is made two seconds after the first one.
    let rises = |by: u64| {
        let mut oracle = ChainOracle::moving(20_000);
        let updates = [update(1, "a"), Update { chain_time: 5 + by, ..update(2, "b") }];
        for (last, at) in [(1, SECOND), (2, 3 * SECOND)] {
            let status = status(last, last);
            oracle.observe_life([at, at], (0, member), &status, updates[..last as usize].iter())?;
        }
        Ok(())
    };
    assert_eq!(rises(2000), Ok(()));
    assert_eq!(rises(2500).map_err(|failure: Failure| failure.oracle), Err(Oracle::ChainTime));
}

#[test]
fn a_false_watermark_is_seen() {
    assert_eq!(broken(0, &status(3, 3), &history()), Oracle::Watermark, "above the tail's");
    assert_eq!(broken(0, &status(3, 1), &history()), Oracle::Watermark, "back");
    assert_eq!(broken(2, &status(3, 4), &history()), Oracle::Watermark, "above its own history");
}

#[test]
fn a_halt_is_seen() {
    let halted = Halt::WatermarkAhead { watermark: Sequence(9), last: Sequence(3) };
    assert_eq!(broken(1, &Status { halted: Some(halted), ..status(3, 1) }, &history()), Oracle::Halted);
}

#[test]
fn a_false_claim_is_seen() {
    let oracle = healthy();
    let check = |sequence, value: &'static str, committed| {
        oracle.check_claim(b"key", Version::new(1, sequence), Some(&Bytes::from(value)), committed)
    };
    check(2, "b", true).unwrap();
    check(3, "c", false).unwrap();
    for failure in [check(3, "c", true), check(2, "a", true), check(4, "d", false)] {
        assert_eq!(failure.unwrap_err().oracle, Oracle::Claims);
    }
    let other_key = oracle.check_claim(b"other", Version::new(1, 2), Some(&Bytes::from("b")), false);
    assert_eq!(other_key.unwrap_err().oracle, Oracle::Claims);
}

#[test]
fn answers_as_of_a_point_are_checked_against_the_log() {
    let oracle = healthy();
    let held = |sequence, value: &'static str| Held::new(Version::new(1, sequence), Some(value.into()));
    let exact = |held: Option<&Held>, as_of| oracle.check_exact(b"key", held, Sequence(as_of));
    exact(Some(&held(2, "b")), 2).unwrap();
    exact(None, 0).unwrap();
    for wrong in [exact(Some(&held(1, "a")), 2), exact(Some(&held(3, "c")), 2), exact(None, 1)] {
        assert_eq!(wrong.unwrap_err().oracle, Oracle::Claims);
    }
    let behind = |held: Option<&Held>, as_of| oracle.check_not_behind(b"key", held, Sequence(as_of));
    behind(Some(&held(3, "c")), 2).unwrap();
    for wrong in [behind(Some(&held(1, "a")), 2), behind(None, 1)] {
        assert_eq!(wrong.unwrap_err().oracle, Oracle::Claims);
    }
}

#[test]
fn a_request_done_twice_is_seen() {
    let of = |sequence, kind, session: u64, number| Update {
        request: (session > 0).then(|| RequestKey { session: Version::new(1, session), number, lowest: 0 }),
        kind,
        ..update(sequence, "a")
    };
    let (open, write, evict) = (UpdateKind::SESSION_OPEN, UpdateKind::WRITE, UpdateKind::SESSION_EVICT);
    let take = |updates: &[Update]| {
        let mut requests = Requests::default();
        updates.iter().try_for_each(|update| requests.take_in(update)).map_err(|failure| failure.oracle)
    };
    let fine = [of(1, open, 0, 0), of(2, write, 1, 1), of(3, write, 1, 2), of(4, write, 0, 0), of(5, evict, 1, 0)];
    assert_eq!(take(&fine), Ok(()));
    assert_eq!(take(&[&fine[..3], &[of(4, write, 1, 1)]].concat()), Err(Oracle::Once), "twice");
    assert_eq!(take(&[&fine[..], &[of(6, write, 1, 3)]].concat()), Err(Oracle::Once), "evicted");
    assert_eq!(take(&[of(1, write, 7, 1)]), Err(Oracle::Once), "never opened");
}

fn stored(updates: &[Update]) -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::with_seed(1));
    for update in updates {
        let put = |change: &KeyChange| StoreOp::Put {
            key: change.key.clone(),
            held: Held::new(update.version, change.value.clone()),
        };
        let ops = update.changes.iter().map(put).collect();
        store.apply(&StoreBatch { chain: ChainId(0), keep_from: Sequence::ZERO, ops }).unwrap();
    }
    store
}

fn compare(updates: &[Update]) -> Result<(), Failure> {
    let records: Vec<ScanRecord> =
        stored(updates).scan(ChainId(0), b"", Sequence::MAX).collect::<Result<_, _>>().unwrap();
    check_content("n0", &healthy().content(Sequence(3)), records.into_iter())
}

#[test]
fn a_damaged_store_is_seen() {
    compare(&history()).unwrap();
    let mut foreign = update(2, "x");
    foreign.changes[0].key = "another key".into();
    let damaged = [
        history()[..2].to_vec(),
        vec![update(1, "a"), update(2, "b"), update(3, "flipped")],
        vec![],
        [history(), vec![foreign]].concat(),
    ];
    for store in damaged {
        assert_eq!(compare(&store).unwrap_err().oracle, Oracle::Convergence, "{store:?}");
    }
}

/// The failure of a world with a fault that never ends.
fn unhealed(fault: Fault) -> Option<Oracle> {
    let mut setup = Scenario::Calm.setup(1, None);
    setup.resend = Some(Duration::from_millis(200));
    setup.faults = vec![Planned { fault, start: SECOND, end: u64::MAX }];
    World::new(1, setup, false).run().failure.map(|failure| failure.oracle)
}

#[test]
fn a_chain_that_never_heals_is_seen() {
    assert_eq!(unhealed(Fault::Break(0, 1)), Some(Oracle::Progress));
    assert_eq!(unhealed(Fault::Cut(1, 2)), Some(Oracle::Progress));
    assert_eq!(unhealed(Fault::Loss(1000)), Some(Oracle::Progress));
    // The watermark also arrives along the chain.
    assert_eq!(unhealed(Fault::Cut(2, 0)), None);
}

#[test]
fn a_copy_shows_committed_states_and_reports_each_change_once() {
    let chain = healthy();
    let edit = |update: &Update| {
        let value = update.changes.iter().next().and_then(|change| change.value.clone());
        CopyEdit::Update(vec![ScanRecord { key: "key".into(), held: Held::new(update.version, value) }])
    };
    let [first, second, third] = &history()[..] else { panic!("three updates") };
    let copied = |updates: &[&Update], at: u64| {
        let (mut copy, mut oracle) = (Copy::new(Guards::ALL), CopyOracle::new(Bytes::new()));
        let edits = updates.iter().map(|update| edit(update)).chain([CopyEdit::Reach(Sequence(at))]);
        edits.into_iter().try_for_each(|edit| oracle.report(copy.edit(edit), false))?;
        oracle.check(&chain, &copy, Sequence(at), false)?;
        oracle.check_whole(&copy)
    };
    assert_eq!(copied(&[first, second], 2), Ok(()));
    assert_eq!(copied(&[second], 2), Ok(()));
    for (updates, at) in [(&[first][..], 2), (&[first, second], 1), (&[first, second, third], 3), (&[first, first], 1)]
    {
        let failure = copied(updates, at).expect_err("a wrong copy");
        assert_eq!(failure.oracle, Oracle::Copies);
    }
}
