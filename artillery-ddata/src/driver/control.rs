//! The task that keeps a node's configuration: it hands calls, the log's news and the chains' words to [`Node`], which
//! decides, and does what that says. Here are clocks, calls and queues.

mod calls;
mod events;
mod log;
mod serve;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use artillery_core::{Member, MemberEvent, MemberEvents, MemberId, Timestamp, internal::clock};
pub(crate) use artillery_proto::node::State;
use artillery_proto::{
    node::{Input, Node, Output},
    runner::{Lease, Order, Standing, Word},
};
use tokio::{
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot, watch,
    },
    task::{JoinError, JoinSet},
};

pub(crate) use self::{
    calls::{Calls, LogPeers},
    serve::{Door, serve},
};
use super::{
    chain::Ordered,
    lanes::{Hub, Lanes},
    receive::Chains,
};
use crate::{
    ChainConfig, ChainId, ClusterId, Epoch, Routing,
    control::{
        ConfigLog, Configs,
        embedded::Seat,
        message::{Renewal, Renewed, ReorderError},
    },
    driver::phase::Phase,
    local::Local,
    message::control::{Answer, Call},
};

/// Renewals of others that wait for theirs; those given up are forgotten first.
const WAITING: usize = 4096;
/// Commands, and words of chains, that wait for the task.
pub(crate) const COMMANDS: usize = 256;

/// What the task is told.
pub(crate) enum Command {
    /// A node renews.
    Renewal { from: MemberId, renewal: Renewal, answer: oneshot::Sender<Renewed> },
    /// Have the members of a chain stand in this order, if this node decides on that.
    Reorder { chain: ChainId, order: Vec<MemberId>, answer: oneshot::Sender<Result<Epoch, ReorderError>> },
    /// Leave the chains, as soon as a leader agrees; `done` is told once the node may end.
    Leave {
        /// A node that couldn't leave until then stays; `None`: it is to stop, and asks on until then.
        until: Option<Timestamp>,
        done: oneshot::Sender<()>,
    },
    /// A node of a cluster was met that succeeds this one.
    Succeeded { by: ClusterId },
}

/// Everything that the task needs.
pub(crate) struct Parts {
    pub(crate) cluster: ClusterId,
    pub(crate) me: MemberId,
    pub(crate) node: Node,
    pub(crate) log: Arc<dyn ConfigLog>,
    pub(crate) seat: Seat,
    pub(crate) calls: Arc<Calls>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) local: Arc<Local>,
    pub(crate) chains: Arc<Chains>,
    /// How each chain stands here.
    pub(crate) standings: BTreeMap<ChainId, watch::Receiver<Standing>>,
    pub(crate) words: mpsc::Receiver<(ChainId, Word)>,
    pub(crate) events: MemberEvents,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) leases: watch::Sender<Lease>,
    pub(crate) state: watch::Sender<State>,
    /// Told once that the node is ready.
    pub(crate) ready: Option<oneshot::Sender<()>>,
    /// How long a call may take.
    pub(crate) patience: Duration,
}

/// What has come to its end.
enum Done {
    /// The log has changed so many times.
    Log(u64),
    /// Something that the node is to hear of.
    Input(Box<Input>),
}

pub(crate) struct Control {
    parts: Parts,
    tasks: JoinSet<Done>,
    waiting: BTreeMap<(MemberId, u64), oneshot::Sender<Renewed>>,
    /// The callers that want a reorder, by token, and the newest of these.
    reorders: BTreeMap<u64, oneshot::Sender<Result<Epoch, ReorderError>>>,
    reorder: u64,
    leaving: Vec<oneshot::Sender<()>>,
    /// A chain's task has ended, as all do when the node stops.
    stopped: bool,
    /// The log, or a question to it, has failed: nothing would ever be decided here any more.
    failed: bool,
    /// Another cluster succeeds this one, of which the node held nothing.
    succeeded: bool,
}

/// Why the task has ended.
pub(crate) enum End {
    /// The node has stopped.
    Stopped,
    /// Its log has failed.
    Failed,
    /// Another cluster succeeds its own.
    Succeeded,
}

impl Control {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            tasks: JoinSet::new(),
            waiting: BTreeMap::new(),
            reorders: BTreeMap::new(),
            reorder: 0,
            leaving: Vec::new(),
            stopped: false,
            failed: false,
            succeeded: false,
            parts,
        }
    }

    /// Runs until the node stops, or has to.
    pub(crate) async fn run(mut self, mut phases: watch::Receiver<Phase>) -> End {
        self.look_around();
        self.hear_of_log();
        self.follow_log(0);
        while !phases.borrow().is_final() {
            self.flush();
            if self.stopped || self.failed || self.succeeded {
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
                    self.handle(Input::Word { chain, word });
                }
                command = self.parts.commands.recv() => {
                    let Some(command) = command else { break };
                    self.command(command);
                }
                event = self.parts.events.next() => {
                    let Some(event) = event else { break };
                    self.member(&event);
                }
                () = tokio::time::sleep(pause), if next.is_some() => self.handle(Input::Tick),
            }
        }
        self.tasks.shutdown().await;
        self.parts.calls.close();
        match (self.failed, self.succeeded) {
            (true, _) => End::Failed,
            (_, true) => End::Succeeded,
            _ => End::Stopped,
        }
    }

    fn done(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Log(changes)) => {
                self.failed |= self.parts.seat.log().has_failed();
                self.hear_of_log();
                self.follow_log(changes);
            }
            Ok(Done::Input(input)) => self.handle(*input),
            // The node waits for its answer, and would for ever.
            Err(error) => {
                tracing::error!(%error, "a call to the configuration log failed");
                self.failed = true;
            }
        }
    }

    fn handle(&mut self, input: Input) {
        self.parts.node.handle(clock::now(), input);
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Renewal { from, renewal, answer } => {
                if self.waiting.len() >= WAITING {
                    self.waiting.retain(|_, answer| !answer.is_closed());
                }
                if self.waiting.len() < WAITING {
                    self.waiting.insert((from, renewal.number), answer);
                    self.handle(Input::Renewal { from, renewal });
                }
            }
            Command::Reorder { chain, order, answer } => {
                self.reorder += 1;
                self.reorders.insert(self.reorder, answer);
                self.handle(Input::Reorder { token: self.reorder, chain, order });
            }
            Command::Leave { until, done } => {
                self.leaving.retain(|done| !done.is_closed());
                self.leaving.push(done);
                self.handle(Input::Leave { until });
            }
            Command::Succeeded { by } => self.handle(Input::Succeeded { by }),
        }
    }

    /// Does what the node says, and sends its renewals.
    fn flush(&mut self) {
        self.renew();
        while let Some(output) = self.parts.node.poll_output() {
            self.act(output);
        }
        let stands = self.parts.node.state();
        self.parts.local.set_yields(stands.successor.is_some_and(|successor| successor.yields));
        self.parts.state.send_if_modified(|state| {
            // When a leader was heard last isn't worth waking anybody.
            let seen = |state: &State| {
                (
                    state.lease,
                    state.leader,
                    state.answered,
                    state.unready,
                    state.served,
                    state.orphaned,
                    state.successor,
                )
            };
            let is_news = !Arc::ptr_eq(&state.configs, &stands.configs) || seen(state) != seen(stands);
            state.clone_from(stands);
            is_news
        });
    }

    fn act(&mut self, output: Output) {
        match output {
            Output::Order(chain, order) => self.order(chain, order),
            Output::Lease(lease) => drop(self.parts.leases.send_replace(lease)),
            Output::Begins(configs) => self.parts.local.update(Routing::of(self.parts.cluster, &configs)),
            Output::Acts(configs) => self.acts(&configs),
            Output::Answer { to, renewed } => {
                if let Some(answer) = self.waiting.remove(&(to, renewed.number)) {
                    // The caller may have given up.
                    drop(answer.send(renewed));
                }
            }
            Output::Reordered { token, result } => {
                if let Some(answer) = self.reorders.remove(&token) {
                    drop(answer.send(result));
                }
            }
            // The callers may have gone.
            Output::Left => self.leaving.drain(..).for_each(|done| {
                let _ = done.send(());
            }),
            Output::Succeeded { by } => {
                tracing::warn!(%by, "this node's cluster was given up for another one, and it holds nothing of it: it stops");
                self.succeeded = true;
            }
            Output::Ready => drop(self.parts.ready.take().map(|ready| ready.send(()))),
            Output::Event(event) => events::log(self.parts.cluster, event),
            Output::Confirm { .. } | Output::Append { .. } | Output::SetVoters { .. } => self.ask_log(output),
        }
    }

    /// A node never has more orders under way than the queue of a chain takes, but for those to close, which the leader
    /// repeats.
    fn order(&mut self, chain: ChainId, order: Order) {
        let lanes = match &order {
            Order::Enter { config, .. } => self.lanes(config),
            _ => BTreeMap::new(),
        };
        let may_be_lost = matches!(order, Order::Close { .. });
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
        self.parts.local.update(Routing::of(self.parts.cluster, configs));
        let knows = |node| configs.nodes().any(|founder| founder.id.node == node);
        self.parts.hub.retain(knows);
        self.parts.calls.retain(|node| knows(node) || self.parts.node.has_met(node));
    }

    fn renew(&mut self) {
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
            let renewed = match calls.ask(to, &addrs, &Call::Renewal(histories.mine(), renewal), patience).await {
                // A lease counts in one history alone.
                Ok(Answer::Renewed(theirs, renewed)) if theirs.is_none_or(|theirs| histories.meet(theirs).is_ok()) => {
                    Some(*renewed)
                }
                Ok(Answer::OtherHistory(theirs)) => {
                    // It says so to a node that it has left behind.
                    let _ = histories.meet(theirs);
                    None
                }
                Ok(_) => None,
                Err(error) => {
                    tracing::debug!(peer = %to, %error, "a renewal was not answered");
                    None
                }
            };
            Done::Input(Box::new(Input::Renewed { from: to, renewed }))
        });
    }

    fn look_around(&mut self) {
        let members: Vec<_> = self.parts.events.members().cloned().collect();
        members.iter().for_each(|member| self.meet(member));
    }

    fn member(&mut self, event: &MemberEvent) {
        match event {
            MemberEvent::Joined(member) | MemberEvent::Up(member) | MemberEvent::Formed(member) => self.meet(member),
            MemberEvent::Down(member) | MemberEvent::Left(member) => self.handle(Input::Gone(member.id)),
            MemberEvent::Lagged { .. } => self.look_around(),
            _ => {}
        }
    }

    fn meet(&mut self, member: &Member) {
        if member.cluster_id == Some(self.parts.cluster) {
            self.handle(Input::Met { id: member.id, addr: member.addr });
        }
    }
}
