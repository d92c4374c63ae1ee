//! A node whose own part in the configuration log fails stops, and says so.

use std::time::Duration;

use super::*;
use crate::control::embedded::Embedded;

async fn alone() -> (Node, Embedded) {
    let builder = Node::builder().cluster("alone").name("a").secret("of one node that is alone").mdns(false);
    let node = builder.listen("127.0.0.1:0".parse().unwrap()).expect(1).start().await.unwrap();
    within(node.ready()).await.unwrap();
    let log = node.inner.data.door.get().unwrap().log.log();
    (node, log)
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("in time")
}

#[tokio::test]
async fn a_node_whose_log_has_ended_stops() {
    let (node, log) = alone().await;
    log.break_core().await;
    assert_eq!(within(node.stopped()).await, Stopped::LogFailed);
    assert_eq!(node.ready().await, Err(NeverReady::LogFailed));
}

#[tokio::test]
async fn a_node_whose_confirmation_panics_stops() {
    let (node, log) = alone().await;
    log.panic_at_confirmation();
    assert_eq!(within(node.stopped()).await, Stopped::LogFailed);
}

#[tokio::test]
async fn a_node_that_is_shut_down_does_not_call_its_log_failed() {
    let (node, log) = alone().await;
    node.shutdown().await;
    assert_eq!(within(node.stopped()).await, Stopped::ShutDown);
    assert!(!log.has_failed());
}
