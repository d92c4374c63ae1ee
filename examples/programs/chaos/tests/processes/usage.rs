//! Bad arguments are named.

use artillery_processes::{CHAOS, expect};

#[tokio::test]
async fn help_and_version_are_printed() {
    assert!(expect(0, &CHAOS, None, &["--help"]).await.0.contains("--log"));
    assert!(expect(0, &CHAOS, None, &["--version"]).await.0.contains(env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn bad_arguments_are_named() {
    let bad: [(&[&str], &str); 1] = [(&["--kinds", "flood"], "flood")];
    for (args, named) in bad {
        let (out, err) = expect(2, &CHAOS, None, args).await;
        assert!(out.is_empty() && err.contains(named), "{args:?}: {err}");
    }
}
