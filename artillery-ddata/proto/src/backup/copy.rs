//! Asks for the parts of a chain's data.

use crate::{
    ReadMode, Sequence,
    api::{CopyReply, CopyStep, Query},
    guards::Guards,
    message::{ChainMessage, SnapshotContent},
    wire::chain,
};

/// Copies one chain: the records in key order, each as of the time of its part, and all updates since the beginning. The
/// updates up to the latest of these times make the records the state at one point.
///
/// The updates follow each part at once, since members keep only some of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainCopy {
    guards: Guards,
    state: CopyState,
    /// The last key of the records.
    behind: Option<bytes::Bytes>,
    /// The newest update that was received.
    after: Sequence,
    /// The point of the beginning.
    begun: Sequence,
    /// The highest watermark of a part: updates are needed up to here.
    needed: Sequence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyState {
    New,
    Reading,
    /// All records were received.
    Read,
}

/// A reply that doesn't follow from the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a part of the copy doesn't follow the part before")]
pub struct CopyError;

impl ChainCopy {
    pub fn new(guards: Guards) -> Self {
        Self {
            guards,
            state: CopyState::New,
            behind: None,
            after: Sequence::ZERO,
            begun: Sequence::ZERO,
            needed: Sequence::ZERO,
        }
    }

    /// The next read. It may be repeated, also at another serving member. `None`: the copy is complete.
    pub fn next(&self) -> Option<Query> {
        let step = match self.state {
            CopyState::New => CopyStep::Begin,
            _ if self.needs_updates() => CopyStep::Updates { after: self.after },
            CopyState::Reading => CopyStep::Records { behind: self.behind.clone(), floor: self.begun },
            CopyState::Read => return None,
        };
        Some(Query::Copy(step))
    }

    /// Whether a part shows a later point than the updates received so far.
    fn needs_updates(&self) -> bool {
        self.after < self.needed && !allows!(self.guards, EndEarly)
    }

    /// The mode of the next read. The beginning shows every write that was acknowledged before.
    pub fn mode(&self) -> ReadMode {
        if self.state == CopyState::New { ReadMode::Strong } else { ReadMode::Eventual }
    }

    /// The point that the copy shows, once it is complete.
    pub fn at(&self) -> Sequence {
        self.after
    }

    /// Takes the reply to [`next`](Self::next). Returns the message to write, if there is one.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn answer(&mut self, reply: CopyReply) -> Result<Option<ChainMessage>, CopyError> {
        let waits_for_updates = self.state != CopyState::New && self.needs_updates();
        let Some(frame) = reply.frame else {
            // A member that has reached this sequence, but not the watermark of a part, has no further updates yet.
            return if waits_for_updates { Ok(None) } else { Err(CopyError) };
        };
        let mut message = chain::decode(&frame).map_err(|_| CopyError)?.message;
        match &mut message {
            ChainMessage::Updates(updates) if waits_for_updates => {
                let last = updates.updates.last().ok_or(CopyError)?.version.sequence;
                if updates.after.sequence != self.after || last > reply.watermark {
                    return Err(CopyError);
                }
                self.after = last;
            }
            ChainMessage::Snapshot(part) if !waits_for_updates => {
                let state = match &part.content {
                    SnapshotContent::Begin(header) if self.state == CopyState::New => {
                        (self.begun, self.after) = (header.version.sequence, header.version.sequence);
                        CopyState::Reading
                    }
                    SnapshotContent::Records(records) if self.state == CopyState::Reading => {
                        let first = records.first().map(|record| &record.key);
                        if part.at.behind != self.behind || first <= self.behind.as_ref() {
                            return Err(CopyError);
                        }
                        // A copy: the key shares the memory of its part.
                        self.behind = records.last().map(|record| bytes::Bytes::copy_from_slice(&record.key));
                        CopyState::Reading
                    }
                    SnapshotContent::End if self.state == CopyState::Reading => {
                        // The updates since the last records were not received. The end shows no record.
                        part.watermark = self.after;
                        CopyState::Read
                    }
                    _ => return Err(CopyError),
                };
                (self.state, self.needed) = (state, self.needed.max(part.watermark));
            }
            _ => return Err(CopyError),
        }
        Ok(Some(message))
    }
}
