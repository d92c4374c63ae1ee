//! Sends requests to other nodes of the group, and returns their answers.

use std::{sync::Arc, time::Duration};

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
    kept::StorePlace,
    messages::{self, AnswerOf, CallError, Envelope, LogAnswer, LogQuestion},
    types::{RaftId, RaftNode, TypeConfig},
};
use crate::{
    ClusterId,
    control::{History, NodeInfo, log::BoxFuture},
};

/// Carries one message of the log's group to a node, and its answer back.
///
/// A call that takes too long is dropped. Its message may arrive late, never, or more than once.
pub(crate) trait LogTransport: Send + Sync + 'static {
    /// Calls the present incarnation of this node's store.
    fn call(&self, to: &NodeInfo, message: Bytes) -> BoxFuture<'static, Result<Bytes, CallError>>;
}

/// Makes the connections of one node.
#[derive(Clone)]
pub(super) struct LogNetwork {
    pub(super) cluster: ClusterId,
    pub(super) histories: Histories,
    pub(super) peers: Arc<dyn LogTransport>,
    /// This node's store; `None`: it has no disk.
    pub(super) place: Option<StorePlace>,
    pub(super) backoff: Duration,
}

impl RaftNetworkFactory<TypeConfig> for LogNetwork {
    type Network = NodeConnection;

    async fn new_client(&mut self, target: RaftId, node: &RaftNode) -> NodeConnection {
        NodeConnection { network: self.clone(), to: target, peer: node.clone() }
    }
}

/// The connection to one node.
pub(super) struct NodeConnection {
    network: LogNetwork,
    to: RaftId,
    peer: RaftNode,
}

type RaftRpcError<E = openraft::error::Infallible> = RPCError<RaftId, RaftNode, RaftError<RaftId, E>>;

impl NodeConnection {
    async fn ask<E: std::error::Error>(&self, question: LogQuestion) -> Result<LogAnswer, RaftRpcError<E>> {
        let answer = async {
            let LogNetwork { cluster, histories, peers, place, .. } = &self.network;
            let history = histories.mine().unwrap_or(History::first(*cluster));
            let message = messages::encode(&Envelope {
                cluster: *cluster,
                history,
                to: self.to,
                by: place.as_ref().map(StorePlace::speaker),
                question,
            })?;
            let bytes = peers.call(&self.peer.0, message).await?;
            let AnswerOf { by, answer } = messages::decode(&bytes)?;
            if let (Some(place), Some(by)) = (place, by) {
                by.check(|id| id.shares_store(self.to.0))?;
                place.keep_heard(by).await?;
            }
            match answer {
                LogAnswer::OtherHistory(theirs) => {
                    // The peer says so to a node that it has left behind.
                    let _ = histories.meet(theirs);
                    Err(CallError::OtherHistory)
                }
                answer => Ok(answer),
            }
        };
        answer.await.map_err(|error: CallError| match error {
            CallError::Malformed(_) | CallError::Senseless(_) => NetworkError::new(&error).into(),
            // openraft retries after a pause, instead of immediately.
            _ => Unreachable::new(&error).into(),
        })
    }
}

fn off_topic<E: std::error::Error>() -> RaftRpcError<E> {
    NetworkError::new(&CallError::Senseless("it answers another question")).into()
}

impl RaftNetwork<TypeConfig> for NodeConnection {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<RaftId>, RaftRpcError> {
        match self.ask(LogQuestion::Append(request)).await? {
            LogAnswer::Append(answer) => Ok(answer),
            _ => Err(off_topic()),
        }
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<RaftId>, RaftRpcError<InstallSnapshotError>> {
        match self.ask(LogQuestion::Snapshot(request)).await? {
            LogAnswer::Snapshot(answer) => Ok(answer),
            LogAnswer::Mismatch(error) => Err(RemoteError::new(self.to, RaftError::APIError(error)).into()),
            _ => Err(off_topic()),
        }
    }

    async fn vote(&mut self, request: VoteRequest<RaftId>, _: RPCOption) -> Result<VoteResponse<RaftId>, RaftRpcError> {
        match self.ask(LogQuestion::Vote(request)).await? {
            LogAnswer::Vote(answer) => Ok(answer),
            _ => Err(off_topic()),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(self.network.backoff))
    }
}
