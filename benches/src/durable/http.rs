//! The status and metrics of a node, over HTTP.

use std::{io, net::SocketAddr, time::Duration};

use artillery_ddata::status::NodeStatus;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::throughput::Failed;

/// A node that takes longer is treated as not answering.
const PATIENCE: Duration = Duration::from_secs(5);

async fn page(addr: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| io::Error::other("no answer in HTTP"))?;
    match head.split_whitespace().nth(1) {
        Some("200") => Ok(body.to_owned()),
        code => Err(io::Error::other(format!("{path}: {code:?}"))),
    }
}

/// The status of a node. `None`: it doesn't answer yet, or is still loading its directory.
pub async fn status(addr: SocketAddr) -> Option<NodeStatus> {
    let body = timeout(PATIENCE, page(addr, "/status")).await.ok()?.ok()?;
    serde_json::from_str(&body).ok().filter(|status: &NodeStatus| status.loading.is_none())
}

/// The records that a node's start found above the watermark, and when they were settled.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Settled {
    /// Records that aren't settled.
    pub left: u64,
    /// Records settled by the start of an epoch.
    pub by_start: u64,
    /// Records settled earlier, by a strong read.
    pub by_read: u64,
    /// Seconds from the first epoch until the last of them was settled.
    pub seconds: f64,
}

impl Settled {
    /// Records that the start found.
    pub fn found(&self) -> u64 {
        self.left + self.by_start + self.by_read
    }

    fn parse(metrics: &str) -> Self {
        let sum = |name: &str, label: &str| {
            let lines = metrics.lines().filter(|line| line.starts_with(name) && line.contains(label));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
        };
        let settled = |label| sum("artillery_rereplicated_records_total", label) as u64;
        Self {
            left: sum("artillery_chain_unreplicated_records", "") as u64,
            by_start: settled("trigger=\"start\""),
            by_read: settled("trigger=\"read\""),
            seconds: sum("artillery_chain_rereplication_seconds", ""),
        }
    }
}

/// The node's progress in settling records since its start.
pub async fn settled(addr: SocketAddr) -> Result<Settled, Failed> {
    Ok(Settled::parse(&timeout(PATIENCE, page(addr, "/metrics")).await??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_tell_what_was_settled() {
        let text = "# HELP artillery_rereplicated_records_total x\n\
            artillery_chain_unreplicated_records{chain=\"0\"} 2\n\
            artillery_chain_rereplication_seconds{chain=\"0\"} 0.25\n\
            artillery_rereplicated_records_total{trigger=\"start\",result=\"done\"} 30\n\
            artillery_rereplicated_records_total{trigger=\"start\",result=\"superseded\"} 5\n\
            artillery_rereplicated_records_total{trigger=\"read\",result=\"done\"} 7\n";
        let settled = Settled::parse(text);
        assert_eq!(settled, Settled { left: 2, by_start: 35, by_read: 7, seconds: 0.25 });
        assert_eq!(settled.found(), 44);
    }
}
