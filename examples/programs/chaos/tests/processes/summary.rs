//! Runs of `chaos` for a few seconds; `.ci/run chaos` has longer ones.

use std::collections::BTreeSet;

use artillery_processes::{CHAOS, documented, run, text};
use serde_json::Value;

/// The exit code that `.ci/run` treats as a skipped phase.
const SKIPPED: i32 = 77;

fn fields(of: &Value) -> BTreeSet<&String> {
    of.as_object().unwrap().keys().collect()
}

/// The summary of a run; `None` if it was skipped.
async fn summary(seconds: &str, more: &[&str]) -> Option<Value> {
    let args = ["--json", "--seconds", seconds];
    let done = run(&CHAOS, None, &[&args, more].concat()).await;
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    if done.status.code() == Some(SKIPPED) {
        println!("SKIPPED: no chaos: {err}");
        return None;
    }
    assert_eq!(done.status.code(), Some(0), "{out}\n{err}");
    Some(serde_json::from_str(&out).unwrap())
}

#[tokio::test]
async fn a_short_run_finds_nothing_and_says_so_in_json() {
    let Some(summary) = summary("1", &["--kinds", "pause,one-way"]).await else { return };
    let shown = documented("`chaos --json`");
    assert_eq!(fields(&summary), fields(&shown));
    assert_eq!(fields(&summary["rounds"][0]), fields(&shown["rounds"][0]));
    assert_eq!(fields(&summary["rounds"][0]["regained"][0]), fields(&shown["rounds"][0]["regained"][0]));
    assert_eq!(fields(&summary["isolation"]), fields(&shown["isolation"]));
    assert!(summary["done"].as_u64() > Some(0) && summary["rounds"].as_array().is_some_and(|all| !all.is_empty()));
}

#[tokio::test]
async fn orders_and_their_outcomes_are_in_the_json() {
    let Some(summary) = summary("6", &["--kinds", "pause,one-way", "--orders"]).await else { return };
    let (orders, shown) = (&summary["orders"], &documented("`chaos --json`")["orders"]);
    assert_eq!(fields(orders), fields(shown));
    for order in orders["orders"].as_array().unwrap() {
        assert_eq!(fields(order), fields(&shown["orders"][0]));
    }
}

#[tokio::test]
async fn what_became_of_directories_is_in_the_json() {
    let Some(summary) = summary("1", &["--kinds", "wipe", "--data"]).await else { return };
    let (directories, shown) = (&summary["directories"], &documented("`chaos --json`")["directories"]);
    assert_eq!(fields(directories), fields(shown));
    assert_eq!(directories["outcomes"]["wiped"], 1);
}
