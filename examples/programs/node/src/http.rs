//! `/`, `/health`, `/ready`, `/metrics` and `/status` over HTTP.

mod placed;

use artillery_ddata::http::{NodeSlot, RouterBuilder};

use self::placed::PlacedListener;
use super::{descriptors::Shares, door::Door, port::Bound};

/// The answer to a client above the limit.
const REFUSAL: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 30\r\n\
                       connection: close\r\n\r\nmax number of clients reached\n";
/// Maximum number of viewers of the page. At most half of the connections: the others are for monitoring.
const MAX_VIEWERS: usize = 32;

/// Starts a task that serves the port until the program ends. Returns the address.
pub(super) fn serve(port: Bound, slot: &NodeSlot) -> String {
    let connections = Shares::here().http;
    let routes = RouterBuilder::new(slot).viewers(MAX_VIEWERS.min(connections.div_ceil(2)));
    let routes = match port.secret {
        Some(token) => routes.token(token),
        None => routes,
    };
    let (listener, routes) = (PlacedListener(Door::new(port.listener, connections, REFUSAL)), routes.build());
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).await {
            tracing::error!(%error, "the HTTP port no longer works");
        }
    });
    port.addr.to_string()
}
