use std::time::Duration;

use crate::{ClusterId, control::Timing, guards::Guards};

/// Once the coordinator has seen the log, `lease`, `drift_ppm`, `suspect` and `slow` of
/// [`Configs::timing`](crate::control::Configs::timing) replace the values given here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoordinatorSettings {
    /// The cluster's id is part of the placement's hash.
    pub cluster: ClusterId,
    /// The duration of a lease, starting when its renewal is sent.
    pub lease: Duration,
    /// The maximum difference in rate between two clocks, in parts per million.
    pub drift_ppm: u32,
    /// A node is treated as dead after this time without a renewal.
    pub suspect: Duration,
    /// A living member that stalls its chain for this long is moved out.
    pub slow: Duration,
    /// The target number of serving members of each chain.
    pub replicas: usize,
    /// The maximum number of voters of the log's group. The leader chooses an odd number of them.
    pub max_voters: usize,
    /// A node that has not voted before gets no vote until it has renewed with this term's leader for this long.
    /// Exceptions: see module `voters`.
    pub voter_age: Duration,
    /// A node that is in no chain is forgotten after this time without a renewal.
    pub forget: Duration,
    /// When no member of a chain survived, returned members wait this long for the others. Each leader uses its own
    /// setting: a longer wait brings back more members, not more data.
    pub reopen: Duration,
    /// The interval of ticks.
    pub tick: Duration,
    /// The guards in force, in the coordinator and in the node around it.
    pub guards: Guards,
}

impl Default for CoordinatorSettings {
    fn default() -> Self {
        Self {
            cluster: ClusterId(0),
            lease: Duration::from_secs(1),
            drift_ppm: 10_000,
            suspect: Duration::from_millis(500),
            slow: Duration::from_secs(2),
            replicas: 3,
            max_voters: 5,
            voter_age: Duration::from_secs(10),
            forget: Duration::from_secs(600),
            reopen: Duration::from_secs(2),
            tick: Duration::from_millis(50),
            guards: Guards::default(),
        }
    }
}

impl CoordinatorSettings {
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
