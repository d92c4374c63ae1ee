//! Bad arguments are named, and what is planned is refused, never ignored.

use crate::support::{CHAOS, CTL, NODE, QUICKSTART, expect};

#[tokio::test]
async fn help_and_versions() {
    for program in [NODE, CTL, QUICKSTART, CHAOS] {
        assert!(expect(0, program, None, &["--help"]).await.0.contains("--log"));
        assert!(expect(0, program, None, &["--version"]).await.0.contains(env!("CARGO_PKG_VERSION")));
    }
}

#[tokio::test]
async fn bad_arguments_are_named() {
    let bad: [(&str, &[&str], &str); 11] = [
        (NODE, &["--no-such-flag"], "--no-such-flag"),
        (NODE, &["--expect", "0"], "expect"),
        (NODE, &["--seed", "nowhere"], "nowhere"),
        (NODE, &["--listen", "0.0.0.0:0"], "--listen"),
        (NODE, &["--http", "0.0.0.0:0"], "--http"),
        (NODE, &["--resp", "0.0.0.0:0"], "--resp"),
        (CTL, &["no-such-command"], "no-such-command"),
        (CTL, &["--no-mdns", "status"], "--seed"),
        (CTL, &["cas", "key", "1", "value"], "EPOCH.SEQUENCE"),
        (QUICKSTART, &["--no-such-flag"], "--no-such-flag"),
        (CHAOS, &["--kinds", "flood"], "flood"),
    ];
    for (program, args, named) in bad {
        let (out, err) = expect(2, program, None, args).await;
        assert!(out.is_empty() && err.contains(named), "{args:?}: {err}");
    }
}

#[tokio::test]
async fn what_is_planned_is_refused() {
    let planned: [(&str, &[&str]); 4] = [
        (NODE, &["--data", "x"]),
        (NODE, &["--chains", "4"]),
        (NODE, &["--leave-on-term"]),
        (QUICKSTART, &["--data", "x"]),
    ];
    for (program, args) in planned {
        let (_, err) = expect(2, program, None, args).await;
        assert!(err.contains("not yet"), "{args:?}: {err}");
    }
}
