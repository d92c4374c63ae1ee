//! Trouble that a seed draws while a test runs.

use std::time::Duration;

use artillery_core::internal::simulated::Weather;

/// What goes wrong by itself, without the test's doing. All chances are from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Trouble {
    /// The shortest time that anything is on its way.
    pub shortest_delay: Duration,
    /// The longest time, where nothing is lost.
    pub longest_delay: Duration,
    /// The chance that a packet is lost and sent again, 50 ms later.
    pub lost_packets: f64,
    /// The chance, for each thing sent, that its connection breaks, with all that is on its way.
    pub broken_connections: f64,
    /// The chance that a write ends with an unknown outcome.
    pub lost_answers: f64,
    /// The chance that a write's request arrives a second time, up to two seconds later.
    pub doubled_requests: f64,
    /// Every now and then, for up to 1.5 seconds, a member stands still or is set apart, or a link is cut in one direction.
    pub interruptions: bool,
}

impl Trouble {
    /// None: delays alone.
    pub fn none() -> Self {
        Self {
            shortest_delay: Duration::from_micros(200),
            longest_delay: Duration::from_millis(3),
            lost_packets: 0.0,
            broken_connections: 0.0,
            lost_answers: 0.0,
            doubled_requests: 0.0,
            interruptions: false,
        }
    }

    /// Something of everything, and nothing for so long that calls would fail for it that repeat themselves.
    pub fn rough() -> Self {
        Self {
            longest_delay: Duration::from_millis(20),
            lost_packets: 0.05,
            broken_connections: 0.005,
            lost_answers: 0.1,
            doubled_requests: 0.2,
            interruptions: true,
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
