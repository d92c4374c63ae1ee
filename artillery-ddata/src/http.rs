//! A node over HTTP (feature `http`): an axum [`Router`] for health checks, metrics, status, and a page
//! for browsers.
//!
//! | path | answer |
//! |---|---|
//! | `/` | a page that shows the chains, their members, reads, writes and events, live |
//! | `/events` | the data of that page as server-sent events |
//! | `/health` | 200 |
//! | `/ready` | 200 while the node [may serve](crate::Node::may_serve), otherwise 503 and the reasons, one per line |
//! | `/metrics` | the metrics in Prometheus' text format |
//! | `/status` | the node's [status](crate::status) as JSON |
//!
//! `docs/metrics.md` and `docs/json.md` in the repository describe the answers. All routes only read. They show names,
//! addresses and figures, but no keys and values: set a [token](RouterBuilder::token) if others may reach the port.
//!
//! ```no_run
//! # async fn example(node: artillery_ddata::Node, signal: impl Future<Output = ()> + Send + 'static) -> std::io::Result<()> {
//! let app = axum::Router::new().merge(artillery_ddata::http::router(&node));
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:7480").await?;
//! // The streams of open pages end with the node, and axum waits for them.
//! let stop = async move {
//!     signal.await;
//!     node.shutdown().await;
//! };
//! axum::serve(listener, app).with_graceful_shutdown(stop).await
//! # }
//! ```

mod live;
mod page;
mod prometheus;
mod routes;
mod slot;
mod token;

use std::{fmt, sync::Arc};

use axum::{Router, middleware, routing::get};

use self::live::Live;
pub use self::{
    prometheus::{CONTENT_TYPE, prometheus},
    slot::NodeSlot,
};
use crate::Node;

/// Each viewer of the page has a connection.
const MAX_VIEWERS: usize = 32;

/// A router with all routes, without a token. [`RouterBuilder`] has options.
pub fn router(node: &Node) -> Router {
    RouterBuilder::new(&node.into()).build()
}

/// Builds the router of a node. Defaults are in parentheses.
pub struct RouterBuilder {
    slot: NodeSlot,
    token: Option<Arc<[u8]>>,
    page: bool,
    viewers: usize,
}

impl RouterBuilder {
    /// The router of a node that may start later.
    pub fn new(slot: &NodeSlot) -> Self {
        Self { slot: slot.clone(), token: None, page: true, viewers: MAX_VIEWERS }
    }

    /// The token that each request must have (none): as `Authorization: Bearer TOKEN`, or in a browser as the password
    /// of any user. Other requests are answered with 401: with an empty token, all requests.
    pub fn token(mut self, token: impl Into<Arc<[u8]>>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Whether `/` and `/events` exist (yes). Without them the node is only queried when a request arrives.
    pub fn page(mut self, page: bool) -> Self {
        self.page = page;
        self
    }

    /// The highest number of connections to `/events` (32). More are answered with 503. A page that is hidden closes its
    /// connection.
    pub fn viewers(mut self, viewers: usize) -> Self {
        self.viewers = viewers;
        self
    }

    /// The router. Its page has a task that samples the node every five seconds, or every second while the page is
    /// viewed. The task starts now if this is called within a tokio runtime, otherwise with the first viewer, and ends
    /// with the router.
    pub fn build(self) -> Router {
        let routes = Router::new()
            .route("/health", get(async || "ok\n"))
            .route("/ready", get(routes::ready))
            .route("/metrics", get(routes::metrics))
            .route("/status", get(routes::status))
            .with_state(self.slot.clone());
        let routes = match self.page {
            true => routes.merge(page::routes(Live::new(self.slot, self.viewers))),
            false => routes,
        };
        match self.token {
            Some(token) => routes.layer(middleware::from_fn_with_state(token, token::only_with_token)),
            None => routes,
        }
    }
}

/// Without the token.
impl fmt::Debug for RouterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slot, token, page, viewers } = self;
        let mut shown = f.debug_struct("RouterBuilder");
        shown.field("slot", slot).field("needs_token", &token.is_some());
        shown.field("page", page).field("viewers", viewers).finish()
    }
}

#[cfg(test)]
mod tests;
