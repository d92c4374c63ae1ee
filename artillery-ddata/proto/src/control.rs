//! The members of each chain, their order and their epoch: decisions, not suggestions.
//!
//! [`formation`] settles once which nodes found a cluster, [`placement`] puts its chains on its nodes, and [`log`] keeps the
//! present configuration of each chain. The coordinator decides what stands in the log, and which nodes hold a lease; the
//! lease client asks for leases; [`message`] has the messages between the two. Both are parts of
//! [`Node`](crate::node::NodeMachine).

pub mod branch;
pub mod conformance;
pub(crate) mod coordinator;
pub mod formation;
mod history;
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
    placement::{chain_of, first_configs},
    stores::{HeardStores, StorePosition, StoreRolledBack, StoreStart, StoreStarts},
    timing::{InvalidTiming, Timing},
};
use crate::{ClusterId, MemberId, Mode};

/// What every member of a cluster has known since it was formed. Never changed afterwards.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bootstrap {
    /// The cluster's id: random, made for this formation.
    pub cluster: ClusterId,
    /// The cluster's name; nodes under other names never meet it.
    pub name: String,
    /// The founders, in the incarnations that formed the cluster.
    pub members: Vec<NodeInfo>,
    /// The chain settings, fixed for good.
    pub settings: ChainSettings,
    /// The times that all nodes of the cluster go by.
    pub timing: Timing,
    /// The clusters that this one succeeds, oldest first: an operator gave each of them up (`ctl found`).
    pub succeeds: Vec<ClusterId>,
}

impl Bootstrap {
    /// A founding of this name by these members, with default settings and times.
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

    /// The clusters that a successor of this cluster is to name.
    pub fn lineage(&self) -> Vec<ClusterId> {
        let lineage = self.succeeds.iter().copied().chain([self.cluster]);
        lineage.skip((self.succeeds.len() + 1).saturating_sub(MAX_LINEAGE)).collect()
    }

    /// Whether exactly this incarnation is among the founders.
    pub fn names(&self, id: MemberId) -> bool {
        self.position(id).is_some()
    }

    /// Whether the node of `id` is a founder, and was one with another store: the one that it has now is new.
    pub fn names_another_store(&self, id: MemberId) -> bool {
        self.members.iter().any(|founder| founder.id.node == id.node && !founder.id.shares_store(id))
    }

    /// How many founders make a majority.
    pub fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// Checks the settings: the founding may come from any peer.
    ///
    /// # Errors
    /// [`InvalidFormation`](formation::InvalidFormation).
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

    /// The position of this incarnation or, for tests that take the rule out, of any incarnation of its node.
    fn find(&self, id: MemberId, any_incarnation: bool) -> Option<usize> {
        self.members.iter().position(|founder| founder.id == id || (any_incarnation && founder.id.node == id.node))
    }
}

/// An incarnation of a node, and how to reach it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "places::EncodedNode", try_from = "places::EncodedNode")]
pub struct NodeInfo {
    /// The node and its incarnation.
    pub id: MemberId,
    /// The node's stable name, for operators.
    pub name: String,
    /// The addresses that the node listens at.
    pub addrs: Vec<SocketAddr>,
    /// The host name and port that the node advertises, if it does: it may lead to the node when all its addresses have changed.
    pub host: Option<String>,
}

/// The chain settings that a cluster fixes when it is formed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainSettings {
    /// How many chains the keys are spread over, at least 1 and at most [`MAX_CHAINS`].
    pub chains: u32,
    /// Serving members of each chain, at least 1. With fewer nodes, all of them serve.
    pub replicas: u32,
    /// The members that serve strong reads.
    pub mode: Mode,
    /// The head refuses writes when fewer members serve: at least 1, at most `replicas`.
    pub min_members: u32,
}

/// The most chains that a cluster may have.
pub const MAX_CHAINS: u32 = 1 << 16;

impl Default for ChainSettings {
    fn default() -> Self {
        Self { chains: 1, replicas: 3, mode: Mode::Craq, min_members: 1 }
    }
}

/// A setting of the chains makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidChainSettings {
    /// [`ChainSettings::chains`].
    #[error("{0} chains: from 1 to {MAX_CHAINS} are possible")]
    Chains(u32),
    /// [`ChainSettings::replicas`].
    #[error("chains of no replica hold nothing")]
    NoReplica,
    /// [`ChainSettings::min_members`].
    #[error("min_members is {min_members}: from 1 to the number of replicas ({replicas}) are possible")]
    MinMembers {
        /// The setting.
        min_members: u32,
        /// The upper limit.
        replicas: u32,
    },
}

impl ChainSettings {
    /// Checks each setting against its limits.
    ///
    /// # Errors
    /// The first setting that is out of them.
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
