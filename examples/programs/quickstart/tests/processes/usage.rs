//! Bad arguments are named, and what is planned is refused, never ignored.

use artillery_processes::{QUICKSTART, expect};

#[tokio::test]
async fn help_and_version_are_printed() {
    assert!(expect(0, &QUICKSTART, None, &["--help"]).await.0.contains("--log"));
    assert!(expect(0, &QUICKSTART, None, &["--version"]).await.0.contains(env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn bad_arguments_are_named() {
    let bad: [(&[&str], &str); 1] = [(&["--no-such-flag"], "--no-such-flag")];
    for (args, named) in bad {
        let (out, err) = expect(2, &QUICKSTART, None, args).await;
        assert!(out.is_empty() && err.contains(named), "{args:?}: {err}");
    }
}

#[tokio::test]
async fn planned_flags_are_refused() {
    let planned: [&[&str]; 1] = [&["--data", "x"]];
    for args in planned {
        let (_, err) = expect(2, &QUICKSTART, None, args).await;
        assert!(err.contains("not yet"), "{args:?}: {err}");
    }
}
