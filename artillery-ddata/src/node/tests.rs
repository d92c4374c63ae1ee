//! A node whose own part of the configuration log fails stops, and reports the reason.

use std::{sync::Arc, time::Duration};

use artillery_proto::{disk::DiskError, journal::JournalError};

use super::*;
use super::{
    data::Data,
    stage::{Following, Formed, Reached},
};
use crate::Node;
use crate::{control::embedded::Embedded, driver::control::ControlEndpoint};

async fn alone() -> (Node, Embedded) {
    let builder = Node::builder().cluster("alone").name("a").secret("of one node that is alone").mdns(false);
    let node = builder.listen("127.0.0.1:0".parse().unwrap()).expect(1).start().await.unwrap();
    within(node.ready()).await.unwrap();
    let log = node.inner.data.stage.following().unwrap().control.log.log();
    (node, log)
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("timed out")
}

#[tokio::test]
async fn a_node_whose_log_ended_stops() {
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
async fn an_abort_is_not_reported_as_a_failed_log() {
    let (node, log) = alone().await;
    node.abort().await;
    assert_eq!(within(node.stopped()).await, Stopped::Aborted);
    assert!(!log.has_failed());
}

#[tokio::test]
async fn a_disk_that_fails_is_named_by_a_node_that_never_gets_ready() {
    let failed = JournalError::Failed(DiskError::Failed { file: "journal".into(), why: "an error".into() });
    let (node, _) = alone().await;
    node.inner.data.fail(NeverReady::Halted("for a test".into()));
    node.inner.data.disk_failed(&failed);
    assert_eq!(within(node.stopped()).await, Stopped::DiskFailed);
    let (node, _) = alone().await;
    node.abort().await;
    node.inner.data.disk_failed(&failed);
    assert_eq!(within(node.stopped()).await, Stopped::Aborted);
}

/// A command sent while its receiving task ends may stay in the queue, without an answer.
#[tokio::test]
async fn leaving_ends_when_the_node_stops() {
    let (node, _) = alone().await;
    let (commands, queue) = tokio::sync::mpsc::channel(1);
    let builder = Node::builder().cluster("other").name("b").secret("of one node that is alone").mdns(false);
    let other = builder.listen("127.0.0.1:0".parse().unwrap()).expect(2).start().await.unwrap();
    let like = node.inner.data.stage.following().unwrap();
    let (log, limit) = (like.control.log.clone(), like.control.limit);
    let unreported = Box::new(std::sync::Weak::<Data>::new());
    let control = Arc::new(ControlEndpoint { commands, log, node: unreported, limit });
    let started = other.inner.data.stage.started().unwrap();
    let (founding, state) = (like.formed.founding.clone(), like.state.clone());
    let formed = Arc::new(Formed { started, founding, standings: Vec::new(), state: None });
    let (calls, turn) = (like.calls.clone(), tokio::sync::Mutex::default());
    let following = Arc::new(Following { formed, state, control, calls, turn });
    other.inner.data.stage.enter(Reached::Following(following));
    let stop = async {
        tokio::task::yield_now().await;
        other.inner.data.stop(Stopped::Superseded);
    };
    within(async { tokio::join!(other.leave(), stop) }).await;
    drop(queue);
}
