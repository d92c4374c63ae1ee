//! What a coordinator goes by.

use std::time::Duration;

use crate::{ClusterId, control::Timing, guards::Guards};

/// Settings of a coordinator. Its times are those of [`Configs::timing`](crate::control::Configs::timing) as soon as it knows
/// of the log. From then on those that it began with don't count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The cluster, by whose id nodes are ranked.
    pub cluster: ClusterId,
    /// How long a lease runs from the moment at which its renewal was sent.
    pub lease: Duration,
    /// By how much two clocks may differ in rate, in millionths.
    pub drift_ppm: u32,
    /// Who was not heard of for so long is taken to be gone.
    pub suspect: Duration,
    /// A member that holds up its chain for so long though it lives is moved out.
    pub slow: Duration,
    /// Serving members that each chain is to have.
    pub replicas: usize,
    /// Nodes that keep the log, at most; an odd number of them do.
    pub max_voters: usize,
    /// A node that is no member and wasn't heard of for so long is forgotten.
    pub forget: Duration,
    /// How often it looks at the clock.
    pub tick: Duration,
    /// The guards that stand, in the coordinator and in the node around it.
    pub guards: Guards,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cluster: ClusterId(0),
            lease: Duration::from_secs(1),
            drift_ppm: 10_000,
            suspect: Duration::from_millis(500),
            slow: Duration::from_secs(2),
            replicas: 3,
            max_voters: 5,
            forget: Duration::from_secs(600),
            tick: Duration::from_millis(50),
            guards: Guards::default(),
        }
    }
}

impl Settings {
    /// Goes by the times of the cluster from now on.
    pub(super) fn adopt(&mut self, timing: Timing) {
        let Timing { lease, drift_ppm, suspect, slow } = timing;
        *self = Self { lease, drift_ppm, suspect, slow, ..*self };
    }

    /// See [`Timing::lease_and_drift`].
    pub fn lease_and_drift(&self) -> Duration {
        let Self { lease, drift_ppm, suspect, slow, .. } = *self;
        Timing { lease, drift_ppm, suspect, slow }.lease_and_drift()
    }
}
