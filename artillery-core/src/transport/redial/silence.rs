//! When what was sent on a connection has waited too long for any acknowledgement.
//!
//! QUIC itself gives a connection up only after three of its own timeouts, however short the idle timeout is (RFC 9000,
//! section 10.1). On a path that had long queues these are seconds each, and double: once the path is well again, and what
//! was in those queues is gone, the connection would go on waiting, and a new one works at once.
//!
//! What waits can't be told by what was sent since the last acknowledgement alone: a connection whose congestion window
//! is full, as it is after such a queue has lost packets, sends nothing at all until QUIC's timeout. So after a while of
//! silence it is given a question to send. A connection that is idle sends that at once, and is answered.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::transport::{Connection, quic::Traffic};

/// How often it is looked, as a part of the limit.
const CHECK_DIVISOR: u32 = 12;
/// After this part of the limit without an acknowledgement the peer is asked for one.
const QUIET_DIVISOR: u32 = 6;

/// How long no acknowledgement has come.
#[derive(Debug)]
struct Silence {
    limit: Duration,
    seen: Traffic,
    /// When an acknowledgement was seen last.
    heard: Instant,
    /// Since when something is known to wait for one.
    waits: Option<Instant>,
}

/// What is to be done about it.
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

/// Waits until nothing has been acknowledged on a connection for `limit`, though something was waiting for it.
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

    /// What comes of looks at these milliseconds, each of which finds so much sent and so many acknowledgements.
    fn looks<const N: usize>(looks: [(u64, u64, u64); N]) -> [SilenceVerdict; N] {
        let start = Instant::now();
        let traffic = |sent, acknowledgements| Traffic { sent, acknowledgements };
        let mut silence = Silence::new(Duration::from_secs(3), start, traffic(5, 3));
        looks.map(|(ms, sent, acks)| silence.check(start + Duration::from_millis(ms), traffic(sent, acks)))
    }

    #[test]
    fn what_is_sent_and_not_acknowledged_is_missed() {
        assert_eq!(looks([(250, 6, 3), (3000, 9, 3), (3250, 9, 3)]), [Well, Well, TooLong]);
        // Any acknowledgement will do.
        assert_eq!(looks([(250, 6, 3), (3000, 9, 4), (3250, 10, 4), (6000, 10, 5)]), [Well; 4]);
    }

    #[test]
    fn who_can_send_nothing_is_missed_too() {
        assert_eq!(looks([(250, 5, 3), (500, 5, 3), (3250, 5, 3), (3500, 5, 3)]), [Well, Ask, Well, TooLong]);
    }

    #[test]
    fn who_has_nothing_to_send_is_asked_now_and_then() {
        let idle = [(500, 5, 3), (750, 6, 4), (1000, 6, 4), (1250, 6, 4), (1500, 7, 5)];
        assert_eq!(looks(idle), [Ask, Well, Well, Ask, Well]);
    }
}
