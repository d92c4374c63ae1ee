//! Tests of a node's HTTP port: its answers, its password, and that it only reads.

use artillery_processes::{Cluster, Node, assert_documented, documented, token};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub(crate) async fn get(addr: &str, path: &str, header: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n{header}\r\n");
    let (head, body) = exchange(addr, &request).await;
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
}

/// Sends a raw request. Returns the head and the body of the answer.
pub(crate) async fn exchange(addr: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn health_ready_and_status_are_answered() {
    let cluster = Cluster::start(&["--http", "127.0.0.1:0"]).await;
    for line in &cluster.lines {
        let http = line["http"].as_str().unwrap();
        assert_eq!(get(http, "/health", "").await.0, 200);
        assert_eq!(get(http, "/ready", "").await.0, 200);
        let (code, body) = get(http, "/status", "").await;
        let status: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((code, &status["node"], &status["role"]), (200, &line["node"], &line["role"]));
        assert_eq!(status["chains"][0]["epoch"], 1);
        assert_documented(&documented("`GET /status` of a node"), &status, "/status");
        assert_eq!(get(http, "/other", "").await.0, 404);
    }
}

#[tokio::test]
async fn requests_without_the_token_are_refused() {
    let token = token();
    let (_node, line) = Node::behind_a_password(&token, &["--http", "127.0.0.1:0"]).await;
    let http = line["http"].as_str().unwrap();
    assert_eq!(get(http, "/status", "").await.0, 401);
    assert_eq!(get(http, "/status", "Authorization: Bearer wrong\r\n").await.0, 401);
    assert_eq!(get(http, "/status", &format!("Authorization: Bearer {token}\r\n")).await.0, 200);
}

/// A page of another site whose name resolves to this machine must not read the node.
#[tokio::test]
async fn a_foreign_name_is_refused_without_a_password() {
    let (_node, line) = Node::alone(&token(), &["--http", "127.0.0.1:0"]).await;
    let http = line["http"].as_str().unwrap();
    for (host, code) in [("evil.example", "421"), ("localhost", "200")] {
        let request = format!("GET /status HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(exchange(http, &request).await.0.split(' ').nth(1), Some(code), "{host}");
    }
}

/// The data of the first server-sent event with this name that is accepted.
async fn event(http: &str, name: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let mut stream = TcpStream::connect(http).await.unwrap();
    let request = format!("GET /events HTTP/1.1\r\nHost: {http}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut text, begin) = (String::new(), format!("event: {name}\ndata: "));
    loop {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).await.unwrap();
        assert!(count > 0, "the stream ended");
        text += &String::from_utf8_lossy(&part[..count]);
        let whole = text.split(&begin).skip(1).filter_map(|part| part.split_once("\n\n"));
        if let Some(found) = whole.filter_map(|(json, _)| serde_json::from_str(json).ok()).find(&is_wanted) {
            return found;
        }
    }
}

#[tokio::test]
async fn the_page_and_its_stream_are_served_and_documented() {
    let cluster = Cluster::start(&["--http", "127.0.0.1:0"]).await;
    let http = cluster.lines[1]["http"].as_str().unwrap();
    let (code, body) = get(http, "/", "").await;
    assert!(code == 200 && body.starts_with("<!doctype html>"), "{code} {body}");
    let has_all_reports = |snapshot: &Value| {
        let members = snapshot["chains"][0]["members"].as_array();
        let reports = members.is_some_and(|all| all.len() == 3 && all.iter().all(|member| member["error"].is_null()));
        reports && snapshot["sample"]["at_ms"] != 0
    };
    let snapshot = event(http, "snapshot", has_all_reports).await;
    assert_documented(&documented("`snapshot`"), &snapshot, "snapshot");
    assert_eq!(snapshot["node"]["node"], cluster.lines[1]["node"]);
    let mut history = event(http, "history", |history| history["samples"] != Value::Array(Vec::new())).await;
    // There may be none.
    history["events"] = Value::Null;
    assert_documented(&documented("`history`"), &history, "history");
}

/// The port must be read-only, so that a request from a web page can't change anything.
#[tokio::test]
async fn the_port_only_reads() {
    let (_node, line) = Node::alone(&token(), &["--http", "127.0.0.1:0"]).await;
    let http = line["http"].as_str().unwrap();
    for path in ["/", "/events", "/health", "/ready", "/metrics", "/status"] {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n");
            let (head, _) = exchange(http, &request).await;
            assert_eq!(head.split(' ').nth(1), Some("405"), "{method} {path}");
        }
    }
}
