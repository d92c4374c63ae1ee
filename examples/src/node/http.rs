//! `/health`, `/ready`, `/metrics` and `/status` over HTTP.

use std::{net::SocketAddr, sync::Arc};

use artillery_ddata::Node;
use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;

use super::{args::NodeArgs, metrics, prometheus};
use crate::{exit::Failure, secret};

/// What the command line wants of HTTP.
#[derive(Debug)]
pub(super) struct Plan {
    addr: SocketAddr,
    token: Option<Vec<u8>>,
}

impl Plan {
    pub(super) fn new(args: &NodeArgs) -> Result<Option<Self>, Failure> {
        let file = args.port_password_file.as_deref();
        let token = file.map(|file| secret::from_file(file, "--port-password-file")).transpose()?;
        let Some(addr) = args.http else {
            let idle = [(token.is_some(), "--port-password-file"), (args.open, "--open")];
            return match idle.iter().find(|(given, _)| *given) {
                Some((_, flag)) => Err(Failure::usage(format!("{flag}: without --http there is no port"))),
                None => Ok(None),
            };
        };
        if !addr.ip().is_loopback() && token.is_none() {
            if !args.open {
                let way = "beyond loopback, --port-password-file or --open is needed";
                return Err(Failure::usage(format!("--http {addr}: {way}")));
            }
            tracing::warn!(%addr, "--open: whoever reaches this address can read the node's status and metrics");
        }
        Ok(Some(Self { addr, token }))
    }

    pub(super) async fn bind(self) -> Result<Server, Failure> {
        let bound = async {
            let listener = TcpListener::bind(self.addr).await?;
            let addr = listener.local_addr()?;
            Ok::<_, std::io::Error>((listener, addr))
        };
        let (listener, addr) =
            bound.await.map_err(|error| Failure::failed(format!("--http {}: {error}", self.addr)))?;
        Ok(Server { listener, addr, token: self.token })
    }
}

/// A port that nobody answers yet.
pub(super) struct Server {
    listener: TcpListener,
    addr: SocketAddr,
    token: Option<Vec<u8>>,
}

impl Server {
    /// Answers from now on, in a task that ends with the program. Returns the address.
    pub(super) fn serve(self, node: Node) -> String {
        let routes = Router::new()
            .route("/health", get(async || "ok\n"))
            .route("/ready", get(ready))
            .route("/metrics", get(all_metrics))
            .route("/status", get(status))
            .with_state(node);
        let routes = match self.token {
            Some(token) => routes.layer(middleware::from_fn_with_state(Arc::<[u8]>::from(token), only_with_token)),
            None => routes,
        };
        tokio::spawn(async move {
            if let Err(error) = axum::serve(self.listener, routes).await {
                tracing::error!(%error, "HTTP is answered no longer");
            }
        });
        self.addr.to_string()
    }
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

/// Compares in a time that tells nothing but the length.
fn same(given: &[u8], token: &[u8]) -> bool {
    given.len() == token.len() && given.iter().zip(token).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn plan(flags: &[&str]) -> Result<Option<Plan>, Failure> {
        Plan::new(&NodeArgs::parse_from(["node"].iter().chain(flags)))
    }

    #[test]
    fn beyond_loopback_somebody_must_have_meant_it() {
        assert!(plan(&[]).unwrap().is_none());
        assert!(plan(&["--http", "127.0.0.1:0"]).unwrap().is_some());
        assert!(plan(&["--http", "0.0.0.0:0"]).unwrap_err().to_string().contains("--http"));
        assert!(plan(&["--http", "0.0.0.0:0", "--open"]).unwrap().is_some());
        assert!(plan(&["--open"]).unwrap_err().is_usage());
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same(b"token", b"token"));
        for other in [b"Token".as_slice(), b"toke", b"tokens", b""] {
            assert!(!same(other, b"token"));
        }
    }
}
