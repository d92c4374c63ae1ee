//! A coordinator's settings.

use std::time::Duration;

use crate::{ClusterId, control::Timing, guards::Guards};

/// Settings of a coordinator. Once it has seen the log, the times of
/// [`Configs::timing`](crate::control::Configs::timing) replace those given here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoordinatorSettings {
    /// The cluster; its id ranks nodes for placement.
    pub cluster: ClusterId,
    /// How long a lease runs from the moment at which its renewal was sent.
    pub lease: Duration,
    /// By how much two clocks may differ in rate, in millionths.
    pub drift_ppm: u32,
    /// A node that was not heard for so long is taken to be gone.
    pub suspect: Duration,
    /// A living member that holds up its chain for so long is moved out.
    pub slow: Duration,
    /// Serving members that each chain is to have.
    pub replicas: usize,
    /// The most voters of the log's group; their number is odd.
    pub max_voters: usize,
    /// A node that isn't one of the first voters gets no vote before it has lived for so long.
    pub voter_age: Duration,
    /// A node that is in no chain and was not heard for so long is forgotten.
    pub forget: Duration,
    /// When no member of a chain lives on, those whose stores are back wait for the others for so long. Each leader goes by its own
    /// setting: a longer wait brings more members, not more data.
    pub reopen: Duration,
    /// How often the coordinator looks at the clock.
    pub tick: Duration,
    /// The guards that stand, in the coordinator and in the node around it.
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
    /// Takes over the cluster's times.
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
