//! A run of three nodes with disks, repeated with power cuts at its writes and syncs. Some of them are tried here, all of them
//! by `artillery-sim --every-write`.

use artillery_proto::guards::{Guards, Mutant};
use artillery_sim::every_write::{EveryWriteReport, Reference};

/// Every cut whose number is divisible by this is tried. Odd, so that both kinds of cuts are among them.
const STEP: u64 = 101;

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
    assert!(at_one.cuts >= 40 && at_all.cuts >= 40, "{report}");
    assert!(at_one.lossy * 10 >= at_one.cuts * 3 && at_all.lossy * 10 >= at_all.cuts * 3, "{report}");
    assert_eq!(report.violations, 0, "{report}");
}

#[test]
fn what_a_mutant_does_is_noticed() {
    for mutant in [Mutant::CommitUndurable, Mutant::ReleaseAll] {
        let report = reference(Guards::without(mutant)).report(0, STEP, u64::MAX);
        assert!(report.failures().any(|failure| failure.oracle.convicts()), "{}: {report}", mutant.name());
    }
}

#[test]
#[ignore]
fn sweep() {
    let step = std::env::var("STEP").unwrap().parse().unwrap();
    for name in std::env::var("MUTANTS").unwrap().split(' ') {
        let mutant = Mutant::ALL.iter().copied().find(|mutant| mutant.name() == name).unwrap();
        let began = std::time::Instant::now();
        match Reference::run(Guards::without(mutant)) {
            Err(failure) => println!("{}: the reference fails: {}", mutant.name(), failure.oracle),
            Ok(reference) => {
                let report = reference.report(0, step, u64::MAX);
                let by: Vec<_> = report.failures().map(|failure| failure.oracle.name()).collect();
                println!(
                    "{}: {} violations of {} {by:?} {:?}",
                    mutant.name(),
                    report.violations,
                    report.at_one.cuts + report.at_all.cuts,
                    began.elapsed()
                );
            }
        }
    }
}
