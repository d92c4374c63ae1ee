//! Reopening a chain that lost all its serving members while the configuration log still has its quorum: an operator
//! accepts the loss, and the leader opens the chain again from the best available store (docs/DESIGN.md §5.8).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ChainId, Epoch, MemberId, Sequence, Version};

/// A chain that was opened again after an operator had accepted a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reopened {
    pub chain: ChainId,
    /// The epoch in which it was opened.
    pub epoch: Epoch,
    /// The node that serves it, alone at first.
    pub by: MemberId,
    /// The newest version at this node; [`Version::NONE`]: the chain starts empty.
    pub last: Version,
    /// The highest earlier commit watermark that any node has reported to the leader. More may have been committed.
    pub known: Sequence,
}

impl fmt::Display for Reopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chain, epoch, by: _, last, known } = self;
        write!(f, "chain {}: opened again in epoch {epoch}, ", chain.0)?;
        match last.is_none() {
            true => f.write_str("empty")?,
            false => write!(f, "with everything up to version {last}")?,
        }
        if *known > last.sequence {
            let (first, lost) = (last.sequence.next(), known.0 - last.sequence.0);
            write!(f, ". MISSING: {lost} updates that were known to be committed, {first} to {known}")?;
        }
        f.write_str(". May be missing: updates acknowledged after that")
    }
}

/// Why a chain was not opened again. Nothing was changed, except possibly after `Stopped` and `Undecided`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum NotReopened {
    /// The node that received the order is not the leader.
    #[error("this node isn't the leader of the configuration log")]
    NotLeading {
        /// The leader, if known.
        leader: Option<MemberId>,
    },
    /// The chain doesn't exist.
    #[error("there is no chain {}", chain.0)]
    NoChain {
        /// The named chain.
        chain: ChainId,
    },
    /// Another such order is in progress: one runs at a time.
    #[error("another chain is being reopened")]
    Busy,
    /// A serving member is alive: it holds every committed update.
    #[error("nothing is lost: {member} serves the chain and is alive")]
    Lives { member: MemberId },
    /// A store of the last serving members is back and may be complete: the chain opens by itself.
    #[error("nothing is lost: the store of {member} may be complete, and opens the chain by itself")]
    Whole {
        /// The store's current incarnation.
        member: MemberId,
    },
    /// A store of the last serving members may be complete but can't open the chain yet: its node hasn't reported its
    /// contents, isn't in the log yet, is leaving, or has stopped serving the chain. Or a node is still loading its
    /// directory.
    #[error("the store of {member} may be complete: wait until its node reports its contents, or restart that node")]
    Comes {
        /// The store's current incarnation.
        member: MemberId,
    },
    #[error("no node could serve the chain")]
    NoNode,
    /// No majority confirmed in time that this node leads, leases of former members may still run, or a member was
    /// silent for too short a time.
    #[error("could not confirm in time that no former member still serves: try again")]
    Unconfirmed,
    /// Another proposal changed the configuration: check it, and repeat the order if needed.
    #[error("the configuration was changed by another proposal: check it and try again")]
    Overtaken,
    /// The configuration is fixed, or not known yet.
    #[error("the configuration of this node never changes, or isn't known yet")]
    Fixed,
    /// The node stops. It may have proposed to reopen the chain, which may then still take effect.
    #[error("the node stops")]
    Stopped,
    /// The leader lost its leadership while a proposal was in flight: the chain may still be reopened.
    #[error("the leader lost its leadership: the chain may still be reopened")]
    Undecided,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::id;

    #[test]
    fn what_is_missing_is_said() {
        let reopened =
            Reopened { chain: ChainId(2), epoch: Epoch(7), by: id(1), last: Version::new(5, 40), known: Sequence(57) };
        let text = reopened.to_string();
        assert!(
            text.contains("up to version 5.40") && text.contains("17 updates") && text.contains("41 to 57"),
            "{text}"
        );
        let text = Reopened { last: Version::NONE, known: Sequence(0), ..reopened }.to_string();
        assert!(text.contains("epoch 7, empty. May be missing") && !text.contains("MISSING"), "{text}");
    }
}
