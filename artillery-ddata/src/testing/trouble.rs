//! Random faults while a test runs, drawn from its seed.

use std::time::Duration;

use artillery_core::internal::simulated::Weather;

/// Random faults, in addition to the faults caused by the test. All probabilities are from 0 to 1.
///
/// ```
/// # #[cfg(feature = "testing")] {
/// let mut trouble = artillery_ddata::testing::Trouble::rough();
/// trouble.crashes = false;
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Trouble {
    /// The minimum delay of a packet.
    pub shortest_delay: Duration,
    /// The maximum delay of a packet that isn't lost.
    pub longest_delay: Duration,
    /// The probability that a packet is lost, and sent again 50 ms later.
    pub lost_packets: f64,
    /// The probability, per packet, that its connection breaks, which loses all packets in transit.
    pub broken_connections: f64,
    /// The probability that a write ends with an unknown outcome.
    pub lost_answers: f64,
    /// The probability that the request of an answered write arrives a second time, up to two seconds after the answer.
    pub doubled_requests: f64,
    /// Whether at random times a node is paused or isolated, or a link is cut in one direction, for up to 1.5 seconds. That
    /// may last longer than a lease, so members are removed and join again.
    pub interruptions: bool,
    /// Whether at random times a node crashes, and restarts within four seconds. A node crashes only while all nodes run and
    /// serve, without a cut, and only in a cluster of at least three, so data in memory survives. A test that crashes or
    /// isolates a node before the other one serves again may still lose the majority, and data in memory.
    pub crashes: bool,
}

impl Trouble {
    /// No faults, only delays.
    pub fn none() -> Self {
        Self {
            shortest_delay: Duration::from_micros(200),
            longest_delay: Duration::from_millis(3),
            lost_packets: 0.0,
            broken_connections: 0.0,
            lost_answers: 0.0,
            doubled_requests: 0.0,
            interruptions: false,
            crashes: false,
        }
    }

    /// Faults of all kinds. Each is short, so that a call that retries succeeds in the end.
    pub fn rough() -> Self {
        Self {
            longest_delay: Duration::from_millis(20),
            lost_packets: 0.05,
            broken_connections: 0.005,
            lost_answers: 0.1,
            doubled_requests: 0.2,
            interruptions: true,
            crashes: true,
            ..Self::none()
        }
    }

    pub(super) fn weather(&self) -> Weather {
        Weather {
            shortest: self.shortest_delay,
            longest: self.longest_delay,
            lost: self.lost_packets,
            broken: self.broken_connections,
            ..Weather::default()
        }
    }
}

impl Default for Trouble {
    fn default() -> Self {
        Self::none()
    }
}
