//! Error messages for bad arguments.

use artillery_processes::{CTL, assert_help_and_version, assert_refused, expect};

#[tokio::test]
async fn help_and_version_are_printed() {
    assert_help_and_version(&CTL, env!("CARGO_PKG_VERSION")).await;
    let (help, _) = expect(0, &CTL, None, &["--help"]).await;
    for shown in ["Usage: artillery-ctl ", "\n  artillery-ctl check ", "`artillery-ctl outcome`"] {
        assert!(help.contains(shown), "no {shown:?} in\n{help}");
    }
    let (_, error) = expect(2, &CTL, None, &["no-such-command"]).await;
    assert!(error.contains("Usage: artillery-ctl "), "{error}");
}

#[tokio::test]
async fn bad_arguments_are_named() {
    assert_refused(
        &CTL,
        &[
            (&["no-such-command"], "no-such-command"),
            (&["--no-mdns", "status"], "--seed"),
            (&["cas", "key", "1", "value"], "EPOCH.SEQUENCE"),
            (&["put", "key", "value", "--ttl", "soon"], "--ttl"),
            (&["put", "key", "value", "--ttl", "0s"], "--ttl"),
            (&["ttl", "key", "--set", "90"], "--set"),
            (&["ttl", "key", "--set", "90s", "--persist"], "--persist"),
            (&["lock", "jobs"], "<COMMAND>"),
            (&["lock", "jobs", "true"], "true"),
            (&["lock", "jobs", "--ttl", "499", "--", "true"], "--ttl"),
            (&["elect", "db", "--wait", "soon", "--", "true"], "--wait"),
            (&["lock", "jobs", "--value", "text", "--", "true"], "--value"),
            (&["check"], "<PATH>"),
            (&["check", "/no/such/directory"], "/no/such/directory"),
            (&["check", env!("CARGO_MANIFEST_DIR")], "no store"),
        ],
    )
    .await;
}
