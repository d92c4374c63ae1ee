//! Bad arguments are named.

use artillery_processes::{CTL, expect};

#[tokio::test]
async fn help_and_version_are_printed() {
    assert!(expect(0, &CTL, None, &["--help"]).await.0.contains("--log"));
    assert!(expect(0, &CTL, None, &["--version"]).await.0.contains(env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn bad_arguments_are_named() {
    let bad: [(&[&str], &str); 3] = [
        (&["no-such-command"], "no-such-command"),
        (&["--no-mdns", "status"], "--seed"),
        (&["cas", "key", "1", "value"], "EPOCH.SEQUENCE"),
    ];
    for (args, named) in bad {
        let (out, err) = expect(2, &CTL, None, args).await;
        assert!(out.is_empty() && err.contains(named), "{args:?}: {err}");
    }
}
