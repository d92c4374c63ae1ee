//! When what was sent on a connection has waited too long for any acknowledgement.
//!
//! QUIC itself gives a connection up only after three of its own timeouts, however short the idle timeout is (RFC 9000,
//! section 10.1). On a path that had long queues these are seconds each, and double: once the path is well again, and what
//! was in those queues is gone, the connection would go on waiting, and a new one works at once.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::transport::Connection;

/// What went to and fro on a connection so far, as frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transport) struct Traffic {
    /// Sent, and to be acknowledged.
    pub(in crate::transport) sent: u64,
    /// Acknowledgements that came.
    pub(in crate::transport) acknowledgements: u64,
}

/// How long no acknowledgement has come.
#[derive(Debug)]
struct Silence {
    seen: Traffic,
    /// Since when something has been waiting for one.
    since: Option<Instant>,
}

impl Silence {
    fn new(seen: Traffic) -> Self {
        Self { seen, since: None }
    }

    fn look(&mut self, now: Instant, traffic: Traffic) -> Duration {
        if traffic.acknowledgements != self.seen.acknowledgements {
            *self = Self::new(traffic);
        } else if traffic.sent > self.seen.sent {
            self.since.get_or_insert(now);
        }
        self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

/// Waits until nothing has been acknowledged on a connection for `limit`, though something was waiting for it.
pub(super) async fn lasts(connection: &Connection, limit: Duration) {
    let Some(traffic) = connection.traffic() else { return std::future::pending().await };
    let mut silence = Silence::new(traffic);
    while connection.traffic().is_some_and(|traffic| silence.look(Instant::now(), traffic) < limit) {
        sleep(limit / 12).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_waits_is_missed() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let traffic = |sent, acknowledgements| Traffic { sent, acknowledgements };
        let mut silence = Silence::new(traffic(5, 3));
        assert_eq!(silence.look(at(1000), traffic(5, 3)), Duration::ZERO);
        assert_eq!(silence.look(at(2000), traffic(6, 3)), Duration::ZERO);
        assert_eq!(silence.look(at(2500), traffic(9, 3)), Duration::from_millis(500));
        // It may have been for what was sent before; what was sent since is told by what is sent after it.
        assert_eq!(silence.look(at(3000), traffic(10, 4)), Duration::ZERO);
        assert_eq!(silence.look(at(9000), traffic(10, 4)), Duration::ZERO);
        assert_eq!(silence.look(at(9100), traffic(11, 4)), Duration::ZERO);
        assert_eq!(silence.look(at(9200), traffic(11, 4)), Duration::from_millis(100));
    }
}
