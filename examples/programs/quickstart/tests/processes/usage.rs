//! Error messages for bad arguments.

use artillery_processes::{QUICKSTART, assert_help_and_version, assert_refused};

#[tokio::test]
async fn help_and_version_are_printed() {
    assert_help_and_version(&QUICKSTART, env!("CARGO_PKG_VERSION")).await;
}

#[tokio::test]
async fn bad_arguments_are_named() {
    assert_refused(&QUICKSTART, &[(&["--no-such-flag"], "--no-such-flag")]).await;
}
