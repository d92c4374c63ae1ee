//! Commands to the task.

use artillery_core::{MemberId, Timestamp};
use artillery_proto::node::{NodeInput, NodeOutput};
use tokio::sync::oneshot;

use super::{ControlTask, RenewalAnswer};
use crate::{
    ChainId, Epoch,
    control::{
        message::{NotGivenUp, Renewal, ReorderError},
        reopening::{NotReopened, Reopened},
    },
};

#[allow(clippy::large_enum_variant, reason = "nearly all commands are renewals")]
pub(crate) enum ControlCommand {
    Renewal {
        from: MemberId,
        renewal: Renewal,
        answer: oneshot::Sender<RenewalAnswer>,
    },
    /// Put the members of a chain into this order, if this node is the leader.
    Reorder {
        chain: ChainId,
        order: Vec<MemberId>,
        answer: oneshot::Sender<Result<Epoch, ReorderError>>,
    },
    /// Reopen a chain from the surviving stores, if this node is the leader.
    AcceptLoss {
        chain: ChainId,
        answer: oneshot::Sender<Result<Reopened, NotReopened>>,
    },
    /// Leave the chains, once the leader agrees. `done` is notified once the node may end.
    Leave {
        /// A node that couldn't leave by then stays. `None`: the node must stop, and repeats its request until it ends.
        until: Option<Timestamp>,
        done: oneshot::Sender<()>,
    },
    /// Leave the chains, and stay a node and a voter. `done` is notified once the node may end, within three leases.
    Withdraw {
        done: oneshot::Sender<()>,
    },
    /// Abandon the cluster and its data in favour of another one, if this node is the leader.
    GiveUp {
        answer: oneshot::Sender<Result<(), NotGivenUp>>,
    },
    /// A notice that needs no answer.
    Input(NodeInput),
}

impl ControlTask {
    pub(super) fn command(&mut self, command: ControlCommand) {
        match command {
            ControlCommand::Renewal { from, renewal, answer } => {
                if self.callers.renews(from, renewal.number, answer) {
                    // The log's group may know a newer position of the store than the node does.
                    if self.is_of_a_true_store(from, renewal.position.as_deref()) {
                        self.handle(NodeInput::Renewal { from, renewal });
                    } else {
                        self.act(NodeOutput::RolledBack { to: from, number: renewal.number });
                    }
                }
            }
            ControlCommand::Reorder { chain, order, answer } => {
                let token = self.callers.token();
                self.callers.reorders.insert(token, answer);
                self.handle(NodeInput::Reorder { token, chain, order });
            }
            ControlCommand::AcceptLoss { chain, answer } => {
                let token = self.callers.token();
                self.callers.reopenings.insert(token, answer);
                self.handle(NodeInput::AcceptLoss { token, chain });
            }
            ControlCommand::Leave { until, done } => {
                self.callers.leaving.retain(|done| !done.is_closed());
                self.callers.leaving.push(done);
                self.handle(NodeInput::Leave { until });
            }
            ControlCommand::Withdraw { done } => {
                self.callers.leaving.push(done);
                self.handle(NodeInput::Withdraw);
            }
            ControlCommand::GiveUp { answer } => {
                let token = self.callers.token();
                self.callers.givers.insert(token, answer);
                self.handle(NodeInput::GiveUp { token });
            }
            ControlCommand::Input(input) => self.handle(input),
        }
    }
}
