//! A chain of which no serving member comes back, while the configuration log is well: an operator accepts the loss, and the
//! leader opens the chain again from the best store that is there (docs/DESIGN.md §5.8).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{ChainId, Epoch, MemberId, Sequence, Version};

/// A chain that was opened again after an operator had accepted a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reopened {
    /// Which chain.
    pub chain: ChainId,
    /// The epoch in which it was opened.
    pub epoch: Epoch,
    /// The node that serves it, alone at first.
    pub by: MemberId,
    /// The newest version that this node holds; [`Version::NONE`]: the chain begins empty.
    pub last: Version,
    /// The highest commit watermark of before that any node has told the leader. More may have been committed.
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
        f.write_str(". May be missing: what was acknowledged behind that")
    }
}

/// Why a chain is not opened again. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum NotReopened {
    /// The node that was asked is not the leader.
    #[error("this node doesn't decide on configurations")]
    NotLeading {
        /// The leader, as far as is known.
        leader: Option<MemberId>,
    },
    /// There is no such chain.
    #[error("there is no chain {}", chain.0)]
    NoChain {
        /// The named chain.
        chain: ChainId,
    },
    /// Another such order is being carried out: there is one at a time.
    #[error("another chain is being opened again")]
    Busy,
    /// A serving member lives: it holds everything.
    #[error("nothing is lost: {member} serves the chain, and lives")]
    Lives {
        /// The member.
        member: MemberId,
    },
    /// A store that served last is back, and may lack nothing: the chain opens by itself.
    #[error("nothing is lost: the store of {member} may lack nothing, and opens the chain by itself")]
    Whole {
        /// The life in which the store is back.
        member: MemberId,
    },
    /// A store that served last is back, and its node hasn't told yet what it holds, or has stopped serving the chain.
    #[error("the store of {member} may lack nothing: wait until its node tells what it holds, or start that again")]
    Comes {
        /// The life in which the store is back.
        member: MemberId,
    },
    /// No node could serve the chain.
    #[error("no node is there that could serve the chain")]
    NoNode,
    /// A majority didn't confirm in time that this node leads, or leases of former members may still run.
    #[error("it isn't certain in time that no former member serves: try again")]
    Unconfirmed,
    /// The configuration was changed in another way meanwhile: look at it, and ask again.
    #[error("the configuration was changed otherwise meanwhile")]
    Overtaken,
    /// The configuration never changes, or there is none yet.
    #[error("the configuration of this node never changes, or isn't known yet")]
    Fixed,
    /// The node stops.
    #[error("the node stops")]
    Stopped,
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
