use artillery_core::internal::codec::{self, CodecError};
use bytes::Bytes;
use openraft::{
    error::InstallSnapshotError,
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest,
        VoteResponse,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::types::{RaftId, RaftLogId, Speaker, TypeConfig};
use crate::{
    ClusterId, MemberId,
    control::{History, StoreRolledBack},
};

pub(super) const MAX_MESSAGE: usize = codec::MAX_HEADER;
/// The maximum bytes of entries in one message, if it holds more than one.
pub(super) const MAX_ENTRIES_BYTES: usize = MAX_MESSAGE / 2;
/// The largest proposal, in bytes: with the rest of a message it stays below [`MAX_MESSAGE`].
pub(super) const MAX_PROPOSAL: usize = MAX_MESSAGE / 2;
const MAX_SNAPSHOT: u64 = 256 << 20;
/// Larger counters are refused: no correct node sends them, and honest counters never overflow.
const MAX_COUNTER: u64 = 1 << 60;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// The other node wasn't reached, or no answer arrived.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The bytes don't decode to a message.
    #[error("not a message of the configuration log: {0}")]
    Malformed(#[from] CodecError),
    /// No correct node sends this message or this answer.
    #[error("an implausible message of the configuration log: {0}")]
    Senseless(&'static str),
    /// The message was for another node, another store of this node, or another cluster.
    #[error("{0} was meant")]
    NotMe(MemberId),
    #[error("the cluster was recovered, and the message belongs to another history")]
    OtherHistory,
    /// The other node's directory is an older copy, or a second one in use.
    #[error(transparent)]
    RolledBack(#[from] StoreRolledBack),
    #[error("the configuration log stopped: {0}")]
    Stopped(String),
}

#[derive(Serialize, Deserialize, Debug)]
pub(super) struct Envelope {
    /// The cluster. Messages of another cluster's group are refused.
    pub(super) cluster: ClusterId,
    /// The history. Nodes of a recovered history and nodes left behind ignore each other.
    pub(super) history: History,
    /// The addressed store. A later store of the same node has forgotten its promises (trap 21).
    pub(super) to: RaftId,
    /// The sender's store and its position; `None`: it has no disk.
    pub(super) by: Option<Speaker>,
    pub(super) question: LogQuestion,
}

/// An answer, with the answering node's store and its position.
#[derive(Serialize, Deserialize, Debug)]
pub(super) struct AnswerOf {
    pub(super) by: Option<Speaker>,
    pub(super) answer: LogAnswer,
}

#[derive(Serialize, Deserialize, Debug)]
pub(super) enum LogQuestion {
    Append(AppendEntriesRequest<TypeConfig>),
    Vote(VoteRequest<RaftId>),
    Snapshot(InstallSnapshotRequest<TypeConfig>),
}

#[derive(Serialize, Deserialize, Debug)]
pub(super) enum LogAnswer {
    Append(AppendEntriesResponse<RaftId>),
    Vote(VoteResponse<RaftId>),
    Snapshot(InstallSnapshotResponse<RaftId>),
    /// Another part of the snapshot, or another snapshot, was expected.
    Mismatch(InstallSnapshotError),
    /// The sender's history is over: the cluster was recovered with this one.
    OtherHistory(History),
}

pub(super) fn encode<T: Serialize>(message: &T) -> Result<Bytes, CallError> {
    let mut bytes = Vec::new();
    codec::encode(message, &mut bytes)?;
    if bytes.len() > MAX_MESSAGE {
        return Err(CallError::Malformed(CodecError::TooLarge(bytes.len())));
    }
    Ok(bytes.into())
}

/// Decodes as a value, not as a header: a header's size limit depends on its types. If a message that fits a frame were
/// refused here, the log would stop permanently.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CallError> {
    if bytes.len() > MAX_MESSAGE {
        return Err(CallError::Malformed(CodecError::TooLarge(bytes.len())));
    }
    Ok(codec::decode_value(bytes)?)
}

impl Envelope {
    /// Checks that the message is for this cluster and this store, that its sender is `from`, and that its counters are
    /// plausible.
    pub(super) fn check(&self, cluster: ClusterId, me: RaftId, from: RaftId) -> Result<(), CallError> {
        if self.cluster != cluster || self.to != me {
            return Err(CallError::NotMe(self.to.0));
        }
        if self.question.asker() != Some(from) {
            return Err(CallError::Senseless("it names another node as its sender"));
        }
        self.question.check()
    }
}

impl Speaker {
    /// Checks that the sender reports its own store: a false report about another store would get that store refused.
    pub(super) fn check(&self, is_sender: impl Fn(MemberId) -> bool) -> Result<(), CallError> {
        if is_sender(self.id) { Ok(()) } else { Err(CallError::Senseless("it reports the store of another node")) }
    }
}

impl LogQuestion {
    fn asker(&self) -> Option<RaftId> {
        let vote = match self {
            Self::Append(request) => &request.vote,
            Self::Vote(request) => &request.vote,
            Self::Snapshot(request) => &request.vote,
        };
        vote.leader_id().voted_for()
    }

    fn check(&self) -> Result<(), CallError> {
        let term = |term: u64| term <= MAX_COUNTER;
        let place = |log_id: &RaftLogId| term(log_id.leader_id.term) && log_id.index <= MAX_COUNTER;
        let good = match self {
            Self::Append(request) => {
                let first = request.prev_log_id.map_or(0, |log_id| log_id.index.saturating_add(1));
                let mut indices = (first..).zip(&request.entries);
                let mut terms = request.prev_log_id.iter().chain(request.entries.iter().map(|entry| &entry.log_id));
                term(request.vote.leader_id().term)
                    && request.vote.is_committed()
                    && request.prev_log_id.iter().chain(&request.leader_commit).all(place)
                    && indices.all(|(index, entry)| entry.log_id.index == index && place(&entry.log_id))
                    && terms.all(|log_id| log_id.leader_id.term <= request.vote.leader_id().term)
            }
            Self::Vote(request) => term(request.vote.leader_id().term) && request.last_log_id.iter().all(place),
            Self::Snapshot(request) => {
                term(request.vote.leader_id().term)
                    && request.vote.is_committed()
                    && request.meta.last_log_id.iter().chain(request.meta.last_membership.log_id()).all(place)
                    && request.offset.checked_add(request.data.len() as u64).is_some_and(|end| end <= MAX_SNAPSHOT)
            }
        };
        if good { Ok(()) } else { Err(CallError::Senseless("its counters are out of range")) }
    }
}
