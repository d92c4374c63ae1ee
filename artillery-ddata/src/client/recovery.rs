//! Disaster recovery of a cluster whose configuration log has lost its quorum for good: surveys what is left, and tells
//! a node to continue.

use std::{net::SocketAddr, time::Duration};

use artillery_core::{error::ConnectError, internal::first_of};
use tokio::{task::JoinSet, time::timeout_at};

use crate::{
    ChainId, Client, ClusterId, Error, MemberId, NodeId,
    control::{
        History, NodeInfo,
        recovery::{NotRecovered, Recovered, Standing},
        reopening::{NotReopened, Reopened},
        succession::NotFounded,
    },
    error::NotApplied,
    message::request::{AdminOperation, ResponseAnswer},
    rpc::router::{ask_once, from_now},
};

/// What the nodes of a cluster hold.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Survey {
    /// The standings of the nodes that answered.
    pub standings: Vec<Standing>,
    /// Names of the nodes that did not answer.
    pub silent: Vec<String>,
}

impl Client {
    /// Asks every known node what it holds; nodes that don't answer in time are left out.
    /// [`recovery::plan`](crate::control::recovery::plan) says which recovery is possible.
    pub async fn survey(&self, timeout: Duration) -> Survey {
        // Most nodes that know newer routing may be dead: fall back to the routing learnt on connecting.
        let routing = self.refresh(timeout).await.unwrap_or_else(|_| self.routing());
        let mut asked = JoinSet::new();
        for (&node, address) in &routing.nodes {
            let (client, name) = (self.clone(), address.name.clone());
            asked.spawn(async move {
                match client.router.ask_node(node, AdminOperation::Survey, timeout).await {
                    Ok(ResponseAnswer::Survey(Some(standing))) => Ok(*standing),
                    Ok(_) => Err(Some(name)),
                    Err(error) => {
                        tracing::info!(name, %error, "a node doesn't say what it holds");
                        Err(Some(name))
                    }
                }
            });
        }
        // Ask the candidates too: a node that no leader has admitted since its start is missing in the others'
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

    /// Asks the nodes at these addresses what they hold. A node of another history may be known by gossip alone, which
    /// [`NodeStatus::members`](crate::status::NodeStatus::members) tells.
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

    /// Makes a node continue alone with what it holds, under a new history. Writes that other nodes acknowledged since
    /// it lost contact with them are lost. The node itself checks that the others can't continue, and that no node that
    /// answers has a better history. It is asked at the addresses in `by`: the log may know it only by those of an earlier life.
    ///
    /// # Errors
    /// [`Error::NotApplied`] if the node wasn't reached or didn't answer in time: it may act all the same. The inner
    /// error says why the node refuses.
    pub async fn recover(
        &self,
        by: &NodeInfo,
        cluster: ClusterId,
        history: History,
        timeout: Duration,
    ) -> Result<Result<Recovered, NotRecovered>, Error> {
        match self.ask_at(&by.addrs, Some(by.id), AdminOperation::Recover { cluster, history }, timeout).await? {
            ResponseAnswer::Recovered(outcome) => Ok(outcome.map(|recovered| *recovered)),
            _ => Err(Error::not_applied(NotApplied::Unreachable { node: by.id.node, reason: None })),
        }
    }

    /// Makes the leader open a chain again from what is left, though acknowledged writes are lost by that: none of the stores
    /// that served it last comes back, while the configuration log is well. Refused while a member lives, or a store is there
    /// that may lack nothing.
    ///
    /// # Errors
    /// [`Error::NotApplied`] if the node wasn't reached or didn't answer in time: it may act all the same. The inner
    /// error says why the node refuses.
    pub async fn reopen(
        &self,
        node: NodeId,
        chain: ChainId,
        timeout: Duration,
    ) -> Result<Result<Reopened, NotReopened>, Error> {
        match self.router.ask_node(node, AdminOperation::Reopen { chain }, timeout).await? {
            ResponseAnswer::Reopened(outcome) => Ok(outcome),
            _ => Err(Error::not_applied(NotApplied::Unreachable { node, reason: None })),
        }
    }

    /// Makes a node give its cluster up for one that succeeds it: the node founds that, or joins it. All data of the
    /// former cluster is lost, with its sessions and request ids. The node itself checks that no incarnation that ever
    /// served is alive. [`succession::found`](crate::control::succession::found) names the node to send this to.
    /// Returns the nodes of the cluster that answered it, itself first: each of them must join the new cluster.
    ///
    /// # Errors
    /// [`Error::NotApplied`] if the node wasn't reached or didn't answer in time: it may act all the same. The inner
    /// error says why the node refuses.
    pub async fn found(
        &self,
        by: &NodeInfo,
        cluster: ClusterId,
        founds: bool,
        timeout: Duration,
    ) -> Result<Result<Vec<NodeInfo>, NotFounded>, Error> {
        match self.ask_at(&by.addrs, Some(by.id), AdminOperation::Found { cluster, founds }, timeout).await? {
            ResponseAnswer::Founds(outcome) => Ok(outcome),
            _ => Err(Error::not_applied(NotApplied::Unreachable { node: by.id.node, reason: None })),
        }
    }

    /// Asks the first node reached at one of these addresses. With `only`, exactly that incarnation.
    async fn ask_at(
        &self,
        addrs: &[SocketAddr],
        only: Option<MemberId>,
        operation: AdminOperation,
        timeout: Duration,
    ) -> Result<ResponseAnswer, Error> {
        let until = from_now(timeout);
        // Several addresses may be those of one node: it is asked once.
        let reached = first_of(addrs.iter().copied(), |addr| async move {
            let connected = timeout_at(until, self.endpoint.connect(addr)).await;
            match connected.unwrap_or(Err(ConnectError::TimedOut)) {
                Ok(connection) if only.is_none_or(|only| only == connection.peer().id) => Ok(connection),
                Ok(_) => Err(None),
                Err(error) => Err(Some(error)),
            }
        });
        match reached.await {
            Ok(connection) => {
                let answer = ask_once(&connection, operation, until).await;
                answer.map_err(|_| Error::not_applied(NotApplied::TimedOut))
            }
            Err(failures) => {
                tracing::info!(?addrs, ?failures, "no node was reached");
                Err(Error::not_applied(NotApplied::TimedOut))
            }
        }
    }
}
