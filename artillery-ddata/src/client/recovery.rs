//! A cluster whose configuration log has lost its quorum for good: asked what is left of it, and told to go on.

use std::time::Duration;

use tokio::task::JoinSet;

use super::Client;
use crate::{
    ClusterId, Error, NodeId,
    control::{
        History,
        recovery::{NotRecovered, Recovered, Standing},
    },
    error::NotApplied,
    wire::request::{Operation, ResponseAnswer},
};

/// What the nodes of a cluster have.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Survey {
    /// What those say who answered.
    pub standings: Vec<Standing>,
    /// Names of those who didn't.
    pub silent: Vec<String>,
}

impl Client {
    /// Asks every node that is known what it has; those that don't answer in time are left out.
    /// [`recovery::plan`](crate::control::recovery::plan) says what can be made of it.
    pub async fn survey(&self, timeout: Duration) -> Survey {
        // Most of those who could say it may be gone: what was heard on connecting has to do then.
        let routing = self.refresh(timeout).await.unwrap_or_else(|_| self.routing());
        let mut asked = JoinSet::new();
        for (&node, address) in &routing.nodes {
            let (client, name) = (self.clone(), address.name.clone());
            asked.spawn(async move {
                match client.router.ask_node(node, Operation::Survey, timeout).await {
                    Ok(ResponseAnswer::Survey(Some(standing))) => Ok(*standing),
                    Ok(_) => Err(name),
                    Err(error) => {
                        tracing::info!(name, %error, "a node doesn't say what it has");
                        Err(name)
                    }
                }
            });
        }
        let mut survey = Survey::default();
        for answer in asked.join_all().await {
            match answer {
                Ok(standing) => survey.standings.push(standing),
                Err(name) => survey.silent.push(name),
            }
        }
        survey.silent.sort();
        survey
    }

    /// Has a node go on alone, with what it has, under a new history: what others have acknowledged since it lost touch
    /// with them is lost. It makes sure by itself that the others can't go on, and that nobody who answers has a better
    /// history.
    ///
    /// # Errors
    /// [`Error::NotApplied`] if the node wasn't reached or didn't answer in time: then it may do it all the same. Inside it:
    /// why it refuses.
    pub async fn recover(
        &self,
        node: NodeId,
        cluster: ClusterId,
        history: History,
        timeout: Duration,
    ) -> Result<Result<Recovered, NotRecovered>, Error> {
        match self.router.ask_node(node, Operation::Recover { cluster, history }, timeout).await? {
            ResponseAnswer::Recovered(outcome) => Ok(outcome.map(|recovered| *recovered)),
            _ => Err(Error::not_applied(NotApplied::Unreachable { node, reason: None })),
        }
    }
}
