//! How questions get to other nodes, and what comes of it.

use std::{sync::Arc, time::Duration};

use artillery_core::internal::codec::CodecError;
use bytes::Bytes;
use openraft::{
    RaftNetwork, RaftNetworkFactory,
    error::{InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable},
    network::{Backoff, RPCOption},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse, VoteRequest,
        VoteResponse,
    },
};

use super::{
    Histories,
    messages::{self, Answer, Envelope, Question},
    types::{Peer, RaftId, TypeConfig},
};
use crate::{
    ClusterId, MemberId,
    control::{Founder, History, log::BoxFuture},
};

/// Carries one message of the log's group to a node, and its answer back.
///
/// A call that takes too long is dropped. What it carried may arrive late, never, or more than once.
pub(crate) trait Peers: Send + Sync + 'static {
    /// Asks exactly this life of a node.
    fn call(&self, to: &Founder, message: Bytes) -> BoxFuture<'static, Result<Bytes, CallError>>;
}

/// A message of the log's group came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// It didn't get there, or its answer not back.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The bytes are no message.
    #[error("no message of the configuration log: {0}")]
    Malformed(#[from] CodecError),
    /// The message is none that its sender could have sent.
    #[error("a message of the configuration log, but {0}")]
    Senseless(&'static str),
    /// Another node was meant, another life of this one, or another cluster.
    #[error("{0} was meant")]
    NotMe(MemberId),
    /// Whoever asks or is asked belongs to another history.
    #[error("the cluster was recovered, and this is of another history")]
    OtherHistory,
    /// This node keeps no log any more.
    #[error("the configuration log stopped: {0}")]
    Stopped(String),
}

/// Makes the connections of one node.
#[derive(Clone)]
pub(super) struct Network {
    pub(super) cluster: ClusterId,
    pub(super) histories: Histories,
    pub(super) peers: Arc<dyn Peers>,
    pub(super) backoff: Duration,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Line;

    async fn new_client(&mut self, target: RaftId, node: &Peer) -> Line {
        Line { network: self.clone(), to: target, peer: node.clone() }
    }
}

/// The way to one node.
pub(super) struct Line {
    network: Network,
    to: RaftId,
    peer: Peer,
}

type Failure<E = openraft::error::Infallible> = RPCError<RaftId, Peer, RaftError<RaftId, E>>;

impl Line {
    async fn ask<E: std::error::Error>(&self, question: Question) -> Result<Answer, Failure<E>> {
        let answer = async {
            let Network { cluster, histories, peers, .. } = &self.network;
            let history = histories.mine().unwrap_or(History::first(*cluster));
            let message = messages::encode(&Envelope { cluster: *cluster, history, to: self.to, question })?;
            let bytes = peers.call(&self.peer.0, message).await?;
            match messages::decode(&bytes)? {
                Answer::OtherHistory(theirs) => {
                    // It says so to whom it has left behind.
                    let _ = histories.meet(theirs);
                    Err(CallError::OtherHistory)
                }
                answer => Ok(answer),
            }
        };
        answer.await.map_err(|error: CallError| match error {
            CallError::Malformed(_) | CallError::Senseless(_) => NetworkError::new(&error).into(),
            // Asked again after a while, and not at once.
            _ => Unreachable::new(&error).into(),
        })
    }
}

fn off_topic<E: std::error::Error>() -> Failure<E> {
    NetworkError::new(&CallError::Senseless("it answers another question")).into()
}

impl RaftNetwork<TypeConfig> for Line {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<RaftId>, Failure> {
        match self.ask(Question::Append(request)).await? {
            Answer::Append(answer) => Ok(answer),
            _ => Err(off_topic()),
        }
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<RaftId>, Failure<InstallSnapshotError>> {
        match self.ask(Question::Snapshot(request)).await? {
            Answer::Snapshot(answer) => Ok(answer),
            Answer::Mismatch(error) => Err(RemoteError::new(self.to, RaftError::APIError(error)).into()),
            _ => Err(off_topic()),
        }
    }

    async fn vote(&mut self, request: VoteRequest<RaftId>, _: RPCOption) -> Result<VoteResponse<RaftId>, Failure> {
        match self.ask(Question::Vote(request)).await? {
            Answer::Vote(answer) => Ok(answer),
            _ => Err(off_topic()),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(self.network.backoff))
    }
}
