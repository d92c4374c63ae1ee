//! Every guard that can be taken out is hunted by seeds, or a test takes it out and sees what goes wrong.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use artillery_sim::mutants::MutantName;

/// Mutants that no seed of the simulator hunts: the room of the enum, the variant, the file of the test that takes the guard
/// out, and the name of that test.
const TESTED: [(&str, &str, &str, &str); 33] = [
    (
        "coordinator",
        "BelieveOldMessages",
        COORDINATOR,
        "the_last_member_known_to_live_stays_when_the_others_are_heard_by_old_messages",
    ),
    ("coordinator", "TolerateDeadJoiner", COORDINATOR, "a_joiner_that_holds_up_what_is_to_be_committed_is_moved_out"),
    (
        "coordinator",
        "BelieveOldClosing",
        "proto/src/control/coordinator/tests/reorder.rs",
        "an_old_report_of_a_closing_shows_none",
    ),
    ("coordinator", "KeepResigned", LEAVING, "a_resignation_that_stands_for_ever_stops_the_chain"),
    ("coordinator", "TakeOldResignation", LEAVING, "a_late_resignation_that_counts_removes_a_member_with_a_lease"),
    (
        "coordinator",
        "TakeUnvouchedResignation",
        LEAVING,
        "a_resignation_of_before_the_term_that_counts_removes_a_member_with_a_lease",
    ),
    ("coordinator", "AgreeAtOnce", LEAVING, "agreeing_at_once_lets_the_last_copy_resign"),
    ("coordinator", "TakeDeaf", GRAY, "a_deaf_member_that_is_taken_joins_again"),
    (
        "coordinator",
        "ForgetUnknown",
        COORDINATOR,
        "a_proposal_that_may_be_in_the_log_stays_so_though_another_attempt_is_refused",
    ),
    // Seeds catch it too, one of several hundred.
    ("coordinator", "KeepHalted", GRAY, "a_halted_member_that_stays_keeps_its_place_for_ever"),
    ("coordinator", "TolerateUnheardJoiner", GRAY, "an_unheard_joiner_that_stays_keeps_a_spare_waiting"),
    (
        "coordinator",
        "KeepLast",
        "proto/src/control/coordinator/tests/settled.rs",
        "a_last_member_that_gets_no_joiner_can_not_leave",
    ),
    (
        "node",
        "NeverYield",
        "proto/src/node/succession/tests.rs",
        "a_lone_member_that_never_gives_way_serves_beside_the_successor",
    ),
    ("runner", "LeaseLast", RUNNER, "a_lease_that_comes_last_is_not_taken"),
    ("runner", "TakeAnyStretch", RUNNER, "an_old_lease_that_counts_again_serves"),
    ("runner", "MixHistories", RUNNER, "histories_that_are_mixed_show_and_take_what_is_of_another_one"),
    (
        "replica",
        "AskBeforeOpen",
        "proto/src/replica/tests/guards.rs",
        "a_tail_that_is_not_open_would_promote_who_lacks_what_was_committed",
    ),
    (
        "replica",
        "LoadWatermarkLate",
        "proto/src/replica/gate/tests.rs",
        "a_watermark_loaded_late_covers_a_dropped_version",
    ),
    (
        "replica",
        "CompareSequences",
        "proto/src/replica/tests/reorder.rs",
        "sequences_alone_do_not_show_that_histories_have_parted",
    ),
    (
        "replica",
        "TakeAnyAnswer",
        "proto/src/replica/tests/guards.rs",
        "an_answer_of_another_epoch_would_show_what_is_superseded",
    ),
    (
        "replica",
        "TakeWhileClearing",
        "proto/src/replica/tests/clearing.rs",
        "parts_that_are_taken_in_early_would_be_cleared_too",
    ),
    ("embedded", "InitialiseAgain", EMBEDDED, "a_node_that_begins_the_log_again_is_caught"),
    ("embedded", "LeadUnapplied", EMBEDDED, "a_leader_that_has_not_applied_is_caught"),
    ("embedded", "ConfirmWithoutQuorum", EMBEDDED, "a_confirmation_without_a_majority_is_caught"),
    ("embedded", "KeepVote", EMBEDDED, "a_node_that_votes_as_its_former_self_is_caught"),
    ("formation", "GiveUpWhenSlow", FORMATION, "every_rule_is_needed"),
    ("formation", "GiveUpWhenOneIsReplaced", FORMATION, "every_rule_is_needed"),
    ("formation", "AnyLife", FORMATION, "every_rule_is_needed"),
    ("formation", "MajorityAccepts", FORMATION, "every_rule_is_needed"),
    ("formation", "FormWithoutVote", FORMATION, "every_rule_is_needed"),
    ("formation", "BrokenPromise", FORMATION, "every_rule_is_needed"),
    ("formation", "RefuseForNow", FORMATION, "every_rule_is_needed"),
    ("formation", "FreshVerdict", "proto/src/control/formation/poll/tests.rs", "the_soup_has_teeth"),
];

const COORDINATOR: &str = "proto/src/control/coordinator/tests/guards.rs";
const GRAY: &str = "proto/src/control/coordinator/tests/gray.rs";
const LEAVING: &str = "proto/src/control/coordinator/tests/leaving.rs";
const RUNNER: &str = "proto/src/runner/tests.rs";
const EMBEDDED: &str = "src/control/embedded/tests/seeds.rs";
const FORMATION: &str = "proto/src/control/formation/tests/chaos.rs";

fn library() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The variants of the enum of this name in `text`, if it is there.
fn variants(text: &str, name: &str) -> Option<Vec<String>> {
    let (_, behind) = text.split_once(&format!("enum {name} {{\n"))?;
    let (body, _) = behind.split_once("\n}").expect("the end of an enum");
    let lines = body.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    Some(lines.map(|line| line.strip_suffix(',').unwrap_or(line).to_owned()).collect())
}

/// All mutants below `folder`, each with the room of its enum.
fn mutants(folder: &Path, found: &mut BTreeSet<(String, String)>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry of it").path();
        if path.is_dir() {
            mutants(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && let Some(variants) = variants(&read(&path), "Mutant")
        {
            let room = folder.file_name().and_then(|name| name.to_str()).expect("the name of a room").to_owned();
            found.extend(variants.into_iter().map(|variant| (room.clone(), variant)));
        }
    }
}

fn all_mutants() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    ["src", "proto/src"].into_iter().for_each(|half| mutants(&library().join(half), &mut found));
    found
}

/// Those that seeds hunt: `every_mutant_is_caught` runs them.
fn hunted() -> BTreeSet<(String, String)> {
    let entry = |room: &str, variant: String| (room.to_owned(), variant);
    let lines = MutantName::ALL.into_iter().filter_map(|name| {
        let replica = name.guard().map(|mutant| entry("replica", format!("{mutant:?}")));
        let coordinator = name.coordinator().map(|mutant| entry("coordinator", format!("{mutant:?}")));
        let formation = name.formation().map(|mutant| entry("formation", format!("{mutant:?}")));
        let runner = name.runner().map(|mutant| entry("runner", format!("{mutant:?}")));
        let node = name.node().map(|mutant| entry("node", format!("{mutant:?}")));
        replica.or(coordinator).or(formation).or(runner).or(node)
    });
    lines.collect()
}

#[test]
fn every_mutant_of_every_enum_is_in_the_catalogue() {
    let all = all_mutants();
    let rooms: BTreeSet<_> = all.iter().map(|(room, _)| room.as_str()).collect();
    assert_eq!(
        rooms,
        ["coordinator", "embedded", "formation", "node", "replica", "runner"].into(),
        "rooms that have mutants"
    );
    let tested = TESTED.map(|(room, variant, ..)| (room.to_owned(), variant.to_owned()));
    let known: BTreeSet<_> = hunted().into_iter().chain(tested).collect();
    let missing: Vec<_> = all.difference(&known).collect();
    assert!(missing.is_empty(), "neither hunted by seeds nor taken out by a test: {missing:?}");
    let gone: Vec<_> = known.difference(&all).collect();
    assert!(gone.is_empty(), "in the catalogue, and no mutant any more: {gone:?}");
}

#[test]
fn every_name_of_the_simulator_has_its_line() {
    let source = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/mutants.rs"));
    let named: BTreeSet<_> = variants(&source, "MutantName").expect("the enum").into_iter().collect();
    assert_eq!(named, MutantName::ALL.iter().map(|name| format!("{name:?}")).collect());
}

#[test]
fn every_test_of_the_catalogue_takes_its_mutant_out() {
    for (_, variant, file, test) in TESTED {
        let source = read(&library().join(file));
        let (before, behind) =
            source.split_once(&format!("fn {test}() {{\n")).unwrap_or_else(|| panic!("no test {test} in {file}"));
        assert!(before.lines().rev().take(3).any(|line| line.ends_with("test]")), "{test} is no test");
        let (body, _) = behind.split_once("\n}").expect("the end of a test");
        assert!(body.contains(&format!("Mutant::{variant}")), "{test} doesn't take {variant} out");
    }
}
