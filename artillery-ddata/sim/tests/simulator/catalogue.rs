//! Every guard that a mutant disables is hunted with seeds, or a unit test disables it and shows the consequence.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use artillery_proto::guards::Mutant;
use artillery_sim::mutants::HUNTED;

/// Mutants that no seed hunts, each with the file and the name of the test that disables the guard.
const TESTED: [(Mutant, &str, &str); 77] = [
    (
        Mutant::AnyAnswerRefutes,
        "proto/src/node/succession/tests/gave_way.rs",
        "nodes_that_were_away_together_and_believe_each_other_continue",
    ),
    (Mutant::LearnFromJoiners, DURABLE, "a_joiner_that_is_believed_halts_a_member"),
    (Mutant::FillFullDisks, "proto/src/replica/tests/full_members.rs", "a_head_that_ignores_full_members_adds"),
    (Mutant::LoseWhole, REOPEN, "an_order_that_takes_any_store_for_lost_loses_a_whole_one"),
    (Mutant::ReopenTorn, REOPEN, "a_torn_store_that_may_open_a_chain_does"),
    (Mutant::ReopenWeak, REOPEN, "a_weak_store_that_may_open_a_chain_does"),
    (Mutant::ReopenBelow, REOPEN, "a_store_that_ends_too_soon_and_may_open_a_chain_does"),
    (Mutant::QueueAll, DURABLE, "a_joiner_that_queues_all_has_no_bound"),
    (Mutant::ActUnkept, "proto/src/node/tests/durable.rs", "chains_that_act_too_soon_act_by_what_a_restart_forgets"),
    (Mutant::TakeCopies, "proto/src/node/tests/durable.rs", "an_older_copy_that_is_taken_in_is_heard"),
    (Mutant::LeadAgain, "src/control/embedded/tests/suite.rs", "a_restored_leadership_goes_on_without_an_election"),
    (Mutant::KeepOneCopy, DATA_DIR, "a_control_file_kept_once_is_torn"),
    (Mutant::NameNoSegment, DATA_DIR, "a_newest_segment_that_is_named_nowhere_is_not_missed"),
    (Mutant::ReleaseAll, DATA_DIR, "segments_removed_too_soon_are_missed"),
    (Mutant::ForgetWeak, DATA_DIR, "a_store_that_forgets_that_it_was_weak_counts_as_synced"),
    (Mutant::KeepHeardMarks, DURABLE, "a_mark_that_outlives_a_cut_commits_what_the_joiner_lacks"),
    (Mutant::StampLate, "proto/src/replica/tests/restore.rs", "a_late_watermark_commits_what_was_cut"),
    (Mutant::ReadOnce, JOURNAL, "what_is_read_once_is_lost_when_the_kernel_forgets_it"),
    (Mutant::CountRefused, JOURNAL, "what_is_refused_for_lack_of_room_comes_back"),
    (Mutant::CommitUndurable, DURABLE, "a_tail_that_ignores_disks_commits_what_no_disk_holds"),
    (Mutant::IgnoreMarks, DURABLE, "a_tail_that_ignores_marks_commits_what_the_head_may_lose"),
    (Mutant::KeepCutMarks, DURABLE, "a_cut_update_that_counts_commits_the_one_in_its_place"),
    (Mutant::TakeAnyMark, DURABLE, "a_mark_of_another_history_that_counts_commits_what_no_disk_holds"),
    (Mutant::SpeakTooSoon, DURABLE, "a_new_tail_that_answers_at_once_shows_an_older_value"),
    (Mutant::SyncAgain, JOURNAL, "a_sync_that_is_tried_again_loses_what_it_claims"),
    (Mutant::CountUnproven, JOURNAL, "what_is_counted_unproven_is_lost"),
    (Mutant::TrustName, JOURNAL, "a_segment_whose_name_was_not_synced_vanishes"),
    (Mutant::FillLittle, JOURNAL, "a_group_in_the_sector_of_a_synced_one_tears_it"),
    (Mutant::TakeDamageForTorn, "proto/src/journal/tests/damage.rs", "damage_that_counts_as_torn_is_silent"),
    (Mutant::ClaimUnsynced, JOURNAL, "a_claim_that_was_not_synced_makes_a_torn_end_damage"),
    (Mutant::NextTooSoon, JOURNAL, "a_segment_used_before_the_last_one_is_durable_leaves_a_gap"),
    (Mutant::NameTooSoon, JOURNAL, "a_segment_named_before_it_is_durable_has_no_beginning"),
    (
        Mutant::BelieveOldMessages,
        COORDINATOR,
        "the_last_member_known_to_live_stays_when_the_others_are_heard_by_old_messages",
    ),
    (Mutant::TolerateDeadJoiner, COORDINATOR, "a_joiner_that_holds_up_what_is_to_be_committed_is_moved_out"),
    (
        Mutant::BelieveOldClosing,
        "proto/src/control/coordinator/tests/reorder.rs",
        "an_old_report_of_a_closing_shows_none",
    ),
    (Mutant::KeepResigned, LEAVING, "a_resignation_that_stands_for_ever_stops_the_chain"),
    (Mutant::TakeOldResignation, LEAVING, "a_late_resignation_that_counts_removes_a_member_with_a_lease"),
    (
        Mutant::TakeUnvouchedResignation,
        LEAVING,
        "a_resignation_of_before_the_term_that_counts_removes_a_member_with_a_lease",
    ),
    (Mutant::AgreeAtOnce, LEAVING, "agreeing_at_once_lets_the_last_copy_resign"),
    (Mutant::TakeDeaf, GRAY, "a_deaf_member_that_is_taken_joins_again"),
    (
        Mutant::ForgetUnknown,
        COORDINATOR,
        "a_proposal_that_may_be_in_the_log_stays_so_though_another_attempt_is_refused",
    ),
    // About one of several hundred seeds catches it too.
    (Mutant::KeepHalted, GRAY, "a_halted_member_that_stays_keeps_its_place_for_ever"),
    (Mutant::TolerateUnheardJoiner, GRAY, "an_unheard_joiner_that_stays_keeps_a_spare_waiting"),
    (
        Mutant::KeepLast,
        "proto/src/control/coordinator/tests/settled.rs",
        "a_last_member_that_gets_no_joiner_can_not_leave",
    ),
    (
        Mutant::NeverYield,
        "proto/src/node/succession/tests.rs",
        "a_lone_member_that_never_gives_way_serves_beside_the_successor",
    ),
    (Mutant::LeaseLast, RUNNER, "a_lease_that_comes_last_is_not_taken"),
    (Mutant::TakeAnyStretch, RUNNER, "an_old_lease_that_counts_again_serves"),
    (Mutant::MixHistories, RUNNER, "mixed_histories_serve_requests_of_another_history"),
    (
        Mutant::AskBeforeOpen,
        "proto/src/replica/tests/guards.rs",
        "an_unopened_tail_would_promote_a_joiner_without_committed_updates",
    ),
    (Mutant::LoadWatermarkLate, "proto/src/replica/gate/tests.rs", "a_watermark_loaded_late_covers_a_dropped_version"),
    (
        Mutant::CompareSequences,
        "proto/src/replica/tests/reorder.rs",
        "sequences_alone_do_not_show_that_histories_differ",
    ),
    (Mutant::KeepDroppedStamps, CHAIN_TIME, "a_dropped_stamp_does_not_count"),
    (Mutant::KeepOlderBase, CHAIN_TIME, "time_before_the_newest_update_does_not_count"),
    (Mutant::WriteToDead, EXPIRY, "a_write_meets_no_dead_value"),
    (Mutant::RefuseRenewals, EXPIRY, "full_members_let_keys_be_renewed_and_removed"),
    (Mutant::ShowPendingStamp, CHAIN_TIME, "a_snapshot_begins_with_the_stamp_of_its_last_update"),
    (
        Mutant::TakeAnyAnswer,
        "proto/src/replica/tests/guards.rs",
        "an_answer_of_another_epoch_would_show_a_superseded_value",
    ),
    (
        Mutant::TakeWhileClearing,
        "proto/src/replica/tests/clearing.rs",
        "early_parts_would_be_cleared_without_the_guard",
    ),
    (Mutant::InitialiseAgain, EMBEDDED, "initialising_again_is_caught"),
    (Mutant::LeadUnapplied, EMBEDDED, "leading_unapplied_is_caught"),
    (Mutant::ConfirmWithoutQuorum, EMBEDDED, "confirming_without_a_quorum_is_caught"),
    (Mutant::KeepVote, EMBEDDED, "voting_as_the_old_incarnation_is_caught"),
    (Mutant::GiveUpWhenSlow, FORMATION, "every_rule_is_needed"),
    (Mutant::GiveUpWhenOneIsReplaced, FORMATION, "every_rule_is_needed"),
    (Mutant::AcceptTwo, FORMATION, "every_rule_is_needed"),
    (Mutant::FormAgain, FORMATION, "every_rule_is_needed"),
    (Mutant::AnyLife, FORMATION, "every_rule_is_needed"),
    (Mutant::MajorityAccepts, FORMATION, "every_rule_is_needed"),
    (Mutant::FormWithoutVote, FORMATION, "every_rule_is_needed"),
    (Mutant::BrokenPromise, FORMATION, "every_rule_is_needed"),
    (Mutant::RefuseForNow, FORMATION, "every_rule_is_needed"),
    (Mutant::ProposeOnAnswer, FORMATION, "every_rule_of_unequal_nodes_is_needed"),
    (Mutant::ReportAgain, FOLLOWER, "each_guard_is_needed"),
    (Mutant::RepeatChange, FOLLOWER, "each_guard_is_needed"),
    (Mutant::EndEarly, "proto/src/replica/tests/copies.rs", "a_file_that_ends_before_its_point_is_refused"),
    (Mutant::DigestNow, "proto/src/replica/tests/digests.rs", "a_digest_shows_its_point_although_writes_continue"),
    (Mutant::FreshVerdict, "proto/src/control/formation/poll/tests.rs", "the_soup_has_teeth"),
];

const COORDINATOR: &str = "proto/src/control/coordinator/tests/guards.rs";
const GRAY: &str = "proto/src/control/coordinator/tests/gray.rs";
const EXPIRY: &str = "proto/src/replica/tests/expiry.rs";
const CHAIN_TIME: &str = "proto/src/replica/tests/chain_time.rs";
const DATA_DIR: &str = "proto/src/data_dir/tests.rs";
const DURABLE: &str = "proto/src/replica/tests/durable.rs";
const JOURNAL: &str = "proto/src/journal/tests.rs";
const LEAVING: &str = "proto/src/control/coordinator/tests/leaving.rs";
const REOPEN: &str = "proto/src/control/coordinator/tests/reopen.rs";
const RUNNER: &str = "proto/src/runner/tests.rs";
const EMBEDDED: &str = "src/control/embedded/tests/seeds.rs";
const FOLLOWER: &str = "proto/src/follower/tests.rs";
const FORMATION: &str = "proto/src/control/formation/tests/chaos.rs";

fn library() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_mutant_is_hunted_or_taken_out_by_a_test() {
    let hunted = HUNTED.map(|(mutant, _)| mutant);
    let known: BTreeSet<_> = hunted.into_iter().chain(TESTED.map(|(mutant, ..)| mutant)).collect();
    let missing: Vec<_> = Mutant::ALL.iter().filter(|mutant| !known.contains(mutant)).collect();
    assert!(missing.is_empty(), "neither hunted by seeds nor taken out by a test: {missing:?}");
    assert_eq!(BTreeSet::from(hunted).len(), HUNTED.len(), "hunted once");
}

#[test]
fn every_test_of_the_catalogue_takes_its_mutant_out() {
    for (mutant, file, test) in TESTED {
        let source = read(&library().join(file));
        let (before, behind) =
            source.split_once(&format!("fn {test}() {{\n")).unwrap_or_else(|| panic!("no test {test} in {file}"));
        assert!(before.lines().rev().take(3).any(|line| line.ends_with("test]")), "{test} is no test");
        let (body, _) = behind.split_once("\n}").expect("the end of a test");
        assert!(body.contains(&format!("Mutant::{mutant:?}")), "{test} doesn't take {mutant:?} out");
    }
}

/// The text up to the parenthesis that closes the call.
fn arguments(call: &str) -> Option<&str> {
    let mut depth = 1;
    let end = call.find(|sign| {
        depth += i32::from(sign == '(') - i32::from(sign == ')');
        depth == 0
    })?;
    Some(&call[..end])
}

/// Collects the names of the mutants for which the code has a hook.
fn hooks(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("an entry of a folder").path();
        if path.file_stem().is_some_and(|stem| ["tests", "fixtures", "fake"].iter().any(|name| stem == *name)) {
            continue;
        }
        if path.is_dir() {
            hooks(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = read(&path);
            let shipped = source.split("\nmod tests {").next().into_iter().flat_map(str::lines);
            let source: String = shipped.filter_map(|line| line.split("//").next()).collect();
            let asked = source.split("allows!(").skip(1).filter_map(|call| arguments(call)?.rsplit_once(", "));
            found.extend(asked.map(|(_, mutant)| mutant.trim().to_owned()));
        }
    }
}

#[test]
fn every_mutant_takes_a_guard_out() {
    let mut found = BTreeSet::new();
    for folder in ["proto/src", "src", "sim/src"] {
        hooks(&library().join(folder), &mut found);
    }
    let without: Vec<_> = Mutant::ALL.iter().filter(|mutant| !found.contains(&format!("{mutant:?}"))).collect();
    assert!(without.is_empty(), "no guard asks for {without:?}");
}
