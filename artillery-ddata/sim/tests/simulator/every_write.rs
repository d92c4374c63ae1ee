//! A run of three nodes with a sample of its power cuts. `artillery-sim --every-write` tries all of them.

use artillery_proto::guards::{Guards, Mutant};
use artillery_sim::{
    every_write::{EveryWriteReport, Reference},
    oracle::Oracle,
    runner::Runner,
};

/// Every cut whose number is divisible by this is tried. Odd, so that both kinds of cuts are included.
const STEP: u64 = 151;

fn reference(guards: Guards) -> Reference {
    Reference::run(guards).unwrap_or_else(|failure| panic!("the run without a power cut: {failure}"))
}

#[test]
fn nothing_acknowledged_is_lost_wherever_the_power_fails() {
    let reference = reference(Guards::ALL);
    let report = reference.report(0, STEP, u64::MAX);
    println!("{report}");
    let EveryWriteReport { writes, syncs, acknowledged, checkpoints, joiners, orders, at_one, at_all, .. } = report;
    assert!(writes + syncs >= 2_000 && acknowledged >= 400, "{report}");
    assert!(checkpoints >= 5 && joiners == 1 && orders == 1, "{report}");
    assert!(at_one.cuts >= 30 && at_all.cuts >= 30, "{report}");
    assert!(at_one.lossy * 10 >= at_one.cuts * 3 && at_all.lossy * 10 >= at_all.cuts * 3, "{report}");
    assert_eq!(report.violations, 0, "{report}");
}

#[test]
fn updates_that_are_committed_too_soon_show_without_a_cut() {
    for mutant in [Mutant::CommitUndurable, Mutant::IgnoreMarks] {
        let failure = Reference::run(Guards::without(mutant)).expect_err(mutant.name());
        assert_eq!(failure.oracle, Oracle::Durable);
    }
}

#[test]
fn what_a_journal_lacks_shows_after_a_cut() {
    for mutant in [Mutant::ReleaseAll, Mutant::NameTooSoon, Mutant::NextTooSoon] {
        let reference = reference(Guards::without(mutant));
        let failure = |n| reference.cut(n * STEP).and_then(|cut| reference.repeat(cut, false).failure);
        let convicts = |n| failure(n).filter(|failure| failure.oracle.convicts());
        assert!(Runner::default().first(reference.cuts() / STEP, convicts).is_some(), "{}", mutant.name());
    }
}
