//! The answers for scripts and monitoring.

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::{
    prometheus::{CONTENT_TYPE, prometheus},
    slot::NodeSlot,
};
use crate::{Node, status::LoadingStatus};

/// The answer to `/status` while the node loads its directory, as `docs/json.md` describes it.
#[derive(Debug, Serialize)]
struct LoadingLine {
    ready: bool,
    loading: LoadingStatus,
}

/// A node that isn't ready lists the reasons, one per line.
pub(super) async fn ready(State(slot): State<NodeSlot>) -> (StatusCode, String) {
    let node = slot.node();
    if node.as_ref().is_some_and(Node::may_serve) {
        return (StatusCode::OK, "ready\n".to_owned());
    }
    let reasons = match node {
        Some(node) => node.waiting_for().await.iter().map(|reason| format!("{reason}\n")).collect(),
        None => "the node hasn't started\n".to_owned(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready\n{reasons}"))
}

pub(super) async fn metrics(State(slot): State<NodeSlot>) -> Response {
    let Some(node) = slot.node() else { return not_started() };
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], prometheus(&node.metrics().await)).into_response()
}

pub(super) async fn status(State(slot): State<NodeSlot>) -> Response {
    let text = match (slot.node(), slot.loading()) {
        (Some(node), _) => serde_json::to_string(&node.status().await),
        (None, Some(loading)) => serde_json::to_string(&LoadingLine { ready: false, loading: loading.into() }),
        (None, None) => return not_started(),
    };
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

fn not_started() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the node hasn't started\n").into_response()
}
