//! The task that keeps a node's configuration. It feeds calls, log changes and the chains' words to [`NodeMachine`],
//! which decides, and executes the outputs. Clocks, calls and queues are here.

mod calls;
mod events;
mod log;
mod serve;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use artillery_core::{Member, MemberEvent, MemberEvents, MemberId, Timestamp, internal::clock};
pub(crate) use artillery_proto::node::NodeState;
use artillery_proto::{
    data_dir::{ControlFileError, ControlRecord},
    journal::SyncMode,
    node::{NodeInput, NodeMachine, NodeOutput},
    runner::{ChainOrder, ChainReadiness, Lease, Word},
};
use tokio::{
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot, watch,
    },
    task::{JoinError, JoinSet},
};

pub(crate) use self::{
    calls::{ControlCalls, LogPeers},
    serve::{ControlEndpoint, serve},
};
use super::{
    chain::Ordered,
    lanes::{Hub, Lanes},
    receive::ChainInlets,
};
use crate::{
    ChainConfig, ChainId, ClusterId, Epoch, Routing,
    control::{
        ConfigLog, Configs, History, StorePosition, StoreRolledBack,
        embedded::{LogHandle, StorePlace},
        message::{NotGivenUp, Renewal, Renewed, ReorderError, StoreHolding},
        reopening::{NotReopened, Reopened},
    },
    driver::phase::NodePhase,
    local::Local,
    message::control::{ControlAnswer, ControlCall},
    node::events::{ChangeReasons, ConfigFeed},
};

/// Renewals of other nodes that wait for their answers. When this many wait, those that were given up are dropped.
const MAX_PENDING_RENEWALS: usize = 4096;
/// Commands that wait for the task; the same for the chains' words.
pub(crate) const COMMAND_QUEUE: usize = 256;

/// The answer to a renewal.
pub(crate) type RenewalAnswer = Result<Renewed, StoreRolledBack>;

/// Commands to the task.
#[allow(clippy::large_enum_variant, reason = "nearly all commands are renewals")]
pub(crate) enum ControlCommand {
    /// A node renews its lease.
    Renewal { from: MemberId, renewal: Renewal, answer: oneshot::Sender<RenewalAnswer> },
    /// Put the members of a chain into this order, if this node decides on that.
    Reorder { chain: ChainId, order: Vec<MemberId>, answer: oneshot::Sender<Result<Epoch, ReorderError>> },
    /// Open a chain again from what is left, if this node decides on that.
    AcceptLoss { chain: ChainId, answer: oneshot::Sender<Result<Reopened, NotReopened>> },
    /// Leave the chains, as soon as a leader agrees. `done` is notified once the node may end.
    Leave {
        /// A node that couldn't leave by then stays. `None`: the node is to stop, and keeps asking until it may.
        until: Option<Timestamp>,
        done: oneshot::Sender<()>,
    },
    /// Leave the chains, and stay a node and a voter: the disk keeps what this node holds. `done` is notified once the node may
    /// end, which takes at most three leases.
    Withdraw { done: oneshot::Sender<()> },
    /// The cluster goes on in a newer history, which may lack commits that this node's store holds.
    Parted { by: History },
    /// A node was met whose cluster succeeds this one.
    Succeeded { by: ClusterId },
    /// A node was met of a cluster to which this one has given way, as it states.
    GaveWay { by: ClusterId },
    /// A cluster of the same name is met, to which this one gives way if it is empty; `None`: none is met now.
    Outranked { by: Option<ClusterId> },
    /// Give the cluster up for another one, with its data, if this node decides on that.
    GiveUp { answer: oneshot::Sender<Result<(), NotGivenUp>> },
    /// The directory is loaded, and its chains are there.
    Loaded { holds: Vec<StoreHolding> },
    /// A node has sent a message of the log's group.
    Reached { by: MemberId },
}

/// Everything that the task needs.
pub(crate) struct ControlParts {
    pub(crate) cluster: ClusterId,
    pub(crate) me: MemberId,
    pub(crate) node: NodeMachine,
    /// The node's store, and when its journal is synced; `None`: it has no disk.
    pub(crate) kept: Option<(StorePlace, SyncMode)>,
    pub(crate) log: Arc<dyn ConfigLog>,
    pub(crate) seat: LogHandle,
    pub(crate) calls: Arc<ControlCalls>,
    /// Where other nodes dial this one.
    pub(crate) advertised: watch::Receiver<Vec<SocketAddr>>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) local: Arc<Local>,
    pub(crate) chains: Arc<ChainInlets>,
    /// The readiness of each chain here.
    pub(crate) standings: BTreeMap<ChainId, watch::Receiver<ChainReadiness>>,
    pub(crate) words: mpsc::Receiver<(ChainId, Word)>,
    pub(crate) events: MemberEvents,
    pub(crate) commands: mpsc::Receiver<ControlCommand>,
    pub(crate) leases: watch::Sender<Lease>,
    pub(crate) state: watch::Sender<NodeState>,
    /// Notified once the node is ready.
    pub(crate) ready: Option<oneshot::Sender<()>>,
    /// The reasons of changes that this node proposes.
    pub(crate) reasons: Arc<ChangeReasons>,
    /// Takes each configuration that the chains act by.
    pub(crate) feed: Arc<ConfigFeed>,
    /// How long a call may take.
    pub(crate) patience: Duration,
}

/// The result of a finished subtask.
enum Done {
    /// The log has changed this many times.
    Log(u64),
    /// An input for the node.
    Input(Box<NodeInput>),
    /// The disk keeps what it has to.
    Kept(Option<Box<NodeInput>>),
    /// It doesn't.
    Unkept(ControlFileError),
    /// This node's directory is an older copy.
    RolledBack,
}

pub(crate) struct ControlTask {
    parts: ControlParts,
    tasks: JoinSet<Done>,
    waiting: BTreeMap<(MemberId, u64), oneshot::Sender<RenewalAnswer>>,
    /// The callers that wait for a reorder, by token.
    reorders: BTreeMap<u64, oneshot::Sender<Result<Epoch, ReorderError>>>,
    /// The callers that wait for a chain to be opened again, by token.
    reopenings: BTreeMap<u64, oneshot::Sender<Result<Reopened, NotReopened>>>,
    /// The callers that wait until the cluster is given up, by token.
    givers: BTreeMap<u64, oneshot::Sender<Result<(), NotGivenUp>>>,
    /// The newest token.
    token: u64,
    leaving: Vec<oneshot::Sender<()>>,
    /// A chain's task has ended, as all do when the node stops.
    stopped: bool,
    /// The log, or a call to it, has failed: this node would never decide anything again.
    failed: bool,
    /// Another cluster succeeds this one, of which the node holds nothing.
    succeeded: bool,
    /// The node's directory is an older copy.
    rolled_back: bool,
}

/// Why the task has ended.
pub(crate) enum ControlEnd {
    /// The node has stopped.
    Stopped,
    /// Its log has failed.
    Failed,
    /// Another cluster succeeds its own.
    Succeeded,
    /// Its directory is an older copy.
    RolledBack,
}

impl ControlTask {
    pub(crate) fn new(parts: ControlParts) -> Self {
        Self {
            tasks: JoinSet::new(),
            waiting: BTreeMap::new(),
            reorders: BTreeMap::new(),
            reopenings: BTreeMap::new(),
            givers: BTreeMap::new(),
            token: 0,
            leaving: Vec::new(),
            stopped: false,
            failed: false,
            succeeded: false,
            rolled_back: false,
            parts,
        }
    }

    /// Runs until the node stops or must stop.
    pub(crate) async fn run(mut self, mut phases: watch::Receiver<NodePhase>) -> ControlEnd {
        self.look_around();
        self.hear_of_log();
        self.follow_log(0);
        while !phases.borrow().is_final() {
            self.flush();
            if self.stopped || self.failed || self.succeeded || self.rolled_back {
                break;
            }
            let next = self.parts.node.next_tick();
            let pause = next.map_or(Duration::ZERO, |at| at - clock::now());
            tokio::select! {
                biased;
                changed = phases.changed() => if changed.is_err() { break },
                Some(done) = self.tasks.join_next() => self.done(done),
                word = self.parts.words.recv() => {
                    let Some((chain, word)) = word else { break };
                    self.handle(NodeInput::Word { chain, word });
                }
                command = self.parts.commands.recv() => {
                    let Some(command) = command else { break };
                    self.command(command);
                }
                event = self.parts.events.next() => {
                    let Some(event) = event else { break };
                    self.member(&event);
                }
                Ok(()) = self.parts.advertised.changed() => {
                    let addrs = self.parts.advertised.borrow_and_update().clone();
                    self.handle(NodeInput::Moved(addrs));
                }
                () = tokio::time::sleep(pause), if next.is_some() => self.handle(NodeInput::Tick),
            }
        }
        self.tasks.shutdown().await;
        self.parts.calls.close();
        match self {
            Self { failed: true, .. } => ControlEnd::Failed,
            Self { rolled_back: true, .. } => ControlEnd::RolledBack,
            Self { succeeded: true, .. } => ControlEnd::Succeeded,
            _ => ControlEnd::Stopped,
        }
    }

    fn done(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Log(changes)) => {
                self.failed |= self.parts.seat.log().has_failed();
                self.hear_of_log();
                self.follow_log(changes);
            }
            Ok(Done::Input(input)) => {
                let mut input = *input;
                if let NodeInput::Renewed { from, renewed } = &mut input
                    && renewed.as_ref().is_some_and(|said| !self.is_of_a_true_store(*from, said.position.as_deref()))
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
            Ok(Done::RolledBack) => self.rolled_back = true,
            Ok(Done::Unkept(error)) => {
                tracing::error!(%error, "the configurations can't be written to this node's disk");
                self.failed = true;
            }
            // The node waits for the call's answer, and would for ever.
            Err(error) => {
                tracing::error!(%error, "a call to the configuration log failed");
                self.failed = true;
            }
        }
    }

    fn handle(&mut self, input: NodeInput) {
        self.parts.node.handle(clock::now(), input);
    }

    fn command(&mut self, command: ControlCommand) {
        match command {
            ControlCommand::Renewal { from, renewal, answer } => {
                if self.waiting.len() >= MAX_PENDING_RENEWALS {
                    self.waiting.retain(|_, answer| !answer.is_closed());
                }
                if self.waiting.len() < MAX_PENDING_RENEWALS {
                    self.waiting.insert((from, renewal.number), answer);
                    // The log's group may know more of the store than the node does.
                    if self.is_of_a_true_store(from, renewal.position.as_deref()) {
                        self.handle(NodeInput::Renewal { from, renewal });
                    } else {
                        self.act(NodeOutput::RolledBack { to: from, number: renewal.number });
                    }
                }
            }
            ControlCommand::Reorder { chain, order, answer } => {
                self.token += 1;
                self.reorders.insert(self.token, answer);
                self.handle(NodeInput::Reorder { token: self.token, chain, order });
            }
            ControlCommand::AcceptLoss { chain, answer } => {
                self.token += 1;
                self.reopenings.insert(self.token, answer);
                self.handle(NodeInput::AcceptLoss { token: self.token, chain });
            }
            ControlCommand::Leave { until, done } => {
                self.leaving.retain(|done| !done.is_closed());
                self.leaving.push(done);
                self.handle(NodeInput::Leave { until });
            }
            ControlCommand::Withdraw { done } => {
                self.leaving.push(done);
                self.handle(NodeInput::Withdraw);
            }
            ControlCommand::Parted { by } => self.handle(NodeInput::Parted { by }),
            ControlCommand::Succeeded { by } => self.handle(NodeInput::Succeeded { by }),
            ControlCommand::GaveWay { by } => self.handle(NodeInput::GaveWay { by }),
            ControlCommand::Outranked { by } => self.handle(NodeInput::Outranked { by }),
            ControlCommand::GiveUp { answer } => {
                self.token += 1;
                self.givers.insert(self.token, answer);
                self.handle(NodeInput::GiveUp { token: self.token });
            }
            ControlCommand::Loaded { holds } => self.handle(NodeInput::Loaded { holds }),
            ControlCommand::Reached { by } => self.handle(NodeInput::Reached { by }),
        }
    }

    fn is_of_a_true_store(&self, from: MemberId, position: Option<&StorePosition>) -> bool {
        let said = self.parts.kept.as_ref().zip(position);
        said.is_none_or(|((place, _), &position)| place.hear(from, position).is_ok())
    }

    /// Sends the node's renewals and executes its outputs.
    fn flush(&mut self) {
        self.renew();
        while let Some(output) = self.parts.node.poll_output() {
            self.act(output);
        }
        let stands = self.parts.node.state();
        self.parts.local.set_yields(stands.gives_way().is_some());
        self.parts.state.send_if_modified(|state| {
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
            let is_news = !Arc::ptr_eq(&state.configs, &stands.configs) || seen(state) != seen(stands);
            state.clone_from(stands);
            is_news
        });
    }

    fn act(&mut self, output: NodeOutput) {
        match output {
            NodeOutput::Order(chain, order) => self.order(chain, order),
            NodeOutput::Lease(lease) => drop(self.parts.leases.send_replace(lease)),
            NodeOutput::Begins(configs) => self.parts.local.update(Routing::of(self.parts.cluster, &configs)),
            NodeOutput::Acts(configs) => self.acts(&configs),
            NodeOutput::Answer { to, renewed } => {
                if let Some(answer) = self.waiting.remove(&(to, renewed.number)) {
                    // The caller may have given up.
                    drop(answer.send(Ok(renewed)));
                }
            }
            NodeOutput::RolledBack { to, number } => {
                tracing::error!(node = %to, "the directory of a node is an older copy, or a second one: it is refused");
                if let Some(answer) = self.waiting.remove(&(to, number)) {
                    drop(answer.send(Err(StoreRolledBack(to))));
                }
            }
            NodeOutput::Reordered { token, result } => {
                if let Some(answer) = self.reorders.remove(&token) {
                    drop(answer.send(result));
                }
            }
            NodeOutput::Reopened { token, result } => {
                match &result {
                    Ok(reopened) => tracing::warn!(by = %reopened.by, %reopened, "an operator accepted a loss"),
                    Err(why) => tracing::warn!(%why, "a chain is not opened again"),
                }
                if let Some(answer) = self.reopenings.remove(&token) {
                    drop(answer.send(result));
                }
            }
            NodeOutput::GivenUp { token, result } => {
                if let Some(answer) = self.givers.remove(&token) {
                    drop(answer.send(result));
                }
            }
            NodeOutput::Over => self.succeeded = true,
            // The callers may have gone.
            NodeOutput::Left => self.leaving.drain(..).for_each(|done| {
                let _ = done.send(());
            }),
            NodeOutput::Succeeded { by } => {
                tracing::warn!(%by, "this node's cluster was given up for another one, and it holds nothing of it: it stops");
                self.succeeded = true;
            }
            NodeOutput::Ready => drop(self.parts.ready.take().map(|ready| ready.send(()))),
            NodeOutput::Event(event) => events::log(self.parts.cluster, event),
            NodeOutput::Keep(configs) => {
                let (me, mode) = (self.parts.me, self.parts.kept.as_ref().map(|(_, mode)| *mode));
                let Some(mode) = mode else { return };
                self.keep(Some(NodeInput::Kept), move |record| record.keep(me, &configs, mode));
            }
            NodeOutput::KeepHeard(_) => {
                // The log's group hears more than the node.
                if let Some(heard) = self.parts.kept.as_ref().map(|(place, _)| place.all_heard()) {
                    self.keep(None, |record| record.heard.merge(heard));
                }
            }
            NodeOutput::Warn(warning) => events::warn(self.parts.cluster, &warning),
            NodeOutput::Confirm { .. }
            | NodeOutput::Append { .. }
            | NodeOutput::SetVoters { .. }
            | NodeOutput::Resign { .. }
            | NodeOutput::Stand => self.ask_log(output),
        }
    }

    /// Changes what the disk keeps, and then hands `then` to the node.
    fn keep(&mut self, then: Option<NodeInput>, change: impl FnOnce(&mut ControlRecord) + Send + 'static) {
        let Some((place, _)) = self.parts.kept.clone() else { return };
        self.tasks.spawn_blocking(move || match place.control.change(change) {
            Ok(()) => Done::Kept(then.map(Box::new)),
            Err(error) => Done::Unkept(error),
        });
    }

    /// Sends an order to a chain. The node never has more orders under way than a chain's queue holds, except those to
    /// close, which the leader repeats.
    fn order(&mut self, chain: ChainId, order: ChainOrder) {
        let lanes = match &order {
            ChainOrder::Enter { config, .. } => self.lanes(config),
            _ => BTreeMap::new(),
        };
        let may_be_lost = matches!(order, ChainOrder::Close { .. });
        let Some(inlets) = self.parts.chains.get(chain) else {
            self.stopped = true;
            return;
        };
        if may_be_lost && inlets.orders.capacity() * 2 < inlets.orders.max_capacity() {
            return;
        }
        match inlets.orders.try_send(Ordered { order, lanes }) {
            Ok(()) => {}
            Err(TrySendError::Closed(_)) => self.stopped = true,
            Err(TrySendError::Full(_)) => {
                tracing::error!(chain = chain.0, "a chain takes no orders: this node stops acting by the log");
                self.stopped = true;
            }
        }
    }

    fn lanes(&self, config: &ChainConfig) -> BTreeMap<MemberId, Lanes> {
        let configs = self.parts.node.configs();
        let others = config.members.iter().map(|member| member.id).filter(|&id| id != self.parts.me);
        let lanes = others.map(|id| {
            let addrs = configs.node(id).map_or(&[][..], |founder| &founder.addrs);
            (id, self.parts.hub.lanes(id.node, addrs))
        });
        lanes.collect()
    }

    fn acts(&mut self, configs: &Arc<Configs>) {
        self.parts.feed.add(configs);
        self.parts.local.update(Routing::of(self.parts.cluster, configs));
        let knows = |node| configs.nodes().any(|founder| founder.id.node == node);
        self.parts.hub.retain(knows);
        self.parts.calls.retain(|node| knows(node) || self.parts.node.has_met(node));
    }

    fn renew(&mut self) {
        if let Some((place, _)) = &self.parts.kept {
            self.parts.node.stands_at(place.position());
        }
        loop {
            let standings = &self.parts.standings;
            let progress = |chain: ChainId| standings.get(&chain).map(|standing| standing.borrow().progress);
            let Some((to, addrs, renewal)) = self.parts.node.poll_renewal(clock::now(), progress) else { return };
            self.ask(to, addrs, renewal);
        }
    }

    fn ask(&mut self, to: MemberId, addrs: Vec<SocketAddr>, renewal: Renewal) {
        let (calls, patience) = (self.parts.calls.clone(), self.parts.patience);
        let histories = self.parts.seat.histories();
        self.tasks.spawn(async move {
            let renewed = match calls.ask(to, &addrs, &ControlCall::Renewal(histories.mine(), renewal), patience).await
            {
                // A lease is valid in one history only.
                Ok(ControlAnswer::Renewed(theirs, renewed))
                    if theirs.is_none_or(|theirs| histories.meet(theirs).is_ok()) =>
                {
                    Some(*renewed)
                }
                Ok(ControlAnswer::RolledBack) => return Done::RolledBack,
                Ok(ControlAnswer::OtherHistory(theirs)) => {
                    // The peer says so to a node that it has left behind.
                    let _ = histories.meet(theirs);
                    None
                }
                Ok(_) => None,
                Err(error) => {
                    tracing::debug!(peer = %to, %error, "a renewal was not answered");
                    None
                }
            };
            Done::Input(Box::new(NodeInput::Renewed { from: to, renewed }))
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
