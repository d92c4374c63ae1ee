//! When a node is ready: any other one may be stopped, and this one does what its place is for (docs/DESIGN.md §5.3).

use super::{Node, Output, Successor};
use crate::{
    ChainConfig, ChainId, ClusterId, Role, Timestamp,
    control::message::{Report, Unsettled},
};

/// Why a node isn't ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unready {
    /// It joins a chain, and doesn't serve yet.
    #[error("this node joins chain {}", chain.0)]
    Joins {
        /// Which chain.
        chain: ChainId,
    },
    /// A chain that it serves isn't open here.
    #[error("chain {} is not open at this node", chain.0)]
    Closed {
        /// Which chain.
        chain: ChainId,
    },
    /// It is to serve, and has no lease.
    #[error("this node has no lease")]
    NoLease,
    /// No life of a member that serves answers, and this node never served.
    #[error("no life of a node that served answers")]
    Orphaned,
    /// Its cluster was given up for another one, and it hears no other node of its own.
    #[error("cluster {by} succeeds this node's, of which no other node answers")]
    Yields {
        /// Which cluster.
        by: ClusterId,
    },
    /// By the newest answer to it no other node should be stopped.
    #[error(transparent)]
    Unsettled(#[from] Unsettled),
}

impl Default for Unready {
    fn default() -> Self {
        Self::Unsettled(Unsettled::Unled)
    }
}

impl Node {
    /// Keeps what the chains say of themselves with a renewal: the answer to it finds them so, or better.
    pub(super) fn look_at_chains(&mut self, reports: &[Report]) {
        let is_open = |config: &&ChainConfig| {
            let report = reports.iter().find(|report| report.chain == config.chain);
            report.is_some_and(|report| report.open && report.epoch == config.epoch && !report.halted)
        };
        let closed = self.state.configs.iter().filter(|config| config.role(self.me).is_some() && !is_open(config));
        self.closed = closed.map(|config| config.chain).collect();
    }

    /// Takes in the word of the leader, which is about the moment of its answer.
    pub(super) fn see_whether_ready(&mut self, now: Timestamp, settled: Result<(), Unsettled>) {
        let unready = self.unready(now, settled).err();
        self.state.unready = unready;
        if unready.is_none() && !self.was_ready {
            self.was_ready = true;
            self.outputs.push_back(Output::Ready);
        }
    }

    fn unready(&self, now: Timestamp, settled: Result<(), Unsettled>) -> Result<(), Unready> {
        if let Some(Successor { by, .. }) = self.state.successor.filter(|successor| successor.yields) {
            return Err(Unready::Yields { by });
        }
        if self.state.orphaned {
            return Err(Unready::Orphaned);
        }
        for config in self.state.configs.iter() {
            let chain = config.chain;
            match config.role(self.me) {
                None => {}
                Some(Role::Serving) if self.closed.contains(&chain) => return Err(Unready::Closed { chain }),
                Some(Role::Serving) if self.state.lease <= now => return Err(Unready::NoLease),
                Some(Role::Serving) => {}
                Some(_) => return Err(Unready::Joins { chain }),
            }
        }
        if allows!(self.guards, ReadyUnsettled) { Ok(()) } else { Ok(settled?) }
    }
}
