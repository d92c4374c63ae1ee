//! Bad arguments are named, and what is planned is refused, never ignored.

use artillery_processes::{NODE, expect};

#[tokio::test]
async fn help_and_version_are_printed() {
    assert!(expect(0, &NODE, None, &["--help"]).await.0.contains("--log"));
    assert!(expect(0, &NODE, None, &["--version"]).await.0.contains(env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn bad_arguments_are_named() {
    let bad: [(&[&str], &str); 6] = [
        (&["--no-such-flag"], "--no-such-flag"),
        (&["--expect", "0"], "expect"),
        (&["--seed", "nowhere"], "nowhere"),
        (&["--listen", "0.0.0.0:0"], "--listen"),
        (&["--http", "0.0.0.0:0"], "--http"),
        (&["--resp", "0.0.0.0:0"], "--resp"),
    ];
    for (args, named) in bad {
        let (out, err) = expect(2, &NODE, None, args).await;
        assert!(out.is_empty() && err.contains(named), "{args:?}: {err}");
    }
}

#[tokio::test]
async fn planned_flags_are_refused() {
    let planned: [&[&str]; 3] = [&["--data", "x"], &["--chains", "4"], &["--leave-on-term"]];
    for args in planned {
        let (_, err) = expect(2, &NODE, None, args).await;
        assert!(err.contains("not yet"), "{args:?}: {err}");
    }
}
