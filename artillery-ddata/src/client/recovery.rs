//! Disaster recovery of a cluster whose configuration log has lost its quorum permanently: surveys the remaining nodes,
//! and instructs a node to continue.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use artillery_core::{error::ConnectError, internal::first_of};
use tokio::{task::JoinSet, time::timeout_at};

use super::order::AdminError;
use crate::{
    ChainId, Client, ClusterId, Error, MemberId, NodeId,
    control::{
        History, NodeInfo,
        recovery::{NotRecovered, Recovered, Standing},
        reopening::{NotReopened, Reopened},
        succession::{NotReplaced, Replacement},
    },
    error::NotApplied,
    message::request::{AdminOperation, ResponseAnswer},
    rpc::{
        NoAnswer, Unanswered,
        router::{AskError, ask_once, from_now},
    },
};

/// The data that the nodes of a cluster hold.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Survey {
    /// The reports of the nodes that answered, at most one per incarnation.
    pub standings: Vec<Standing>,
    /// The names of the known nodes that reported nothing in time, sorted.
    pub silent: Vec<String>,
}

impl Client {
    /// Asks every known node, and the nodes at the [candidates](Self::candidates), what they hold.
    /// [`plan_recovery`](crate::admin::plan_recovery) determines which recovery is possible. `timeout` limits the query
    /// for newer routing, and then each node's answer. So the survey takes at most twice as long, and up to 5 s more if
    /// a candidate's host name must be resolved.
    pub async fn survey(&self, timeout: Duration) -> Survey {
        // The nodes that have newer routing may be dead: fall back to the known routing.
        let routing = self.refresh(timeout).await.unwrap_or_else(|_| self.routing());
        let mut asked = JoinSet::new();
        for (&node, address) in &routing.nodes {
            let (client, name) = (self.clone(), address.name.clone());
            asked.spawn(async move {
                match client.router.ask_node(node, AdminOperation::Survey, timeout).await {
                    Ok(ResponseAnswer::Survey(Some(standing))) => Ok(*standing),
                    Ok(_) => Err(Some(name)),
                    Err(error) => {
                        tracing::info!(name, error = %error.of_query(), "a node didn't report its data");
                        Err(Some(name))
                    }
                }
            });
        }
        // Ask the candidates too: a node that no leader has admitted since its start is missing from the others'
        // configuration.
        for place in self.candidates.all() {
            let client = self.clone();
            asked.spawn(async move {
                let addrs = place.resolve().await.unwrap_or_default();
                client.standing_at(&addrs, timeout).await.ok_or(None)
            });
        }
        let mut survey = Survey::default();
        for answer in asked.join_all().await {
            match answer {
                Ok(standing) if survey.standings.iter().any(|known| known.me.id == standing.me.id) => {}
                Ok(standing) => survey.standings.push(standing),
                Err(name) => survey.silent.extend(name),
            }
        }
        let heard = |name: &String| survey.standings.iter().any(|standing| standing.me.name == *name);
        survey.silent.retain(|name| !heard(name));
        survey.silent.sort();
        survey
    }

    /// Asks the nodes at these addresses what they hold. Nodes that don't report in time are missing from the result; a
    /// node with several of the addresses is in it several times. A node of another history may be known to the
    /// membership alone: [`NodeStatus::members`](crate::status::NodeStatus::members) has its address.
    pub async fn survey_at(&self, addrs: impl IntoIterator<Item = SocketAddr>, timeout: Duration) -> Vec<Standing> {
        let mut asked = JoinSet::new();
        for addr in addrs {
            let client = self.clone();
            asked.spawn(async move { client.standing_at(&[addr], timeout).await });
        }
        asked.join_all().await.into_iter().flatten().collect()
    }

    async fn standing_at(&self, addrs: &[SocketAddr], timeout: Duration) -> Option<Standing> {
        match self.ask_at(addrs, None, AdminOperation::Survey, timeout).await {
            Ok(ResponseAnswer::Survey(Some(standing))) => Some(*standing),
            _ => None,
        }
    }

    /// Makes a node continue alone with the data that it holds, under a new history. Writes that other nodes
    /// acknowledged after it lost contact with them are lost. The node itself checks that the others can't continue,
    /// and that no node that answers has a better history. It is contacted at the addresses in `by`: the log may have
    /// only those of an earlier incarnation.
    ///
    /// # Errors
    /// [`AdminError`]. If its [outcome is unknown](AdminError::is_outcome_unknown), the node may continue: survey the
    /// nodes again.
    pub async fn recover(
        &self,
        by: &NodeInfo,
        cluster: ClusterId,
        history: History,
        timeout: Duration,
    ) -> Result<Recovered, AdminError<NotRecovered>> {
        match self.ask_at(&by.addrs, Some(by.id), AdminOperation::Recover { cluster, history }, timeout).await? {
            ResponseAnswer::Recovered(outcome) => outcome.map(|recovered| *recovered).map_err(AdminError::from),
            _ => Err(AdminError::unusable(by.id.node)),
        }
    }

    /// Makes `node`, which must be the leader, reopen a chain from the remaining stores, which may lose acknowledged
    /// writes. Use it if the configuration log is intact, but none of the stores that last served the chain will
    /// return. Refused while a member of the chain is alive, or while a store is present that may be complete.
    ///
    /// # Errors
    /// [`AdminError`]. If its [outcome is unknown](AdminError::is_outcome_unknown), the node may have acted: check the
    /// status of the cluster.
    pub async fn reopen(
        &self,
        node: NodeId,
        chain: ChainId,
        timeout: Duration,
    ) -> Result<Reopened, AdminError<NotReopened>> {
        match self.router.ask_node(node, AdminOperation::Reopen { chain }, timeout).await? {
            ResponseAnswer::Reopened(outcome) => outcome.map_err(AdminError::from),
            _ => Err(AdminError::unusable(node)),
        }
    }

    /// Makes a node abandon its cluster for a successor, which it creates or joins. All data of the former cluster is
    /// lost, including its sessions and request ids. The node itself checks that no incarnation that ever served is
    /// alive. [`plan_succession`](crate::admin::plan_succession) names the node to send this to. Returns the
    /// nodes of the cluster that answered it, itself first: each of them must join the new cluster.
    ///
    /// # Errors
    /// [`AdminError`]. If its [outcome is unknown](AdminError::is_outcome_unknown), the node may have acted: check the
    /// status of the cluster.
    pub async fn create_anew(
        &self,
        by: &NodeInfo,
        cluster: ClusterId,
        replacement: Replacement,
        timeout: Duration,
    ) -> Result<Vec<NodeInfo>, AdminError<NotReplaced>> {
        let order = AdminOperation::Replace { cluster, by: replacement };
        match self.ask_at(&by.addrs, Some(by.id), order, timeout).await? {
            ResponseAnswer::Replaced(outcome) => outcome.map_err(AdminError::from),
            _ => Err(AdminError::unusable(by.id.node)),
        }
    }

    /// Asks the first node that is reached at one of these addresses. With `only`, other incarnations than this one are
    /// ignored.
    async fn ask_at(
        &self,
        addrs: &[SocketAddr],
        only: Option<MemberId>,
        operation: AdminOperation,
        timeout: Duration,
    ) -> Result<ResponseAnswer, NoAnswer> {
        let until = from_now(timeout);
        // Several addresses may belong to one node: ask it once.
        let reached = first_of(addrs.iter().copied(), |addr| async move {
            let connected = timeout_at(until, self.endpoint.connect(addr)).await;
            match connected.unwrap_or(Err(ConnectError::TimedOut)) {
                Ok(connection) if only.is_none_or(|only| only == connection.peer().id) => Ok(connection),
                Ok(_) => Err(None),
                Err(error) => Err(Some(error)),
            }
        });
        let connection = reached.await.map_err(|failures| {
            tracing::info!(?addrs, ?failures, "no node was reached");
            Error::not_applied(NotApplied::TimedOut)
        })?;
        ask_once(&connection, operation, until).await.map_err(|error| match error {
            AskError::NotSent(_) => Error::not_applied(NotApplied::TimedOut).into(),
            AskError::Unanswered(error) => {
                let reason = match (error, connection.close_reason()) {
                    (ConnectError::TimedOut, _) => Unanswered::TimedOut,
                    (_, Some(reason)) => Unanswered::Lost(Arc::new(reason)),
                    (_, None) => Unanswered::Unusable,
                };
                NoAnswer::Unanswered { node: connection.peer().id.node, reason }
            }
        })
    }
}
