//! Help, and error messages for bad arguments and ports in use.

use std::net::TcpListener;

use artillery_processes::{DEMO, Node, assert_help_and_version, assert_refused, token};

#[tokio::test]
async fn help_and_version_are_printed() {
    assert_help_and_version(&DEMO, env!("CARGO_PKG_VERSION")).await;
}

#[tokio::test]
async fn bad_arguments_are_named() {
    assert_refused(&DEMO, &[(&["--http", "65534"], "--http"), (&["--restart-after", "soon"], "--restart-after")]).await;
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    // It is the first port or the second one. All three must be ports.
    for first in [port.min(65_533), (port - 1).min(65_533)] {
        let mut demo = Node::of(&DEMO, &token(), &["--resp", &first.to_string()]);
        assert_eq!(demo.ended().await, Some(1));
        let lines = demo.err.all();
        assert!(lines.iter().any(|line| line.contains("--resp 127.0.0.1:") && line.contains("in use")), "{lines:?}");
    }
}
