//! Bad arguments are named.

use artillery_processes::{CHAOS, assert_help_and_version, assert_refused};

#[tokio::test]
async fn help_and_version_are_printed() {
    assert_help_and_version(&CHAOS, env!("CARGO_PKG_VERSION")).await;
}

#[tokio::test]
async fn bad_arguments_are_named() {
    assert_refused(&CHAOS, &[(&["--kinds", "flood"], "flood"), (&["--kinds", "wipe"], "needs --data")]).await;
}
