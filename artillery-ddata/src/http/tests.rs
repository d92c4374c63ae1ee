//! Whole routers on loopback, with real nodes of one member.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};

use super::*;
use crate::node::Loading;

const LIMIT: Duration = Duration::from_secs(60);

async fn node() -> Node {
    let builder = Node::builder().cluster("http").secret("sixteen bytes or more").expect(1).mdns(false);
    let node = builder.listen(([127, 0, 0, 1], 0).into()).name("anna").start().await.unwrap();
    node.ready().await.unwrap();
    node
}

async fn served(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    addr
}

async fn ask(addr: SocketAddr, path: &str, header: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// The code, the whole head, and the body.
async fn get(addr: SocketAddr, path: &str, header: &str) -> (u16, String, String) {
    let mut answer = String::new();
    timeout(LIMIT, ask(addr, path, header).await.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), body.to_owned())
}

/// One viewer of `/events`.
struct Viewer {
    stream: TcpStream,
    text: String,
}

impl Viewer {
    async fn new(addr: SocketAddr) -> Self {
        Self { stream: ask(addr, "/events", "").await, text: String::new() }
    }

    /// Reads until the received text satisfies this, or the stream ends.
    async fn until(&mut self, is_enough: impl Fn(&str) -> bool) {
        let reads = async {
            while !is_enough(&self.text) {
                let mut part = [0; 4096];
                let count = self.stream.read(&mut part).await.unwrap();
                self.text += &String::from_utf8_lossy(&part[..count]);
                if count == 0 {
                    break;
                }
            }
        };
        timeout(LIMIT, reads).await.expect("the awaited messages");
    }

    /// The data of the received messages with this name.
    fn messages(&self, name: &str) -> Vec<Value> {
        let begin = format!("event: {name}\ndata: ");
        let parts = self.text.split(&begin).skip(1);
        parts.filter_map(|part| serde_json::from_str(part.split_once("\n\n")?.0).ok()).collect()
    }
}

#[tokio::test]
async fn a_node_that_starts_later_is_served_from_its_start() {
    let slot = NodeSlot::new();
    let addr = served(RouterBuilder::new(&slot).build()).await;
    assert_eq!(get(addr, "/health", "").await.0, 200);
    assert_eq!(get(addr, "/", "").await.0, 200);
    for (path, text) in [("/ready", "not ready\nthe node hasn't started\n"), ("/status", "the node hasn't started\n")] {
        let (code, _, body) = get(addr, path, "").await;
        assert_eq!((code, &*body), (503, text));
    }
    let mut viewer = Viewer::new(addr).await;
    viewer.until(|text| text.contains("event: snapshot")).await;
    let loading = Loading {
        checks: true,
        records: 3,
        records_per_second: 1,
        read_bytes: 5,
        total_bytes: 9,
        elapsed: LIMIT,
        left: None,
    };
    slot.loads(loading);
    let (code, _, body) = get(addr, "/status", "").await;
    let status: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &status["ready"], &status["loading"]["records"]), (200, &false.into(), &3.into()));
    assert_eq!(get(addr, "/metrics", "").await.0, 503);
    viewer.until(|text| text.contains(r#""read_bytes":5"#)).await;

    let node = node().await;
    slot.started(&node);
    viewer.until(|text| text.contains(r#""ready":true"#)).await;
    assert_eq!(get(addr, "/ready", "").await.2, "ready\n");
    let (code, head, body) = get(addr, "/metrics", "").await;
    assert_eq!(code, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    assert!(body.starts_with("# HELP artillery_node_info "), "{body}");
    node.abort().await;
}

#[tokio::test]
async fn each_route_needs_the_token_as_a_bearer_or_as_a_password() {
    let node = node().await;
    let addr = served(RouterBuilder::new(&(&node).into()).token(*b"token").build()).await;
    for path in ["/", "/events", "/health", "/ready", "/metrics", "/status", "/none"] {
        let (code, head, _) = get(addr, path, "").await;
        assert_eq!(code, 401, "{path}");
        assert!(head.contains("www-authenticate: bearer\r\n"), "{head}");
        assert!(head.contains("www-authenticate: basic realm=\"artillery\""), "{head}");
        assert_eq!(get(addr, path, "authorization: Bearer wrong\r\n").await.0, 401, "{path}");
    }
    // `user:token` and `:wrong`, encoded.
    for (header, expected) in [("Bearer token", 200), ("Basic dXNlcjp0b2tlbg==", 200), ("Basic Ondyb25n", 401)] {
        assert_eq!(get(addr, "/", &format!("authorization: {header}\r\n")).await.0, expected, "{header}");
    }
    node.abort().await;
}

#[test]
fn the_token_is_not_shown() {
    let shown = format!("{:?}", RouterBuilder::new(&NodeSlot::new()).token(*b"secret"));
    // Neither as text nor as bytes.
    assert!(!shown.contains("secret") && !shown.contains("115, 101"), "{shown}");
    assert!(shown.contains("needs_token: true"), "{shown}");
}

#[tokio::test]
async fn a_router_without_the_page_has_the_other_routes() {
    let node = node().await;
    let addr = served(RouterBuilder::new(&(&node).into()).page(false).build()).await;
    for (path, code) in [("/", 404), ("/events", 404), ("/status", 200), ("/metrics", 200)] {
        assert_eq!(get(addr, path, "").await.0, code, "{path}");
    }
    node.abort().await;
}

#[tokio::test]
async fn the_routes_work_below_a_path_of_the_application() {
    let node = node().await;
    let addr = served(Router::new().nest("/artillery", router(&node))).await;
    for path in ["/artillery", "/artillery/status", "/artillery/ready"] {
        assert_eq!(get(addr, path, "").await.0, 200, "{path}");
    }
    node.abort().await;
}

#[tokio::test]
async fn viewers_are_limited_and_end_with_the_node() {
    let node = node().await;
    let addr = served(RouterBuilder::new(&(&node).into()).viewers(1).build()).await;
    let mut viewer = Viewer::new(addr).await;
    viewer.until(|text| text.contains("event: snapshot")).await;
    let head = viewer.text.to_lowercase();
    for header in [
        "content-type: text/event-stream\r\n",
        "x-accel-buffering: no\r\n",
        "x-frame-options: deny\r\n",
        "cache-control: no-store",
    ] {
        assert!(head.contains(header), "{head}");
    }
    for (site, code) in [("cross-site", 403), ("same-site", 403), ("same-origin", 503), ("none", 503)] {
        assert_eq!(get(addr, "/events", &format!("sec-fetch-site: {site}\r\n")).await.0, code, "{site}");
    }
    let (code, head, body) = get(addr, "/events", "").await;
    assert_eq!((code, &*body), (503, "too many viewers\n"));
    assert!(head.contains("retry-after: "), "{head}");
    drop(viewer);
    let mut viewer = loop {
        let mut next = Viewer::new(addr).await;
        next.until(|text| text.contains("\r\n\r\n")).await;
        if next.text.starts_with("HTTP/1.1 200") {
            break next;
        }
    };
    viewer.until(|text| text.contains("event: snapshot")).await;
    let seat = &viewer.messages("snapshot")[0]["chains"][0]["members"][0];
    assert_eq!((&seat["node"], &seat["role"], &seat["is_this"]), (&"anna".into(), &"head".into(), &true.into()));
    node.shutdown().await;
    viewer.until(|_| false).await;
    assert_eq!(get(addr, "/events", "").await.2, "the node has stopped\n");
}

#[tokio::test]
async fn a_node_is_sampled_at_most_once_a_second_for_all_viewers() {
    let node = node().await;
    let began = Instant::now();
    let addr = served(router(&node)).await;
    let mut samples = BTreeSet::new();
    for _ in 0..6 {
        let mut viewer = Viewer::new(addr).await;
        viewer.until(|text| text.matches("event: snapshot").count() > 2).await;
        let of = viewer.messages("snapshot").into_iter().map(|snapshot| snapshot["sample"]["at_ms"].as_u64().unwrap());
        samples.extend(of.filter(|&at| at > 0));
        let history = &viewer.messages("history")[0]["samples"];
        assert!(history.as_array().unwrap().len() <= samples.len(), "the history has the same samples");
    }
    let most = began.elapsed().as_secs() as usize + 1;
    assert!((2..=most).contains(&samples.len()), "{} samples in {most} s", samples.len());
    node.abort().await;
}

/// The sampling task must not keep a dropped router's node.
#[tokio::test]
async fn a_node_ends_with_its_last_handle_although_a_router_sampled_it() {
    let node = node().await;
    let mut events = node.events();
    let router = router(&node);
    drop(node);
    drop(router);
    assert!(timeout(LIMIT, events.next()).await.unwrap().is_none());
}
