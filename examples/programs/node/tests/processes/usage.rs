//! Error messages for bad arguments; planned flags are refused, not ignored.

use artillery_processes::{NODE, assert_help_and_version, assert_refused, expect};

#[tokio::test]
async fn help_and_version_are_printed() {
    assert_help_and_version(&NODE, env!("CARGO_PKG_VERSION")).await;
    let (help, _) = expect(0, &NODE, None, &["--help"]).await;
    for shown in ["Usage: artillery-node ", "\n    artillery-node --expect 1"] {
        assert!(help.contains(shown), "no {shown:?} in\n{help}");
    }
}

#[tokio::test]
async fn bad_arguments_are_named() {
    assert_refused(
        &NODE,
        &[
            (&["--no-such-flag"], "--no-such-flag"),
            (&["--expect", "0"], "expect"),
            (&["--seed", "nowhere"], "nowhere"),
            (&["--listen", "0.0.0.0:0"], "--listen"),
            (&["--http", "0.0.0.0:0"], "--http"),
            (&["--resp", "0.0.0.0:0"], "--resp"),
            (&["--allow-flush"], "--resp"),
            (&["--reopen-ms", "5"], "--data"),
            (&["--data", "d", "--reopen-ms", "3600001"], "data.reopen"),
            (&["--replace-damaged"], "--data"),
        ],
    )
    .await;
}

#[tokio::test]
async fn planned_flags_are_refused() {
    assert_refused(&NODE, &[(&["--chains", "4"], "not yet"), (&["--datacenter", "a"], "not yet")]).await;
}
