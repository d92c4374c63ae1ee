//! The machine that a node runs on. The one of a test has a simulated network and disk.

use artillery_core::internal::clock::NodeClock;
#[cfg(feature = "testing")]
use artillery_core::internal::simulated::Network;
#[cfg(feature = "testing")]
use artillery_proto::disk::simulated::SimulatedDisk;
use artillery_proto::guards::Guards;

use crate::config::Config;

/// The parts of a machine that differ in tests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine {
    pub(crate) clock: NodeClock,
    pub(crate) guards: Guards,
    #[cfg(feature = "testing")]
    pub(crate) network: Option<Network>,
    /// The node's disk, instead of a directory.
    #[cfg(feature = "testing")]
    pub(crate) disk: Option<SimulatedDisk>,
    /// The size of the history that members keep, in bytes; `None`: that of the settings.
    #[cfg(feature = "testing")]
    pub(crate) backlog: Option<usize>,
}

impl Machine {
    /// The size of the history that members keep, in bytes.
    pub(super) fn backlog(&self, config: &Config) -> usize {
        #[cfg(feature = "testing")]
        if let Some(backlog) = self.backlog {
            return backlog;
        }
        config.limits.backlog_bytes
    }
}
