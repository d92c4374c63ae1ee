//! The task that keeps a node's configuration: it asks for leases, has the chains act by what the log says, and decides
//! while this node leads the group that keeps the log.
//!
//! What is decided is decided by [`Holder`] and [`Coordinator`]; here are clocks, calls and queues.

mod acting;
mod calls;
mod leaving;
mod log;
mod serve;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use artillery_core::{
    MemberId, Timestamp, clock,
    cluster::{Member, MemberEvent, MemberEvents},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};

pub(crate) use self::{
    calls::{Calls, LogPeers},
    serve::{Door, serve},
};
use super::{chain::Standing, lanes::Hub, local::Local, receive::Chains};
use crate::{
    ChainId, ClusterId, Epoch,
    control::{
        ConfigLog, Configs,
        coordinator::{Coordinator, Input, Output},
        embedded::Seat,
        holder::{Holder, Learned},
        log::LogIndex,
        message::{Promotion, Renewal, Renewed, ReorderError},
    },
    node::Phase,
    wire::control::{Answer, Call},
};

/// Renewals of this node that wait for their answers.
const RENEWALS: usize = 8;
/// Renewals of others that wait for theirs; those given up are forgotten first.
const WAITING: usize = 4096;
/// Commands that wait for the task.
pub(crate) const COMMANDS: usize = 256;

/// What the task is told.
pub(crate) enum Command {
    /// A node renews.
    Renewal { from: MemberId, renewal: Renewal, answer: oneshot::Sender<Renewed> },
    /// A chain of this node asks for a promotion.
    Promote(Promotion),
    /// What the next renewal says is waited for.
    Hurry,
    /// Have the members of a chain stand in this order, if this node decides on that.
    Reorder { chain: ChainId, order: Vec<MemberId>, answer: oneshot::Sender<Result<Epoch, ReorderError>> },
    /// Leave the chains, as soon as a leader agrees; `done` is told once no configuration names this node.
    Leave {
        /// A node that couldn't leave until then stays; `None`: it is to stop, and asks on until then.
        until: Option<Timestamp>,
        done: oneshot::Sender<()>,
    },
}

/// A lease of this node, by its own clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lease {
    /// When it ends.
    pub(crate) until: Timestamp,
    /// When it was asked for.
    pub(crate) asked: Timestamp,
}

/// What others want to know of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// What the chains of this node act by.
    pub(crate) configs: Arc<Configs>,
    /// Until when its lease runs.
    pub(crate) lease: Timestamp,
    /// Who leads the log's group, as far as is known.
    pub(crate) leader: Option<MemberId>,
    /// Somebody who knows a leader has answered.
    pub(crate) answered: bool,
    /// The leader said last that nothing is about to change.
    pub(crate) settled: bool,
    /// When a leader, whom a quorum had confirmed, answered last. Nobody is told when that changes.
    pub(crate) heard: Timestamp,
}

/// Everything that the task needs.
pub(crate) struct Parts {
    pub(crate) cluster: ClusterId,
    pub(crate) holder: Holder,
    pub(crate) me: MemberId,
    pub(crate) coordinator: Coordinator,
    pub(crate) log: Arc<dyn ConfigLog>,
    pub(crate) seat: Seat,
    pub(crate) calls: Arc<Calls>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) local: Arc<Local>,
    pub(crate) chains: Arc<Chains>,
    /// How each chain stands here.
    pub(crate) standings: Vec<(ChainId, watch::Receiver<Standing>)>,
    pub(crate) events: MemberEvents,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) leases: watch::Sender<Lease>,
    pub(crate) state: watch::Sender<State>,
    /// How long a call may take.
    pub(crate) patience: Duration,
}

/// What has come to its end.
enum Done {
    /// The log has changed so many times.
    Log(u64),
    /// A question to the log, of the coordinator.
    Asked(Input),
    /// A renewal, of whom and with what.
    Renewed(MemberId, Option<Renewed>),
    /// The chains act by this.
    Acted(Arc<Configs>),
    /// The chains act by no lease any more.
    Resigned,
    /// The chains take leases again.
    ServesAgain,
    /// The node stops.
    Stopped,
}

pub(crate) struct Control {
    parts: Parts,
    tasks: JoinSet<Done>,
    renewals: usize,
    /// The last entry that chains were told of, if they haven't said yet that they act by it.
    acting: Option<LogIndex>,
    acted: Option<LogIndex>,
    /// The addresses of nodes that the membership tells of.
    met: BTreeMap<MemberId, SocketAddr>,
    waiting: BTreeMap<(MemberId, u64), oneshot::Sender<Renewed>>,
    tick: Option<Timestamp>,
    /// Who wants a reorder, by token, and the newest of these.
    reorders: BTreeMap<u64, oneshot::Sender<Result<Epoch, ReorderError>>>,
    reorder: u64,
    leaving: Vec<oneshot::Sender<()>>,
    /// A node that couldn't leave until then stays.
    stays_at: Option<Timestamp>,
    /// The chains are being told to act by no lease any more.
    resigning: bool,
    /// The chains have yet to act by leases again, as they were told.
    resuming: bool,
    /// The leader has said that the log can do without this node, which leaves.
    released: bool,
}

impl Control {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            parts,
            tasks: JoinSet::new(),
            renewals: 0,
            acting: None,
            acted: None,
            met: BTreeMap::new(),
            waiting: BTreeMap::new(),
            tick: None,
            reorders: BTreeMap::new(),
            reorder: 0,
            leaving: Vec::new(),
            stays_at: None,
            resigning: false,
            resuming: false,
            released: false,
        }
    }

    /// Runs until the node stops.
    pub(crate) async fn run(mut self, mut phases: watch::Receiver<Phase>) {
        self.look_around();
        self.hear_of_log();
        self.follow_log(0);
        self.act();
        while !phases.borrow().is_final() {
            self.flush();
            let next = self.next_tick();
            let pause = next.map_or(Duration::ZERO, |at| at - clock::now());
            tokio::select! {
                biased;
                changed = phases.changed() => if changed.is_err() { break },
                Some(done) = self.tasks.join_next() => match done {
                    Ok(Done::Stopped) => break,
                    Ok(done) => self.done(done),
                    Err(error) => tracing::error!(%error, "a call to the configuration log failed"),
                },
                command = self.parts.commands.recv() => {
                    let Some(command) = command else { break };
                    self.command(command);
                }
                event = self.parts.events.next() => {
                    let Some(event) = event else { break };
                    self.member(&event);
                }
                () = tokio::time::sleep(pause), if next.is_some() => self.tick(),
            }
        }
        self.tasks.shutdown().await;
        self.parts.calls.close();
    }

    fn next_tick(&self) -> Option<Timestamp> {
        let renewal = self.may_renew().then(|| self.parts.holder.next_tick());
        let stays = self.stays_at.filter(|_| !self.resigning);
        [renewal, self.tick, stays].into_iter().flatten().min()
    }

    /// Until the chains act by what is known from the beginning, nothing is said.
    fn may_renew(&self) -> bool {
        self.acted.is_some() && self.renewals < RENEWALS
    }

    fn tick(&mut self) {
        let now = clock::now();
        if self.tick.take_if(|at| *at <= now).is_some() {
            self.parts.coordinator.handle(now, Input::Tick);
        }
        if !self.resigning && self.stays_at.take_if(|at| *at <= now).is_some() {
            self.stay(now);
        }
        if self.may_renew()
            && let Some((to, mut renewal)) = self.parts.holder.renew(now)
        {
            renewal.reports = self.reports(now);
            self.renew(now, to, renewal);
        }
    }

    fn renew(&mut self, now: Timestamp, to: MemberId, renewal: Renewal) {
        if to == self.parts.me {
            return self.parts.coordinator.handle(now, Input::Renewal { from: to, renewal });
        }
        let addrs = match (self.met.get(&to), self.parts.holder.configs().node(to)) {
            (Some(&addr), _) => vec![addr],
            (None, Some(founder)) => founder.addrs.clone(),
            (None, None) => Vec::new(),
        };
        let (calls, patience) = (self.parts.calls.clone(), self.parts.patience);
        let histories = self.parts.seat.histories();
        self.renewals += 1;
        self.tasks.spawn(async move {
            match calls.ask(to, &addrs, &Call::Renewal(histories.mine(), renewal), patience).await {
                // A lease counts in one history alone.
                Ok(Answer::Renewed(theirs, renewed)) if theirs.is_none_or(|theirs| histories.meet(theirs).is_ok()) => {
                    Done::Renewed(to, Some(renewed))
                }
                Ok(Answer::OtherHistory(theirs)) => {
                    // It says so to whom it has left behind.
                    let _ = histories.meet(theirs);
                    Done::Renewed(to, None)
                }
                Ok(_) => Done::Renewed(to, None),
                Err(error) => {
                    tracing::debug!(peer = %to, %error, "a renewal was not answered");
                    Done::Renewed(to, None)
                }
            }
        });
    }

    fn command(&mut self, command: Command) {
        let now = clock::now();
        match command {
            Command::Renewal { from, renewal, answer } => {
                if self.waiting.len() >= WAITING {
                    self.waiting.retain(|_, answer| !answer.is_closed());
                }
                if self.waiting.len() < WAITING {
                    self.waiting.insert((from, renewal.number), answer);
                    self.parts.coordinator.handle(now, Input::Renewal { from, renewal });
                }
            }
            Command::Promote(wish) => self.parts.holder.promote(now, wish),
            Command::Hurry => self.parts.holder.hurry(now),
            Command::Reorder { chain, order, answer } => {
                self.reorder += 1;
                self.reorders.insert(self.reorder, answer);
                self.parts.coordinator.handle(now, Input::Reorder { token: self.reorder, chain, order });
            }
            Command::Leave { until, done } => self.leave(now, until, done),
        }
    }

    fn done(&mut self, done: Done) {
        let now = clock::now();
        match done {
            Done::Log(changes) => {
                self.hear_of_log();
                self.follow_log(changes);
            }
            Done::Asked(input) => self.parts.coordinator.handle(now, input),
            Done::Renewed(from, renewed) => {
                self.renewals -= 1;
                if let Some(renewed) = renewed {
                    self.answered(now, from, renewed);
                }
            }
            Done::Acted(configs) => self.acted(now, configs),
            Done::Resigned => self.resigned(now),
            Done::ServesAgain => self.resuming = false,
            Done::Stopped => {}
        }
    }

    fn answered(&mut self, now: Timestamp, from: MemberId, renewed: Renewed) {
        let (leader, settled) = (renewed.leader, renewed.settled);
        self.close(now, &renewed.close);
        let Learned { lease, asked, configs, released, resigns, serves_again } =
            self.parts.holder.answered(now, from, renewed);
        if let Some(until) = lease {
            self.parts.leases.send_replace(Lease { until, asked });
        }
        self.parts.state.send_if_modified(|state| {
            let before = (state.lease, state.leader, state.answered, state.settled);
            state.lease = lease.unwrap_or(state.lease);
            state.leader = leader.or(state.leader);
            state.answered |= leader.is_some();
            // Others may take for leader who is gone; a leader says that it is one when a quorum has just said so.
            state.heard = if leader == Some(from) { now } else { state.heard };
            state.settled = settled;
            before != (state.lease, state.leader, state.answered, state.settled)
        });
        if configs.is_some() {
            self.act();
        }
        // The newest word counts, and only a confirmed leader's: this node may have become a voter since.
        if leader == Some(from) {
            self.released = released;
            self.see_whether_left();
        }
        // Two orders to one chain keep their order, two tasks do not: a chain that resigned first and resumed then would serve by
        // a lease that the leader doesn't reckon with (trap 62). The leader says again that this node may resign.
        if resigns && !self.resigning && !self.resuming {
            self.resign();
        }
        if serves_again {
            tracing::warn!("this node has resigned and can't be removed from its chains now: it serves again");
            self.serve_again();
        }
    }

    /// Does what the coordinator wants done.
    fn flush(&mut self) {
        let now = clock::now();
        while let Some(output) = self.parts.coordinator.poll_output() {
            match output {
                Output::Answer { to, renewed } if to == self.parts.me => self.answered(now, to, renewed),
                Output::Answer { to, renewed } => {
                    if let Some(answer) = self.waiting.remove(&(to, renewed.number)) {
                        // Whoever asked may have given up.
                        drop(answer.send(renewed));
                    }
                }
                Output::Reordered { token, result } => {
                    if let Some(answer) = self.reorders.remove(&token) {
                        // Whoever asked may have given up.
                        drop(answer.send(result));
                    }
                }
                question => self.ask_log(question),
            }
        }
        self.tick = self.tick.or_else(|| self.parts.coordinator.next_tick(now));
    }

    fn look_around(&mut self) {
        let members: Vec<_> = self.parts.events.members().cloned().collect();
        members.iter().for_each(|member| self.meet(member));
    }

    fn member(&mut self, event: &MemberEvent) {
        match event {
            MemberEvent::Joined(member) | MemberEvent::Up(member) | MemberEvent::Formed(member) => self.meet(member),
            MemberEvent::Lagged { .. } => self.look_around(),
            _ => {}
        }
    }

    /// Only suggests whom to ask.
    fn meet(&mut self, member: &Member) {
        if member.cluster_id == Some(self.parts.cluster) {
            self.met.retain(|id, _| id.node != member.id.node);
            self.met.insert(member.id, member.addr);
            self.parts.holder.meets(member.id);
        }
    }
}
