//! Executes the outputs of the node's coordinator, most of which are calls to the log, and reads the log's changes.

use artillery_proto::node::{ChangeReason, CoordinatorOutput, NodeInput, ProposalFate};

use super::{ControlTask, Done, callers::answer, events};
use crate::control::{
    ConfigLog,
    log::{AppendError, LogIndex, Term},
};

impl ControlTask {
    /// Starts a task that waits for the next change of the log. Only one such task runs at a time.
    pub(super) fn follow_log(&mut self, seen: u64) {
        let log = self.parts.log.clone();
        self.tasks.spawn(async move { Done::Log(log.changed(seen).await) });
    }

    /// Passes the known state of the log to the node.
    pub(super) fn read_log(&mut self) {
        let log = &self.parts.log;
        let (leads, leader, configs, voters) = (log.leads(), log.leader(), log.configs(), log.voters());
        self.handle(NodeInput::Log { leads, leader, configs, voters });
    }

    /// The node has at most one pending call of each kind to the log.
    pub(super) fn act_for_coordinator(&mut self, output: CoordinatorOutput) {
        let log = self.parts.log.clone();
        match output {
            CoordinatorOutput::Answer { to, renewed } => self.callers.renewed(to, renewed.number, Ok(renewed)),
            CoordinatorOutput::Reordered { token, result } => answer(&mut self.callers.reorders, token, result),
            CoordinatorOutput::Reopened { token, result } => {
                match &result {
                    Ok(reopened) => tracing::warn!(by = %reopened.by, %reopened, "an operator accepted a loss"),
                    Err(why) => tracing::warn!(%why, "a chain is not opened again"),
                }
                answer(&mut self.callers.reopenings, token, result);
            }
            CoordinatorOutput::GivenUp { token, result } => answer(&mut self.callers.givers, token, result),
            CoordinatorOutput::Warn(warning) => events::warn(self.parts.cluster, &warning),
            CoordinatorOutput::Confirm { round, term } => {
                self.tasks.spawn(async move {
                    let leads = log.confirm(term).await.is_ok();
                    let answered = log.answered();
                    Done::Input(Box::new(NodeInput::Confirmed { round, leads, answered }))
                });
            }
            CoordinatorOutput::Append { term, at, change, why } => {
                tracing::debug!(%term, %at, ?change, "proposed to the configuration log");
                // Before the proposal: the chains may act by it before its outcome is known here.
                self.parts.reasons.add(&why);
                let local = self.parts.local.clone();
                self.tasks.spawn(async move {
                    let outcome = log.append(term, at, change).await;
                    if outcome.is_ok() {
                        tell(term, at, &why);
                        local.tally.changed(&why);
                    }
                    if let Err(error) = &outcome {
                        tracing::info!(%term, %at, %error, "the proposal was not taken");
                    }
                    Done::Input(Box::new(NodeInput::Appended { at, fate: fate(&outcome) }))
                });
            }
            CoordinatorOutput::SetVoters { term, voters } => {
                tracing::info!(%term, ?voters, "other nodes will keep the configuration log");
                self.tasks.spawn(async move {
                    if let Err(error) = log.set_voters(term, voters).await {
                        tracing::info!(%term, %error, "the configuration log is kept by the same as before");
                    }
                    Done::Input(Box::new(NodeInput::VotersSet))
                });
            }
            CoordinatorOutput::Resign { term } => {
                tracing::warn!(
                    %term,
                    "no other node reaches this one, though they answer it: it resigns the leadership of the configuration log. Check that its address can be dialled"
                );
                log.may_lead(false);
            }
            CoordinatorOutput::Stand => {
                tracing::info!("other nodes reach this one: it may lead the configuration log again");
                log.may_lead(true);
            }
        }
    }
}

/// Logs the reasons of a change of configurations, at the node that proposed it.
fn tell(term: Term, at: LogIndex, why: &[ChangeReason]) {
    for ChangeReason { chain, member, why } in why {
        tracing::info!(chain = chain.0, %member, %why, %term, %at, "the configuration of a chain changes");
    }
}

fn fate(outcome: &Result<(), AppendError>) -> ProposalFate {
    match outcome {
        Ok(()) | Err(AppendError::Taken { .. }) => ProposalFate::Decided,
        Err(AppendError::OutcomeUnknown(_)) => ProposalFate::Unknown,
        Err(_) => ProposalFate::Refused,
    }
}
