//! Runs with faults by seed, the healing after them, and runs without one of the guards.

use std::time::Duration;

use artillery_proto::guards::{Guards, Mutant};

use super::group::Group;

struct Done {
    /// The time from healing until all nodes followed one leader.
    took: Option<Duration>,
    appended: u64,
    confirmed: u64,
    terms: usize,
    digest: u64,
}

/// One run; the error is the violation that it found.
fn run(seed: u64, guards: Guards) -> Result<Done, String> {
    // If majorities may be lost permanently, only consistency is promised.
    let lethal = seed % 4 == 3;
    run_of(seed, lethal, |founders, nodes| Group::new(seed, founders, nodes, lethal, guards))
}

/// Like [`run`], with disks: all nodes may stop at once.
fn run_durable(seed: u64, guards: Guards) -> Result<Done, String> {
    run_of(seed, false, |founders, nodes| Group::durable(seed, founders, nodes, guards))
}

fn run_of(seed: u64, lethal: bool, group: impl FnOnce(usize, usize) -> Group) -> Result<Done, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let founders = 1 + (seed % 5) as usize;
        let group = group(founders, founders.max(3) + (seed / 5 % 2) as usize);
        for n in 0..founders {
            group.start(n).await;
            tokio::time::sleep(Duration::from_millis(group.net.below(1 + seed % 3 * 100))).await;
        }
        group.rough(Duration::from_millis(2000 + group.net.below(8000))).await;
        let recovered = if lethal { None } else { Some(group.recover().await) };
        group.end().await;
        let book = group.book();
        match &book.violation {
            Some(violation) => Err(violation.clone()),
            None => {
                let (appended, confirmed, terms) = (book.appended, book.confirmed, book.terms());
                Ok(Done { took: recovered.transpose()?, appended, confirmed, terms, digest: group.net.world().digest })
            }
        }
    })
}

fn sound(seed: u64) -> Done {
    run(seed, Guards::ALL).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"))
}

/// The seeds to run: `EMBEDDED_SEEDS` is their number, `EMBEDDED_FIRST` the first one.
fn seeds() -> std::ops::Range<u64> {
    let number = |name, default| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let first = number("EMBEDDED_FIRST", 0);
    first..first + number("EMBEDDED_SEEDS", 60)
}

#[test]
fn faults_cause_no_contradiction_and_recovery_ends() {
    let (mut slowest, mut appended, mut confirmed, mut terms) = ((Duration::ZERO, 0), 0, 0, 0);
    for seed in seeds() {
        let done = sound(seed);
        slowest = slowest.max((done.took.unwrap_or_default(), seed));
        appended += done.appended;
        confirmed += done.confirmed;
        terms += done.terms;
    }
    println!("{appended} entries, {confirmed} confirmations, {terms} terms; slowest recovery {slowest:?}");
    assert!(appended > 0 && confirmed > 0 && terms > 0);
}

#[test]
fn a_log_on_disks_outlives_all_of_its_nodes() {
    let (mut appended, mut terms) = (0, 0);
    for seed in seeds() {
        let done = run_durable(seed, Guards::ALL).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        appended += done.appended;
        terms += done.terms;
    }
    println!("{appended} entries, {terms} terms");
    assert!(appended > 0 && terms > 0);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [5, 12] {
        assert_eq!(sound(seed).digest, sound(seed).digest, "seed {seed}");
    }
}

/// Asserts that one of `within` seeds fails without the guard, with one of the reasons in `because`.
fn caught(mutant: Mutant, within: u64, because: &[&str]) {
    let notices = |seed| {
        let violation = run(seed, Guards::without(mutant)).err()?;
        because.iter().any(|because| violation.contains(because)).then_some((seed, violation))
    };
    let (seed, violation) =
        (0..within).find_map(notices).unwrap_or_else(|| panic!("{mutant:?} was not noticed within {within} seeds"));
    println!("{mutant:?}: seed {seed}: {violation}");
}

const TWO_LOGS: [&str; 4] = ["lead in term", "where others have", "other configurations", "was acknowledged before"];

#[test]
fn initialising_again_is_caught() {
    caught(Mutant::InitialiseAgain, 50, &TWO_LOGS);
}

#[test]
fn leading_unapplied_is_caught() {
    caught(Mutant::LeadUnapplied, 300, &["was acknowledged before"]);
}

#[test]
fn confirming_without_a_quorum_is_caught() {
    caught(Mutant::ConfirmWithoutQuorum, 100, &["confirmed"]);
}

#[test]
fn voting_as_the_old_incarnation_is_caught() {
    caught(Mutant::KeepVote, 300, &TWO_LOGS);
}
