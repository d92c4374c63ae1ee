use std::time::Duration;

use artillery_core::internal::clock::NodeClock;
use artillery_proto::guards::Guards;

use crate::control::log::ConfigLogError;

/// Settings of the group that keeps the log. All its nodes should have the same.
#[derive(Clone, Debug)]
pub(crate) struct EmbeddedSettings {
    pub(crate) heartbeat: Duration,
    /// A follower trusts a silent leader for `election_max`. Then it calls an election after a further random time
    /// between `election_min` and `election_max`; if it knows a longer log, only after twice `election_max` more.
    /// Longer than `heartbeat`.
    pub(crate) election_min: Duration,
    /// See `election_min`; longer than that.
    pub(crate) election_max: Duration,
    /// How long an append or a confirmation waits for a majority before it fails.
    pub(crate) patience: Duration,
    /// How long a change of the voters or of the receivers of the log may take, including the time in which new voters
    /// receive the log.
    pub(crate) catch_up: Duration,
    pub(crate) max_voters: usize,
    /// A snapshot is made after this many entries; 0 is treated as 1. Of the entries before it, the last half of this
    /// number is kept.
    pub(crate) snapshot_every: u64,
    /// How many of the last configuration changes stay readable; 0 is treated as 1.
    pub(crate) window: usize,
    pub(crate) seed: u64,
    pub(crate) guards: Guards,
    pub(crate) clock: NodeClock,
}

impl Default for EmbeddedSettings {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_millis(250),
            election_max: Duration::from_millis(500),
            patience: Duration::from_secs(2),
            catch_up: Duration::from_secs(10),
            max_voters: 5,
            snapshot_every: 512,
            window: 1024,
            seed: 0,
            guards: Guards::default(),
            clock: NodeClock::default(),
        }
    }
}

impl EmbeddedSettings {
    /// The settings in openraft's form.
    ///
    /// # Errors
    /// [`ConfigLogError::Failed`]: the times are inconsistent.
    pub(super) fn config(&self, cluster: String) -> Result<openraft::Config, ConfigLogError> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        openraft::Config {
            cluster_name: cluster,
            heartbeat_interval: millis(self.heartbeat),
            election_timeout_min: millis(self.election_min),
            election_timeout_max: millis(self.election_max),
            install_snapshot_timeout: millis(self.election_max),
            max_payload_entries: MAX_ENTRIES,
            snapshot_policy: openraft::SnapshotPolicy::LogsSinceLast(self.snapshot_every.max(1)),
            snapshot_max_chunk_size: MAX_CHUNK,
            max_in_snapshot_log_to_keep: self.snapshot_every / 2,
            replication_lag_threshold: self.snapshot_every.saturating_mul(2),
            ..openraft::Config::default()
        }
        .validate()
        .map_err(|error| ConfigLogError::Failed(error.to_string()))
    }
}

/// Maximum number of entries per message.
const MAX_ENTRIES: u64 = 128;
/// Maximum bytes of a snapshot per message.
const MAX_CHUNK: u64 = 256 << 10;
