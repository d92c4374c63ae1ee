//! A report for operators whose node has met no other node.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use tokio::time::sleep;

use super::record::{DiscoveryRecord, Heard, SeedState, SeedStatus};
use crate::{discovery::Interfaces, transport::Endpoint};

const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of received addresses in a report.
const MAX_NAMED: usize = 8;

pub(super) struct Solitude {
    pub(super) local: SocketAddr,
    pub(super) announced: Vec<SocketAddr>,
    /// `None`: multicast DNS is off.
    pub(super) interfaces: Option<Interfaces>,
    pub(super) heard: Vec<Heard>,
    pub(super) seeds: Vec<SeedStatus>,
}

impl fmt::Display for Solitude {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "met no other node within {PATIENCE:?}; this node listens at {}", self.local)?;
        let reach = if self.local.ip().is_loopback() { ", which only this machine reaches," } else { "" };
        write!(f, "{reach} and advertises {}", list(self.announced.iter()))?;
        match &self.interfaces {
            Some(Interfaces::All) => f.write_str(", announced by mDNS on all interfaces")?,
            Some(Interfaces::Loopback) => f.write_str(", announced by mDNS on loopback only")?,
            Some(Interfaces::Named(names)) => write!(f, ", announced by mDNS on {}", names.join(", "))?,
            None => f.write_str(", not announced by mDNS")?,
        }
        if self.heard.is_empty() {
            f.write_str("; no announcement of this cluster was received")?;
        } else {
            let more = self.heard.len().saturating_sub(MAX_NAMED);
            write!(f, "; announcements named {}", list(self.heard.iter().take(MAX_NAMED)))?;
            if more > 0 {
                write!(f, " and {more} more")?;
            }
        }
        for SeedStatus { seed, state } in &self.seeds {
            match state {
                SeedState::Trying { last } => {
                    write!(f, "; seed {seed}: {}", escaped(last.as_deref().unwrap_or("no answer yet")))?;
                }
                SeedState::Refused { reason, .. } => write!(f, "; seed {seed}: {}", escaped(&reason.to_string()))?,
                SeedState::Met(_) => write!(f, "; seed {seed}: met")?,
                SeedState::Itself => write!(f, "; seed {seed}: this node itself")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.addr, escaped(self.failure.as_deref().unwrap_or("no answer yet")))
    }
}

/// Escapes control characters: text of another host must not end the line or change how a terminal displays it.
fn escaped(text: &str) -> String {
    let plain = |c: char| matches!(c, '\'' | '"');
    text.chars().flat_map(|c| if plain(c) { vec![c] } else { c.escape_debug().collect() }).collect()
}

fn list(all: impl Iterator<Item = impl fmt::Display>) -> String {
    all.map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

pub(super) async fn report(endpoint: Endpoint, record: Arc<DiscoveryRecord>, interfaces: Option<Interfaces>) {
    sleep(PATIENCE).await;
    if !record.has_met() {
        let (local, announced) = (endpoint.local_addr(), endpoint.advertised_addrs());
        let solitude = Solitude { local, announced, interfaces, heard: record.heard(), seeds: record.seeds() };
        tracing::warn!("{solitude}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_line_says_what_was_announced_where_and_what_was_received() {
        let mut solitude = Solitude {
            local: addr("[::]:7400"),
            announced: vec![addr("10.0.0.5:7400"), addr("172.17.0.1:7400")],
            interfaces: Some(Interfaces::Named(vec!["eth0".into()])),
            heard: Vec::new(),
            seeds: Vec::new(),
        };
        let line = solitude.to_string();
        for part in ["[::]:7400", "10.0.0.5:7400, 172.17.0.1:7400", "mDNS on eth0", "no announcement"] {
            assert!(line.contains(part), "{line}");
        }
        solitude.heard = (1..=10).map(|n| Heard { addr: ([10, 0, 1, n], 7).into(), failure: None }).collect();
        solitude.heard[0].failure = Some("timed out".into());
        let last = Some("no route".into());
        solitude.seeds = vec![SeedStatus { seed: "db:7400".into(), state: SeedState::Trying { last } }];
        solitude.local = addr("127.0.0.1:7400");
        let line = solitude.to_string();
        for part in ["10.0.1.1:7 (timed out)", "and 2 more", "seed db:7400: no route", "only this machine"] {
            assert!(line.contains(part), "{line}");
        }
        assert!(!line.contains('\n'));
    }

    #[test]
    fn what_others_say_stays_on_the_line() {
        assert_eq!(escaped("it's \"here\", näher"), "it's \"here\", näher");
        assert_eq!(escaped("a\n\u{1b}[2J\u{202e}b\\n"), "a\\n\\u{1b}[2J\\u{202e}b\\\\n");
    }
}
