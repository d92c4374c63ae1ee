//! Copies of a chain for a backup: what a joiner receives, on request.

use artillery_core::Frame;
use bytes::Bytes;

use crate::Sequence;

/// One step of a copy. The member keeps nothing between the steps, so that any serving member may answer each.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum CopyStep {
    /// Returns the beginning of a snapshot: the version after which the updates of the copy follow.
    Begin,
    /// Returns the committed records after a key, or the end of the snapshot.
    Records {
        /// The last key of the part before.
        behind: Option<Bytes>,
        /// The member waits until its watermark has reached this sequence, that of the beginning.
        floor: Sequence,
    },
    /// Returns the next committed updates. Refused as [`Compacted`](super::Refusal::Compacted) if the member no longer
    /// keeps them. The member waits until its watermark has reached `after`.
    Updates { after: Sequence },
}

impl CopyStep {
    /// The watermark that a member needs for this step.
    pub(crate) fn floor(&self) -> Option<Sequence> {
        match self {
            Self::Begin => None,
            Self::Records { floor, .. } => Some(*floor),
            Self::Updates { after } => Some(*after),
        }
    }
}

/// The reply to one step of a copy.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CopyReply {
    /// The member's watermark when it made the reply. Records show the state up to there at most.
    pub watermark: Sequence,
    /// A part of a snapshot, or updates, as the frame of a chain with chain, epoch and index 0; `None`: there are no
    /// further updates.
    pub frame: Option<Frame>,
}

impl CopyReply {
    /// The approximate size, in bytes.
    pub fn bytes(&self) -> usize {
        self.frame.as_ref().map_or(0, |frame| frame.header.len() + frame.body.len())
    }
}
