//! The task that keeps a node's configuration. Passes calls, log changes and the chains' words to [`NodeMachine`],
//! which makes the decisions, and executes the outputs. The task owns the clock, the calls and the queues.

mod acting;
mod callers;
mod calls;
mod changes;
mod commands;
mod events;
mod log;
mod serve;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use artillery_core::internal::watch;
use artillery_core::{Member, MemberEvent, MemberEvents, MemberId};
pub(crate) use artillery_proto::node::NodeState;
use artillery_proto::{
    data_dir::ControlFileError,
    journal::SyncMode,
    node::{NodeInput, NodeMachine},
    runner::{ChainReadiness, Lease, Word},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinError, JoinSet},
};

use self::callers::Callers;
pub use self::changes::MoveReason;
pub(crate) use self::{
    calls::{ControlCalls, LogPeers},
    changes::{ChangeReasons, ConfigFeed},
    commands::ControlCommand,
    serve::{ControlEndpoint, serve},
};
use super::{lanes::Hub, receive::ChainInlets};
use crate::{
    ChainId, ClusterId,
    control::{
        StoreRolledBack,
        embedded::{LogHandle, StorePlace},
        message::Renewed,
    },
    driver::phase::NodePhase,
    local::Local,
};

/// The most commands that wait for the task, and the most words of the chains.
pub(crate) const COMMAND_QUEUE: usize = 256;

pub(crate) type RenewalAnswer = Result<Renewed, StoreRolledBack>;

/// The task's ends of its channels.
pub(crate) struct ControlQueues {
    pub(crate) commands: mpsc::Receiver<ControlCommand>,
    pub(crate) words: mpsc::Receiver<(ChainId, Word)>,
    /// The addresses at which other nodes dial this one.
    pub(crate) advertised: tokio::sync::watch::Receiver<Vec<SocketAddr>>,
    pub(crate) standings: BTreeMap<ChainId, watch::Receiver<ChainReadiness>>,
    pub(crate) leases: watch::Sender<Lease>,
    pub(crate) state: watch::Sender<NodeState>,
    pub(crate) ready: Option<oneshot::Sender<()>>,
}

/// The parts that the task connects.
pub(crate) struct ControlParts {
    pub(crate) cluster: ClusterId,
    pub(crate) me: MemberId,
    pub(crate) node: NodeMachine,
    /// The node's store, and when its journal is synced; `None`: the node has no directory.
    pub(crate) kept: Option<(StorePlace, SyncMode)>,
    pub(crate) log: LogHandle,
    pub(crate) calls: Arc<ControlCalls>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) local: Arc<Local>,
    pub(crate) chains: Arc<ChainInlets>,
    pub(crate) events: MemberEvents,
    pub(crate) queues: ControlQueues,
    /// The reasons of changes that this node proposes.
    pub(crate) reasons: Arc<ChangeReasons>,
    /// Receives each configuration that the chains act by.
    pub(crate) feed: Arc<ConfigFeed>,
    /// The time limit of a renewal.
    pub(crate) limit: Duration,
}

enum Done {
    /// The log's number of changes.
    Log(u64),
    Input(Box<NodeInput>),
    Kept(Option<Box<NodeInput>>),
    Unkept(ControlFileError),
    /// A peer reports that this node's directory is an older copy, or a second one.
    RolledBack,
}

pub(crate) struct ControlTask {
    parts: ControlParts,
    tasks: JoinSet<Done>,
    callers: Callers,
    end: Option<ControlEnd>,
}

/// Why the task has ended. Of several reasons, the last one in this order is reported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ControlEnd {
    /// The node has stopped, or a chain no longer accepts orders.
    Stopped,
    /// Another cluster has replaced the node's own.
    Superseded,
    /// The node's directory is an older copy, or a second one.
    RolledBack,
    /// The log, a call to it, or a change of the control file has failed.
    Failed,
}

impl ControlTask {
    pub(crate) fn new(parts: ControlParts) -> Self {
        Self { parts, tasks: JoinSet::new(), callers: Callers::default(), end: None }
    }

    /// Runs until the node stops or must stop.
    pub(crate) async fn run(mut self, mut phases: watch::Receiver<NodePhase>) -> ControlEnd {
        self.look_around();
        self.read_log();
        self.follow_log(0);
        while !phases.borrow().is_final() {
            self.flush();
            if self.end.is_some() {
                break;
            }
            let next = self.parts.node.next_tick();
            let pause = next.map_or(Duration::ZERO, |at| at - self.parts.local.clock.now());
            let queues = &mut self.parts.queues;
            tokio::select! {
                biased;
                changed = phases.changed() => if changed.is_err() { break },
                Some(done) = self.tasks.join_next() => self.done(done),
                word = queues.words.recv() => {
                    let Some((chain, word)) = word else { break };
                    self.handle(NodeInput::Word { chain, word });
                }
                command = queues.commands.recv() => {
                    let Some(command) = command else { break };
                    self.command(command);
                }
                event = self.parts.events.next() => {
                    let Some(event) = event else { break };
                    self.member(&event);
                }
                Ok(()) = queues.advertised.changed() => {
                    let addrs = self.parts.queues.advertised.borrow_and_update().clone();
                    self.handle(NodeInput::Moved(addrs));
                }
                () = tokio::time::sleep(pause), if next.is_some() => self.handle(NodeInput::Tick),
            }
        }
        self.tasks.shutdown().await;
        self.parts.calls.close();
        self.end.unwrap_or(ControlEnd::Stopped)
    }

    fn end(&mut self, why: ControlEnd) {
        self.end = self.end.max(Some(why));
    }

    fn done(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Log(changes)) => {
                if self.parts.log.log().has_failed() {
                    self.end(ControlEnd::Failed);
                }
                self.read_log();
                self.follow_log(changes);
            }
            Ok(Done::Input(input)) => {
                let mut input = *input;
                if let NodeInput::Renewed { from, renewed } = &mut input
                    && renewed
                        .as_ref()
                        .is_some_and(|renewed| !self.is_of_a_true_store(*from, renewed.position.as_deref()))
                {
                    tracing::error!(node = %from, "the directory of a node is an older copy, or a second one: its answers don't count");
                    *renewed = None;
                }
                self.handle(input);
            }
            Ok(Done::Kept(then)) => {
                if let Some(input) = then {
                    self.handle(*input);
                }
            }
            Ok(Done::RolledBack) => self.end(ControlEnd::RolledBack),
            Ok(Done::Unkept(error)) => {
                tracing::error!(%error, "the configurations can't be written to this node's disk");
                self.end(ControlEnd::Failed);
            }
            // End the task: otherwise the node would wait for the call's answer indefinitely.
            Err(error) => {
                tracing::error!(%error, "a call to the configuration log failed");
                self.end(ControlEnd::Failed);
            }
        }
    }

    fn handle(&mut self, input: NodeInput) {
        self.parts.node.handle(self.parts.local.clock.now(), input);
    }

    /// Sends the node's renewals and executes its outputs.
    fn flush(&mut self) {
        self.renew();
        while let Some(output) = self.parts.node.poll_output() {
            self.act(output);
        }
        let state = self.parts.node.state();
        self.parts.local.set_yields(state.gives_way().is_some());
        self.parts.queues.state.send_if_modified(|shown| {
            // The time of the leader's last message alone wakes no receiver.
            let seen = |state: &NodeState| {
                (
                    state.lease,
                    state.leader,
                    state.answered,
                    state.unready,
                    state.served,
                    state.orphaned,
                    state.successor,
                    state.holds_data,
                    state.is_over,
                )
            };
            let is_news = !Arc::ptr_eq(&shown.configs, &state.configs) || seen(shown) != seen(state);
            shown.clone_from(state);
            is_news
        });
    }

    fn look_around(&mut self) {
        let members: Vec<_> = self.parts.events.members().cloned().collect();
        members.iter().for_each(|member| self.meet(member));
    }

    fn member(&mut self, event: &MemberEvent) {
        match event {
            MemberEvent::Joined(member)
            | MemberEvent::Up(member)
            | MemberEvent::Formed(member)
            | MemberEvent::Moved(member) => self.meet(member),
            MemberEvent::Down(member) | MemberEvent::Left(member) => self.handle(NodeInput::Gone(member.id)),
            MemberEvent::Lagged { .. } => self.look_around(),
            _ => {}
        }
    }

    fn meet(&mut self, member: &Member) {
        if member.cluster_id == Some(self.parts.cluster) {
            self.parts.calls.meets(member.id.node, member.addrs.clone());
            self.handle(NodeInput::Met { id: member.id, addrs: member.addrs.clone() });
        }
    }
}
