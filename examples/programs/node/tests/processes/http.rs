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

/// The port must be read-only, so that a request from a web page can't change anything.
#[tokio::test]
async fn the_port_only_reads() {
    let (_node, line) = Node::alone(&token(), &["--http", "127.0.0.1:0"]).await;
    let http = line["http"].as_str().unwrap();
    for path in ["/health", "/ready", "/metrics", "/status"] {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n");
            let (head, _) = exchange(http, &request).await;
            assert_eq!(head.split(' ').nth(1), Some("405"), "{method} {path}");
        }
    }
}
