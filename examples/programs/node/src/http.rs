//! `/`, `/health`, `/ready`, `/metrics` and `/status` over HTTP.

mod placed;

use std::net::IpAddr;

use artillery_ddata::http::{NodeSlot, RouterBuilder};
use axum::{
    extract::Request,
    http::{HeaderMap, StatusCode, header, uri::Authority},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};

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
    // What a browser on this machine may read here, a page of another site must not.
    let is_open = port.secret.is_none() && port.addr.ip().is_loopback();
    let routes = match port.secret {
        Some(token) => routes.token(token),
        None => routes,
    };
    let routes = match is_open {
        true => routes.build().layer(middleware::from_fn(only_by_address)),
        false => routes.build(),
    };
    let listener = PlacedListener(Door::new(port.listener, connections, REFUSAL));
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).await {
            tracing::error!(%error, "the HTTP port no longer works");
        }
    });
    port.addr.to_string()
}

/// Refuses requests of pages whose names were made to resolve to this machine (DNS rebinding).
async fn only_by_address(request: Request, next: Next) -> Response {
    if names_this_machine(request.headers()) {
        return next.run(request).await;
    }
    (StatusCode::MISDIRECTED_REQUEST, "use localhost or an IP address, or set a password\n").into_response()
}

/// Whether `Host` is `localhost` or an IP address. Clients that send none aren't browsers.
fn names_this_machine(headers: &HeaderMap) -> bool {
    headers.get_all(header::HOST).iter().all(|host| {
        let Ok(host) = Authority::try_from(host.as_bytes()) else { return false };
        let host = host.host();
        let addr = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        host.eq_ignore_ascii_case("localhost") || addr.parse::<IpAddr>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_this_machine_and_addresses_are_hosts() {
        let is_accepted = |host: &str| {
            let host = (header::HOST, HeaderValue::from_str(host).unwrap());
            names_this_machine(&[host].into_iter().collect())
        };
        for host in ["localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:7480", "[::1]", "[::1]:7480", "192.0.2.1"] {
            assert!(is_accepted(host), "{host}");
        }
        for host in ["", "evil.example", "evil.example:7480", "localhost.evil.example", "127.0.0.1.evil.example", "[x]"]
        {
            assert!(!is_accepted(host), "{host}");
        }
        assert!(names_this_machine(&HeaderMap::new()));
    }
}
