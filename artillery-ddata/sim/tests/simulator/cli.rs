//! The parts of the command line that users and scripts rely on.

use std::process::{Command, Output};

use serde_json::Value;

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_artillery-sim")).args(arguments).output().expect("the program starts")
}

fn json(arguments: &[&str]) -> Value {
    let output = sim(arguments);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn scenarios_as_json() {
    let report = json(&["--seeds", "3", "--scenario", "links", "--json"]);
    let links = &report["scenarios"][0];
    assert_eq!(links["name"], "links");
    assert_eq!(links["seeds"], 3);
    assert_eq!(links["violations"], 0);
    assert!(links["operations"].as_u64().is_some_and(|operations| operations >= 6_000));
    assert!(links["virtual_hours"].as_f64().is_some_and(|hours| hours >= 0.02));
    assert!(links["refused"].is_u64());
    assert!(links["faults"]["break"].as_u64().is_some_and(|breaks| breaks > 0));
}

#[test]
fn mutants_as_json() {
    let report = json(&["--mutant", "wait-ends-early", "--json"]);
    let mutant = &report["mutants"][0];
    assert_eq!(mutant["name"], "wait-ends-early");
    assert_eq!(mutant["trap"], 29);
    assert_eq!(mutant["caught"], true);
    assert_eq!(mutant["oracle"], "client history");
    assert_eq!(mutant["baseline_passed"], true);
    assert!(mutant["seeds"].as_u64().is_some_and(|seeds| seeds <= 500));
}

#[test]
fn scenarios_and_then_their_mutants_as_json() {
    let report = json(&["--seeds", "2", "--scenario", "orders", "--then-mutants", "--json"]);
    assert_eq!(report["scenarios"][0]["seeds"], 2);
    assert_eq!(report["scenarios"][0]["shortfalls"].as_array().map(Vec::len), Some(0));
    assert_eq!(report["mutants"].as_array().map(Vec::len), Some(1), "this scenario has one mutant");
    assert_eq!(report["mutants"][0]["name"], "reorder-open");
    assert_eq!(report["mutants"][0]["caught"], true);
    let both = sim(&["--mutant", "all", "--then-mutants"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn lists_and_bad_names() {
    let list = sim(&["--scenario", "list"]);
    assert!(String::from_utf8_lossy(&list.stdout).lines().any(|line| line.starts_with("mixed ")));
    let list = sim(&["--mutant", "list"]);
    assert!(String::from_utf8_lossy(&list.stdout).contains("join-query-in-flight"));
    let bad = sim(&["--scenario", "nonsense"]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("nonsense"));
}

#[test]
fn a_survivor_is_a_failure() {
    // One seed is too few to catch this mutant.
    let output = sim(&["--mutant", "answer-below-own-watermark", "--seeds", "1", "--start", "0"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("SURVIVED"));
}
