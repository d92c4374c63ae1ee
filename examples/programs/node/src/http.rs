//! `/health`, `/ready`, `/metrics` and `/status` over HTTP.

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

use super::{
    metrics,
    port::{Bound, same},
    prometheus,
};

/// Serves the port from now on, in a task that ends with the program. Returns the address.
pub(super) fn serve(port: Bound, node: Node) -> String {
    let routes = Router::new()
        .route("/health", get(async || "ok\n"))
        .route("/ready", get(ready))
        .route("/metrics", get(all_metrics))
        .route("/status", get(status))
        .with_state(node);
    let routes = match port.secret {
        Some(token) => routes.layer(middleware::from_fn_with_state(token, only_with_token)),
        None => routes,
    };
    tokio::spawn(async move {
        if let Err(error) = axum::serve(port.listener, routes).await {
            tracing::error!(%error, "HTTP is answered no longer");
        }
    });
    port.addr.to_string()
}

async fn ready(State(node): State<Node>) -> (StatusCode, &'static str) {
    if node.may_serve() { (StatusCode::OK, "ready\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready\n") }
}

async fn all_metrics(State(node): State<Node>) -> Response {
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], metrics::text(&node.metrics().await)).into_response()
}

async fn status(State(node): State<Node>) -> Response {
    match serde_json::to_string(&node.status().await) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
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
