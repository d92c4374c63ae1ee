//! `/health`, `/ready`, `/metrics` and `/status` over HTTP.

mod placed;

use std::sync::Arc;

use artillery_ddata::Node;
use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};

use self::placed::PlacedListener;
use super::{
    descriptors::Shares,
    door::Door,
    metrics,
    port::{Bound, same},
    prometheus,
    shown::Shown,
};

/// The answer to a client above the limit.
const REFUSAL: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 30\r\n\
                       connection: close\r\n\r\nmax number of clients reached\n";

/// Starts a task that serves the port until the program ends. Returns the address.
pub(super) fn serve(port: Bound, shown: Shown) -> String {
    let routes = Router::new()
        .route("/health", get(async || "ok\n"))
        .route("/ready", get(ready))
        .route("/metrics", get(all_metrics))
        .route("/status", get(status))
        .with_state(shown);
    let routes = match port.secret {
        Some(token) => routes.layer(middleware::from_fn_with_state(token, only_with_token)),
        None => routes,
    };
    let listener = PlacedListener(Door::new(port.listener, Shares::here().http, REFUSAL));
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).await {
            tracing::error!(%error, "the HTTP port no longer works");
        }
    });
    port.addr.to_string()
}

/// A node that isn't ready lists the reasons, one per line.
async fn ready(State(shown): State<Shown>) -> (StatusCode, String) {
    if shown.node().is_some_and(Node::may_serve) {
        return (StatusCode::OK, "ready\n".to_owned());
    }
    let reasons = match shown.node() {
        Some(node) => node.waiting_for().await.iter().map(|reason| format!("{reason}\n")).collect(),
        None => "the node hasn't started\n".to_owned(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready\n{reasons}"))
}

async fn all_metrics(State(shown): State<Shown>) -> Response {
    let Some(node) = shown.node() else { return not_started() };
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], metrics::text(&node.metrics().await)).into_response()
}

async fn status(State(shown): State<Shown>) -> Response {
    let text = match (shown.node(), shown.loading()) {
        (Some(node), _) => serde_json::to_string(&node.status().await),
        (None, Some(loading)) => serde_json::to_string(&loading),
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

async fn only_with_token(State(token): State<Arc<[u8]>>, request: Request, next: Next) -> Response {
    let given =
        request.headers().get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    if given.is_some_and(|given| same(given, &token)) {
        return next.run(request).await;
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, challenge, "a bearer token is needed\n").into_response()
}
