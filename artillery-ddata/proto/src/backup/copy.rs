//! Asks for the parts of a chain's data.

use artillery_core::Frame;
use bytes::Bytes;

use crate::{
    ReadMode, Sequence,
    api::{CopyMessage, CopyReply, CopyStep, Query},
    guards::Guards,
    message::{ChainMessage, SnapshotContent, SnapshotCursor, SnapshotHeader, SnapshotPart},
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
    /// The last key that was visited.
    behind: Option<Bytes>,
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
    /// All records were received, the last ones as of this watermark. Updates may be missing.
    Read {
        watermark: Sequence,
    },
    Ended,
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
            CopyState::Ended => return None,
            CopyState::New => CopyStep::Begin,
            _ if self.needs_updates() => CopyStep::Updates { after: self.after },
            CopyState::Reading => CopyStep::Records { behind: self.behind.clone(), floor: self.begun },
            CopyState::Read { .. } => return None,
        };
        Some(Query::Copy(step))
    }

    /// Whether a part shows a later point than the received updates.
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

    /// Takes the reply to [`next`](Self::next). Returns the messages to write, in order.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn answer(&mut self, reply: CopyReply) -> Result<Vec<ChainMessage>, CopyError> {
        let CopyReply { watermark, message, next } = reply;
        let mut messages: Vec<_> = message.map(decoded).transpose()?.into_iter().collect();
        match self.state {
            CopyState::New => {
                let header = begun(messages.first()).ok_or(CopyError)?;
                (self.begun, self.after) = (header.version.sequence, header.version.sequence);
                (self.state, self.needed) = (CopyState::Reading, watermark.max(self.after));
            }
            _ if self.needs_updates() => {
                let Some(ChainMessage::Updates(updates)) = messages.first() else { return Err(CopyError) };
                let last = updates.updates.last().ok_or(CopyError)?.version.sequence;
                if updates.after.sequence != self.after || last > watermark {
                    return Err(CopyError);
                }
                self.after = last;
            }
            CopyState::Reading => {
                self.check_records(messages.first(), next.as_ref())?;
                // Also for keys that the reply doesn't show: they may have been deleted since the beginning.
                self.needed = self.needed.max(watermark);
                match next {
                    Some(key) => self.behind = Some(key),
                    None => self.state = CopyState::Read { watermark },
                }
            }
            CopyState::Read { .. } | CopyState::Ended => return Err(CopyError),
        }
        if let CopyState::Read { watermark } = self.state
            && !self.needs_updates()
        {
            let at = SnapshotCursor { behind: self.behind.clone(), ..SnapshotCursor::default() };
            let part = SnapshotPart { id: 1, at, watermark, content: SnapshotContent::End };
            messages.push(ChainMessage::Snapshot(part));
            self.state = CopyState::Ended;
        }
        Ok(messages)
    }

    fn check_records(&self, message: Option<&ChainMessage>, next: Option<&Bytes>) -> Result<(), CopyError> {
        let advances = |key: &Bytes| self.behind.as_ref().is_none_or(|behind| behind < key);
        let follows = match message {
            None => true,
            Some(ChainMessage::Snapshot(SnapshotPart { content: SnapshotContent::Records(records), .. })) => {
                let ends = |key: &Bytes| records.last().is_some_and(|record| record.key <= *key);
                records.first().is_some_and(|record| advances(&record.key)) && next.is_none_or(ends)
            }
            Some(_) => false,
        };
        if follows && next.is_none_or(advances) { Ok(()) } else { Err(CopyError) }
    }
}

fn decoded(message: CopyMessage) -> Result<ChainMessage, CopyError> {
    let CopyMessage { header, mut body } = message;
    let body = if body.len() == 1 { body.remove(0) } else { body.concat().into() };
    chain::decode(&Frame { header, body }).map(|frame| frame.message).map_err(|_| CopyError)
}

fn begun(message: Option<&ChainMessage>) -> Option<&SnapshotHeader> {
    match message? {
        ChainMessage::Snapshot(SnapshotPart { content: SnapshotContent::Begin(header), .. }) => Some(header),
        _ => None,
    }
}
