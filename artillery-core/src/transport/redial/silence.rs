//! Detects connections that no longer receive acknowledgements.
//!
//! QUIC closes a connection only after three of its own timeouts, however short the idle timeout is (RFC 9000, section
//! 10.1). On a path that had long queues such a timeout takes seconds, and it doubles each time. Once the path has
//! recovered and the queued packets are lost, the old connection would keep waiting, while a new one would work at
//! once.
//!
//! Frames sent since the last acknowledgement are not the only sign that one is expected. A connection whose congestion
//! window is full, for instance because such a queue has lost packets, sends nothing until QUIC's timeout. So after
//! some silence an empty datagram is queued. An idle connection sends it at once and gets an acknowledgement.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::transport::{Connection, quic::Traffic};

/// The connection is checked this many times within the limit.
const CHECK_DIVISOR: u32 = 12;
/// The peer is probed after `limit / QUIET_DIVISOR` without an acknowledgement.
const QUIET_DIVISOR: u32 = 6;

#[derive(Debug)]
struct Silence {
    limit: Duration,
    seen: Traffic,
    /// When the latest acknowledgement was seen.
    heard: Instant,
    /// Since when an acknowledgement is known to be due.
    waits: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SilenceVerdict {
    Well,
    Ask,
    TooLong,
}

impl Silence {
    fn new(limit: Duration, now: Instant, seen: Traffic) -> Self {
        Self { limit, seen, heard: now, waits: None }
    }

    fn check(&mut self, now: Instant, traffic: Traffic) -> SilenceVerdict {
        if traffic.acknowledgements != self.seen.acknowledgements {
            *self = Self::new(self.limit, now, traffic);
        }
        match self.waits {
            Some(since) if now - since >= self.limit => SilenceVerdict::TooLong,
            Some(_) => SilenceVerdict::Well,
            None if traffic.sent > self.seen.sent => {
                self.waits = Some(now);
                SilenceVerdict::Well
            }
            None if now - self.heard >= self.limit / QUIET_DIVISOR => {
                self.waits = Some(now);
                SilenceVerdict::Ask
            }
            None => SilenceVerdict::Well,
        }
    }
}

/// Waits until an acknowledgement has been due for `limit`. Never returns on a simulated network.
pub(super) async fn until_too_long(connection: &Connection, limit: Duration) {
    let Some(traffic) = connection.traffic() else { return std::future::pending().await };
    let mut silence = Silence::new(limit, Instant::now(), traffic);
    while let Some(traffic) = connection.traffic() {
        match silence.check(Instant::now(), traffic) {
            SilenceVerdict::Well => {}
            SilenceVerdict::Ask => connection.ask_for_acknowledgement(),
            SilenceVerdict::TooLong => return,
        }
        sleep(limit / CHECK_DIVISOR).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{
        SilenceVerdict::{Ask, TooLong, Well},
        *,
    };

    /// The verdicts of checks at these milliseconds, each with the total numbers of frames sent and acknowledgements
    /// received.
    fn looks<const N: usize>(looks: [(u64, u64, u64); N]) -> [SilenceVerdict; N] {
        let start = Instant::now();
        let traffic = |sent, acknowledgements| Traffic { sent, acknowledgements };
        let mut silence = Silence::new(Duration::from_secs(3), start, traffic(5, 3));
        looks.map(|(ms, sent, acks)| silence.check(start + Duration::from_millis(ms), traffic(sent, acks)))
    }

    #[test]
    fn unacknowledged_frames_are_missed() {
        assert_eq!(looks([(250, 6, 3), (3000, 9, 3), (3250, 9, 3)]), [Well, Well, TooLong]);
        // Any acknowledgement resets the wait.
        assert_eq!(looks([(250, 6, 3), (3000, 9, 4), (3250, 10, 4), (6000, 10, 5)]), [Well; 4]);
    }

    #[test]
    fn a_blocked_sender_is_asked_and_then_missed() {
        assert_eq!(looks([(250, 5, 3), (500, 5, 3), (3250, 5, 3), (3500, 5, 3)]), [Well, Ask, Well, TooLong]);
    }

    #[test]
    fn an_idle_connection_is_asked_now_and_then() {
        let idle = [(500, 5, 3), (750, 6, 4), (1000, 6, 4), (1250, 6, 4), (1500, 7, 5)];
        assert_eq!(looks(idle), [Ask, Well, Well, Ask, Well]);
    }
}
