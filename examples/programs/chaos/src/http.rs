//! The status of a node over HTTP.

use std::{io, net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const STATUS_TIMEOUT: Duration = Duration::from_secs(1);
/// In bytes; longer than any status.
const LONGEST: u64 = 1 << 20;

/// `GET /status`; `None` without a valid answer in time.
pub(super) async fn status(addr: SocketAddr) -> Option<Value> {
    let text = timeout(STATUS_TIMEOUT, get(addr)).await.ok()?.ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let fine = head.split_whitespace().nth(1) == Some("200");
    if fine { serde_json::from_str(body).ok() } else { None }
}

async fn get(addr: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(b"GET /status HTTP/1.0\r\n\r\n").await?;
    let mut text = String::new();
    stream.take(LONGEST).read_to_string(&mut text).await?;
    Ok(text)
}
