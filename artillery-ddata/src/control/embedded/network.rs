//! Sends requests to other nodes of the group, and returns their answers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use artillery_core::internal::clock::NodeClock;
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
    ClusterId, MemberId, Timestamp,
    control::{History, NodeInfo, log::BoxFuture},
};

/// Carries one message of the log's group to a node, and its answer back.
///
/// A call that takes too long is dropped. Its message may arrive late, never, or more than once.
pub(crate) trait LogTransport: Send + Sync + 'static {
    /// Calls the present incarnation of the store of `to`.
    fn call(&self, to: &NodeInfo, message: Bytes) -> BoxFuture<'static, Result<Bytes, CallError>>;
}

#[derive(Clone)]
pub(super) struct LogNetwork {
    pub(super) cluster: ClusterId,
    pub(super) histories: Histories,
    pub(super) peers: Arc<dyn LogTransport>,
    /// This node's store; `None`: it has no disk.
    pub(super) place: Option<StorePlace>,
    pub(super) backoff: Duration,
    pub(super) answered: AnswerTimes,
    pub(super) clock: NodeClock,
}

/// For each node, the send time of the latest message that it has answered. Clones share it.
#[derive(Clone, Default)]
pub(super) struct AnswerTimes(Arc<Mutex<BTreeMap<RaftId, Timestamp>>>);

impl AnswerTimes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<RaftId, Timestamp>> {
        // No code that holds the lock can panic halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_answered(&self, by: RaftId, sent: Timestamp) {
        let mut times = self.lock();
        if times.len() >= MAX_ANSWER_TIMES && !times.contains_key(&by) {
            let oldest = times.iter().min_by_key(|(_, sent)| **sent).map(|(&id, _)| id);
            oldest.and_then(|id| times.remove(&id));
        }
        let latest = times.entry(by).or_insert(sent);
        *latest = sent.max(*latest);
    }

    pub(super) fn of_all(&self) -> BTreeMap<MemberId, Timestamp> {
        self.lock().iter().map(|(&RaftId(id), &sent)| (id, sent)).collect()
    }
}

/// The number of nodes whose answers are remembered. Of a node without a disk, each incarnation counts separately.
const MAX_ANSWER_TIMES: usize = 256;

impl RaftNetworkFactory<TypeConfig> for LogNetwork {
    type Network = NodeConnection;

    async fn new_client(&mut self, target: RaftId, node: &RaftNode) -> NodeConnection {
        NodeConnection { network: self.clone(), to: target, peer: node.clone() }
    }
}

pub(super) struct NodeConnection {
    network: LogNetwork,
    to: RaftId,
    peer: RaftNode,
}

type RaftRpcError<E = openraft::error::Infallible> = RPCError<RaftId, RaftNode, RaftError<RaftId, E>>;

impl NodeConnection {
    async fn ask<E: std::error::Error>(&self, question: LogQuestion) -> Result<LogAnswer, RaftRpcError<E>> {
        let sent = self.network.clock.now();
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
            self.network.answered.has_answered(self.to, sent);
            match answer {
                LogAnswer::OtherHistory(theirs) => {
                    // The peer is in a newer history: record it.
                    let _ = histories.meet(theirs);
                    Err(CallError::OtherHistory)
                }
                answer => Ok(answer),
            }
        };
        answer.await.map_err(|error: CallError| match error {
            CallError::Malformed(_) | CallError::Senseless(_) => NetworkError::new(&error).into(),
            // For this error openraft retries after a pause, for the others at once.
            _ => Unreachable::new(&error).into(),
        })
    }
}

fn off_topic<E: std::error::Error>() -> RaftRpcError<E> {
    NetworkError::new(&CallError::Senseless("it answers another request")).into()
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
