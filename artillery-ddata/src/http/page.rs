//! The page for browsers: one document without external resources.

use std::sync::{Arc, LazyLock};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

use super::live::{Live, NoStream};

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = concat!(
    "\"use strict\";\n",
    include_str!("page/dom.js"),
    include_str!("page/chain.js"),
    include_str!("page/graph.js"),
    include_str!("page/page.js")
);

/// The document, and the policy that permits its own style and script alone.
struct Document {
    html: String,
    policy: String,
}

static DOCUMENT: LazyLock<Document> = LazyLock::new(|| Document {
    html: include_str!("page/page.html").replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", SCRIPT),
    policy: format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    ),
});

/// The source expression of CSP for an inline element with this text.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

pub(super) fn routes(live: Live) -> Router {
    Router::new().route("/", get(page)).route("/events", get(events)).with_state(Arc::new(live))
}

async fn page() -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, DOCUMENT.policy.as_str()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Html(DOCUMENT.html.as_str())).into_response()
}

/// Browsers add this header, with `none` for an address that was typed. A page of another origin can't read the stream, but
/// it could use up the connections.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

async fn events(State(live): State<Arc<Live>>, headers: HeaderMap) -> Response {
    if headers.get(SITE).is_some_and(|site| site != "same-origin" && site != "none") {
        return (StatusCode::FORBIDDEN, "not for pages of other origins\n").into_response();
    }
    let stream = match live.stream() {
        Ok(stream) => stream,
        Err(why) => {
            let why = if why == NoStream::Full { "too many viewers\n" } else { "the node has stopped\n" };
            return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "10")], why).into_response();
        }
    };
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store, no-transform"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // Asks proxies not to buffer the stream.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, stream.into_body()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_names_no_other_host() {
        let html = &DOCUMENT.html;
        assert!(html.len() < 60_000, "{} bytes", html.len());
        assert!(!html.contains("/*STYLE*/") && !html.contains("/*SCRIPT*/"));
        let namespace = "http://www.w3.org/2000/svg";
        assert!(!html.replace(namespace, "").contains("://"), "an external resource");
    }

    #[test]
    fn the_policy_permits_no_inline_code_but_the_page_s_own() {
        assert!(!DOCUMENT.policy.contains("unsafe"));
        for (element, text) in [("style", STYLE), ("script", SCRIPT)] {
            assert!(
                DOCUMENT.html.contains(&format!("<{element}>{text}</{element}>")),
                "the hash is that of the whole element"
            );
            assert!(DOCUMENT.policy.contains(&hash(text)));
        }
        // A hash permits neither `style="…"` nor `onclick="…"`. Text of nodes is never parsed as HTML.
        for forbidden in [" style=\"", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!DOCUMENT.html.contains(forbidden), "{forbidden}");
        }
    }
}
