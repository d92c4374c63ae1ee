//! Which chain holds a key, and where its members are: what a client has to know.

use std::{collections::BTreeMap, net::SocketAddr};

use serde::{Deserialize, Serialize};

use crate::{ChainConfig, ChainId, ClusterId, NodeId, control::History};

/// What a node tells whoever asks for the way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Routing {
    /// Which formation.
    pub cluster: ClusterId,
    /// Which history: the first, unless the cluster was recovered after a loss.
    pub history: History,
    /// The configuration of each chain, by chain id.
    pub chains: Vec<ChainConfig>,
    /// The nodes known.
    pub nodes: BTreeMap<NodeId, NodeAddress>,
}

/// How a node is called and reached.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeAddress {
    /// Its name, from which its id is derived.
    pub name: String,
    /// Where it can be dialled.
    pub addrs: Vec<SocketAddr>,
}

impl Routing {
    /// What sessions and watches belong to: what they have seen of one history says nothing about another.
    pub fn life(&self) -> ClusterId {
        self.history.life()
    }

    /// The configuration of a chain.
    pub fn chain(&self, chain: ChainId) -> Option<&ChainConfig> {
        self.chains.get(chain.0 as usize)
    }
}
