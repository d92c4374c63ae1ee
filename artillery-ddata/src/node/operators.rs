//! Operators' commands to this node, and how it leaves its chains.

use std::sync::{Arc, Weak, atomic::Ordering};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::data::Data;
use crate::{
    ChainConfig, ChainId, ClusterId, Epoch,
    control::{
        History, NodeInfo,
        message::{AdminCommand, ArrangeError},
        recovery::{NotRecovered, Recovered, Standing},
        reopening::{NotReopened, Reopened},
        succession::{NotReplaced, Replacement},
    },
    driver::{BoxFuture, control::ControlCommand, serve::OperatedNode},
};

/// A drained node stays if it couldn't leave within this many leases.
const DRAIN_LEASES: u32 = 10;

/// Calls the node; returns `gone` if the node was dropped.
fn with<T: Send + 'static, F: Future<Output = T> + Send>(
    data: &Weak<Data>,
    gone: T,
    call: impl FnOnce(Arc<Data>) -> F + Send + 'static,
) -> BoxFuture<T> {
    let data = data.clone();
    Box::pin(async move {
        match data.upgrade() {
            Some(data) => call(data).await,
            None => gone,
        }
    })
}

impl OperatedNode for Weak<Data> {
    fn status(&self) -> BoxFuture<Bytes> {
        with(self, Bytes::new(), |data| async move {
            // Plain data with string keys always has a JSON form.
            serde_json::to_vec(&data.status().await).unwrap_or_default().into()
        })
    }

    fn arrange(&self, command: AdminCommand) -> BoxFuture<Result<Option<Epoch>, ArrangeError>> {
        with(self, Err(ArrangeError::Stopped), |data| async move { data.arrange(command).await })
    }

    fn standing(&self) -> BoxFuture<Option<Standing>> {
        with(self, None, |data| async move { data.standing(&*data.stage.following()?).await })
    }

    fn recover(&self, cluster: ClusterId, history: History) -> BoxFuture<Result<Recovered, NotRecovered>> {
        with(self, Err(NotRecovered::Nobody), move |data| async move {
            let outcome = data.recover(cluster, history).await;
            match &outcome {
                Ok(Recovered { history, plan }) => tracing::warn!(
                    %cluster, %history, before = %plan.history, silent = ?plan.silent, kept = ?plan.chains,
                    "an operator accepted losses: this node continues alone, with its own data"
                ),
                Err(why) => tracing::warn!(%cluster, %history, %why, "the cluster is not recovered"),
            }
            outcome
        })
    }

    fn reopen(&self, chain: ChainId) -> BoxFuture<Result<Reopened, NotReopened>> {
        with(self, Err(NotReopened::Stopped), move |data| async move { data.reopen(chain).await })
    }

    fn replace(&self, cluster: ClusterId, by: Replacement) -> BoxFuture<Result<Vec<NodeInfo>, NotReplaced>> {
        with(self, Err(NotReplaced::Stopped), move |data| async move {
            let outcome = data.replace(cluster, by).await;
            match &outcome {
                Ok(_) => data.give_up(by),
                Err(why) => tracing::warn!(%cluster, %why, "the cluster is not retired"),
            }
            outcome
        })
    }
}

/// Sends a command to the control task, and waits for its answer. `None`: the task has ended.
async fn ask<T>(
    commands: &mpsc::Sender<ControlCommand>,
    command: impl FnOnce(oneshot::Sender<T>) -> ControlCommand,
) -> Option<T> {
    let (answer, result) = oneshot::channel();
    commands.send(command(answer)).await.ok()?;
    result.await.ok()
}

impl Data {
    async fn arrange(&self, command: AdminCommand) -> Result<Option<Epoch>, ArrangeError> {
        let following = self.stage.following().ok_or(ArrangeError::Fixed)?;
        let commands = &following.control.commands;
        match command {
            AdminCommand::Leave => {
                let me = self.id();
                let configs = following.state.borrow().configs.clone();
                let last = |config: &&ChainConfig| config.serving().eq([me]);
                if let Some(config) = configs.iter().find(last) {
                    return Err(ArrangeError::Last { chain: config.chain });
                }
                // The operator watches the configuration to see when it is done.
                let (done, _) = oneshot::channel();
                let until = Some(self.local.clock.now() + self.lease() * DRAIN_LEASES);
                commands.send(ControlCommand::Leave { until, done }).await.map_err(|_| ArrangeError::Stopped)?;
                Ok(None)
            }
            AdminCommand::Reorder { chain, order } => {
                let reordered = ask(commands, |answer| ControlCommand::Reorder { chain, order, answer }).await;
                Ok(Some(reordered.ok_or(ArrangeError::Stopped)??))
            }
            AdminCommand::GiveUp { cluster } => {
                self.may_be_given_up(cluster)?;
                let given_up = ask(commands, |answer| ControlCommand::GiveUp { answer }).await;
                given_up.ok_or(ArrangeError::Stopped)??;
                tracing::warn!(%cluster, "an operator retired this cluster and its data in favour of another one of its name");
                Ok(None)
            }
        }
    }

    /// Reopens a chain from the surviving stores, if this node is the leader.
    async fn reopen(&self, chain: ChainId) -> Result<Reopened, NotReopened> {
        let following = self.stage.following().ok_or(NotReopened::Fixed)?;
        let reopened = ask(&following.control.commands, |answer| ControlCommand::AcceptLoss { chain, answer }).await;
        reopened.unwrap_or(Err(NotReopened::Stopped))
    }

    /// Leaves the chains, and waits until this node may end or has stopped. The wait is limited, except for the last
    /// serving member of a chain.
    pub(crate) async fn resign(&self) {
        self.end_by(|done| ControlCommand::Leave { until: None, done }).await;
    }

    /// For a node with a directory: leaves the chains, but stays a node and a voter. Waits for at most three leases.
    pub(crate) async fn withdraw(&self) {
        self.end_by(|done| ControlCommand::Withdraw { done }).await;
    }

    async fn end_by(&self, command: impl FnOnce(oneshot::Sender<()>) -> ControlCommand) {
        self.is_leaving.store(true, Ordering::Relaxed);
        let Some(following) = self.stage.following() else { return };
        // The control task ends when this node stops. A command sent at that time may never get an answer.
        let ended = async {
            let _: Option<()> = ask(&following.control.commands, command).await;
        };
        self.unless_stopped(ended).await;
    }
}
