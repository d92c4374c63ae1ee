//! The members of each chain, their order and their epoch.
//!
//! [`formation`] decides once which nodes form a cluster, [`placement`] assigns chains to nodes, and [`log`] keeps the
//! current configuration of each chain. The coordinator proposes log entries and grants leases; the lease client asks
//! for leases. Both are parts of [`Node`](crate::node::NodeMachine) and exchange the messages of [`message`].
//! [`encounter`] decides which of two clusters with the same name gives way.

pub mod branch;
pub mod conformance;
pub(crate) mod coordinator;
pub mod encounter;
pub mod formation;
mod history;
mod index;
pub(crate) mod lease_client;
pub mod log;
pub mod message;
pub mod placement;
pub(crate) mod places;
pub mod recovery;
pub mod reopening;
mod stores;
pub mod succession;
mod timing;

use std::net::SocketAddr;

pub use artillery_core::internal::MAX_LINEAGE;
use serde::{Deserialize, Serialize};

pub use self::{
    history::{History, Met, Relation},
    log::{ConfigLog, Configs, Term},
    placement::{chain_of, chain_of_prefix, first_configs},
    stores::{HeardStores, StorePosition, StoreRolledBack, StoreStart, StoreStarts},
    timing::{InvalidTiming, Timing},
};
use crate::{ClusterId, MemberId, Mode};

/// The facts about a cluster that are fixed when it is formed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bootstrap {
    /// Random, made for this formation.
    pub cluster: ClusterId,
    /// The cluster's name: nodes started under another name never connect to it.
    pub name: String,
    /// The founders, in the incarnations that formed the cluster.
    pub members: Vec<NodeInfo>,
    pub settings: ChainSettings,
    /// The times that all nodes of the cluster use.
    pub timing: Timing,
    /// The clusters that this one succeeds, oldest first: an operator replaced each of them (`ctl create-anew`).
    pub succeeds: Vec<ClusterId>,
}

impl Bootstrap {
    pub fn new(cluster: ClusterId, name: impl Into<String>, members: Vec<NodeInfo>) -> Self {
        Self {
            cluster,
            name: name.into(),
            members,
            settings: ChainSettings::default(),
            timing: Timing::default(),
            succeeds: Vec::new(),
        }
    }

    /// The value of [`succeeds`](Self::succeeds) for a successor of this cluster: at most [`MAX_LINEAGE`] clusters.
    pub fn lineage(&self) -> Vec<ClusterId> {
        let lineage = self.succeeds.iter().copied().chain([self.cluster]);
        lineage.skip((self.succeeds.len() + 1).saturating_sub(MAX_LINEAGE)).collect()
    }

    /// Whether exactly this incarnation is among the founders.
    pub fn names(&self, id: MemberId) -> bool {
        self.position(id).is_some()
    }

    /// Whether an incarnation of the node of `id` with another store is a founder.
    pub fn names_another_store(&self, id: MemberId) -> bool {
        self.members.iter().any(|founder| founder.id.node == id.node && !founder.id.shares_store(id))
    }

    pub fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// Checks the settings, which may have been sent by any peer.
    pub(crate) fn validate(&self) -> Result<(), formation::InvalidFormation> {
        self.settings.validate()?;
        if self.succeeds.len() > MAX_LINEAGE {
            return Err(formation::InvalidFormation::Lineage(self.succeeds.len()));
        }
        Ok(self.timing.validate()?)
    }

    pub(crate) fn position(&self, id: MemberId) -> Option<usize> {
        self.find(id, false)
    }

    /// The position of this incarnation or, if `any_incarnation` (a mutant), of any incarnation of its node.
    fn find(&self, id: MemberId, any_incarnation: bool) -> Option<usize> {
        self.members.iter().position(|founder| founder.id == id || (any_incarnation && founder.id.node == id.node))
    }
}

/// An incarnation of a node, and how to reach it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "places::EncodedNode", try_from = "places::EncodedNode")]
pub struct NodeInfo {
    pub id: MemberId,
    /// The node's stable name, for operators.
    pub name: String,
    /// The addresses on which the node listens.
    pub addrs: Vec<SocketAddr>,
    /// The host name and port that the node advertises, if any. The name may still resolve after all addresses have
    /// changed.
    pub host: Option<String>,
}

/// The chain settings of a cluster, fixed when it is formed. Defaults are in parentheses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainSettings {
    /// The number of chains over which the keys are spread (1): from 1 to [`MAX_CHAINS`].
    pub chains: u32,
    /// Serving members of each chain, at least 1 (3). In a cluster with fewer nodes, all of them serve.
    pub replicas: u32,
    /// Which members serve strong reads ([`Mode::Craq`]).
    pub mode: Mode,
    /// The head refuses writes while fewer members serve (1): from 1 to `replicas`.
    pub min_members: u32,
}

/// The maximum of [`ChainSettings::chains`].
pub const MAX_CHAINS: u32 = 1 << 16;

impl Default for ChainSettings {
    fn default() -> Self {
        Self { chains: 1, replicas: 3, mode: Mode::Craq, min_members: 1 }
    }
}

/// A chain setting is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidChainSettings {
    /// [`ChainSettings::chains`] is out of range.
    #[error("{0} chains: from 1 to {MAX_CHAINS} are possible")]
    Chains(u32),
    /// [`ChainSettings::replicas`] is 0.
    #[error("chains of no replica hold nothing")]
    NoReplica,
    /// [`ChainSettings::min_members`] is out of range.
    #[error("min_members is {min_members}: from 1 to the number of replicas ({replicas}) are possible")]
    MinMembers {
        /// The rejected value.
        min_members: u32,
        /// The upper limit.
        replicas: u32,
    },
}

impl ChainSettings {
    /// Checks each setting against its limits.
    ///
    /// # Errors
    /// The first setting that is out of range.
    pub fn validate(&self) -> Result<(), InvalidChainSettings> {
        if self.chains == 0 || self.chains > MAX_CHAINS {
            return Err(InvalidChainSettings::Chains(self.chains));
        }
        if self.replicas == 0 {
            return Err(InvalidChainSettings::NoReplica);
        }
        if self.min_members == 0 || self.min_members > self.replicas {
            return Err(InvalidChainSettings::MinMembers { min_members: self.min_members, replicas: self.replicas });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_their_limits_are_named() {
        let good = ChainSettings::default();
        assert_eq!(good.validate(), Ok(()));
        let chains = |chains| ChainSettings { chains, ..good }.validate();
        assert_eq!(chains(0), Err(InvalidChainSettings::Chains(0)));
        assert_eq!(chains(MAX_CHAINS), Ok(()));
        assert_eq!(chains(MAX_CHAINS + 1), Err(InvalidChainSettings::Chains(MAX_CHAINS + 1)));
        assert_eq!(ChainSettings { replicas: 0, ..good }.validate(), Err(InvalidChainSettings::NoReplica));
        for min_members in [0, 4] {
            let error = InvalidChainSettings::MinMembers { min_members, replicas: 3 };
            assert_eq!(ChainSettings { min_members, ..good }.validate(), Err(error));
        }
    }
}
