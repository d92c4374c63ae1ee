//! Copies of a chain for a backup: the parts that a joiner would receive, on request.

use std::hash::{Hash, Hasher};

use bytes::Bytes;

use crate::Sequence;

/// One step of a copy. The member keeps nothing between the steps, so that any serving member may answer each.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum CopyStep {
    /// Returns the beginning of a snapshot: the version after which the updates of the copy follow.
    Begin,
    /// Returns the committed records after a key.
    Records {
        /// The last key that was visited; `None`: from the first.
        behind: Option<Bytes>,
        /// The member waits until its watermark has reached this sequence, that of the beginning.
        floor: Sequence,
    },
    /// Returns the committed updates after a sequence, at least one: the member waits until there is one. Refused as
    /// [`Compacted`](super::Refusal::Compacted) if the member no longer keeps them.
    Updates { after: Sequence },
}

impl CopyStep {
    /// The watermark that a member needs for this step.
    pub(crate) fn floor(&self) -> Option<Sequence> {
        match self {
            Self::Begin => None,
            Self::Records { floor, .. } => Some(*floor),
            Self::Updates { after } => Some(after.saturating_next()),
        }
    }
}

/// The reply to one step of a copy.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CopyReply {
    /// The state that the reply shows: records, and keys without records, are from this point or earlier.
    pub watermark: Sequence,
    /// A part of a snapshot, or updates; `None`: there was no record among the visited keys.
    pub message: Option<CopyMessage>,
    /// The last key that was visited, where the records continue. `None`: there are no further records, or the step
    /// returns none.
    pub next: Option<Bytes>,
}

/// A message of a chain as it is encoded between members, with chain, epoch and index 0. The body is in pieces, which share
/// the memory of the records.
#[derive(Clone, Debug)]
pub struct CopyMessage {
    pub header: Bytes,
    pub body: Vec<Bytes>,
}

/// The pieces don't matter, since a received body has one.
impl PartialEq for CopyMessage {
    fn eq(&self, other: &Self) -> bool {
        self.header == other.header && self.body.concat() == other.body.concat()
    }
}

impl Eq for CopyMessage {}

impl Hash for CopyMessage {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.header, self.body.concat()).hash(state);
    }
}

impl CopyReply {
    /// The approximate size, in bytes.
    pub fn bytes(&self) -> usize {
        let of_message =
            |message: &CopyMessage| message.header.len() + message.body.iter().map(Bytes::len).sum::<usize>();
        self.message.as_ref().map_or(0, of_message) + self.next.as_ref().map_or(0, Bytes::len)
    }
}
