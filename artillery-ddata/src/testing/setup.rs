use artillery_core::internal::simulated::Network;

use crate::{ClusterId, replica::ReplicaSettings};

/// The settings that all nodes of a cluster share.
#[derive(Clone)]
pub(super) struct NodeSetup {
    pub(super) network: Network,
    pub(super) cluster: ClusterId,
    pub(super) seed: u64,
    pub(super) chains: u32,
    pub(super) settings: ReplicaSettings,
}
