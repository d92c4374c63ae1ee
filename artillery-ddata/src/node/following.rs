//! A node with a changeable configuration: it keeps the configuration log with others, or follows it.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    net::SocketAddr,
    sync::{Arc, PoisonError, atomic::Ordering},
    task::Poll,
};

use artillery_core::{Cluster, internal::clock};
use artillery_proto::{
    data_dir::ControlFileError,
    node::{self, NodeMachine},
    runner::{Lease, Word},
};
use tokio::sync::{mpsc, oneshot, watch};

use super::{chains::ChainsStart, data::Data, recovery_access::RecoveryAccess};
use crate::{
    ChainConfig, ChainId, ClusterId, Epoch, MemberId, Role,
    control::{
        Bootstrap, Configs, NodeInfo, Timing,
        embedded::{Embedded, EmbeddedSettings, LogHandle},
        message::{AdminCommand, ArrangeError},
    },
    driver::phase::{NeverReady, NodePhase, Ready, Stopped},
    driver::{
        chain::ChainReadiness,
        control::{
            COMMAND_QUEUE, ControlCalls, ControlCommand, ControlEnd, ControlEndpoint, ControlParts, ControlTask,
            LogPeers, NodeState,
        },
        lanes::Hub,
    },
};

/// A drained node that couldn't leave within this many leases stays.
const DRAIN_LEASES: u32 = 10;

/// A spare without a leader's answer for this many leases may be cut off from the members, too.
const UNHEARD_LEASES: u32 = 3;

/// The parts of the configuration's task, without the log.
struct ControlStart {
    me: NodeInfo,
    advertised: watch::Receiver<Vec<SocketAddr>>,
    founding: Arc<Bootstrap>,
    configs: Arc<Configs>,
    /// The chains are not there yet: [`ControlCommand::Loaded`] will say so.
    loads: bool,
    calls: Arc<ControlCalls>,
    hub: Arc<Hub>,
    commands: mpsc::Sender<ControlCommand>,
    queue: mpsc::Receiver<ControlCommand>,
    words: mpsc::Receiver<(ChainId, Word)>,
    leases: watch::Sender<Lease>,
    state: watch::Sender<NodeState>,
    ready: oneshot::Sender<()>,
    standings: BTreeMap<ChainId, watch::Receiver<ChainReadiness>>,
}

impl Data {
    /// Serves by the configuration log, beginning with the founding's configuration.
    pub(super) fn follow_log(self: &Arc<Self>, founding: &Arc<Bootstrap>, cluster: &Cluster, hub: &Arc<Hub>) {
        let kept = self.durable.get().and_then(|durable| durable.control.look(|record| record.configs.clone()));
        let configs = Arc::new(kept.unwrap_or_else(|| Configs::of(founding)));
        let (commands, queue) = mpsc::channel(COMMAND_QUEUE);
        let (say, words) = mpsc::channel(COMMAND_QUEUE);
        let leases = watch::Sender::new(Lease::default());
        let of_chains = configs.iter().map(|config| (config.chain, watch::channel(ChainReadiness::default())));
        let (shows, standings): (Vec<_>, Vec<_>) = of_chains.map(|(chain, (show, seen))| (show, (chain, seen))).unzip();
        // Set once, here or in `serve_for_good`.
        let _ = self.standings.set(standings.iter().map(|(_, standing)| standing.clone()).collect());
        let (state, shown) = watch::channel(NodeState::default());
        let (ready, is_ready) = oneshot::channel();
        // Set once, here: a node belongs to one cluster.
        let _ = self.state.set(shown.clone());
        let chains = ChainsStart {
            cluster: founding.cluster,
            configs: configs.clone(),
            leases: leases.subscribe(),
            words: say,
            shows,
            state: shown,
            ready: is_ready,
        };
        let unloaded = self.unloaded.lock().unwrap_or_else(PoisonError::into_inner).take();
        let loads = unloaded.is_some();
        match unloaded {
            None => self.begin_chains(chains),
            Some(dir) => drop(tokio::spawn(self.clone().load_beside(dir, chains, commands.clone()))),
        }
        // Follow the address before it is read, so that no change is missed.
        let advertised = cluster.endpoint().watch_advertised_addrs();
        let beginning = ControlStart {
            me: self.info(cluster),
            advertised,
            founding: founding.clone(),
            configs,
            loads,
            calls: ControlCalls::new(cluster.endpoint().clone()),
            hub: hub.clone(),
            commands,
            queue,
            words,
            leases,
            state,
            ready,
            standings: standings.into_iter().collect(),
        };
        tokio::spawn(self.clone().keep_configuration(beginning, cluster.clone()));
    }

    async fn keep_configuration(self: Arc<Self>, beginning: ControlStart, cluster: Cluster) {
        let ControlStart {
            me,
            advertised,
            founding,
            configs,
            loads,
            calls,
            hub,
            commands,
            queue,
            words,
            leases,
            state,
            ready,
            standings,
        } = beginning;
        if let Err(error) = self.keep_founding(me.id, &founding).await {
            calls.close();
            tracing::error!(%error, "the disk of this node has failed: the node stops");
            return self.stop(Stopped::DiskFailed);
        }
        let patience = founding.timing.lease;
        let peers = Arc::new(LogPeers { calls: calls.clone(), patience });
        let kept = self.durable.get().map(|durable| durable.place.clone());
        let started = Embedded::start(me.clone(), &founding, Self::log_settings(&founding), peers, kept).await;
        let log = match started {
            Ok(log) => log,
            Err(error) => {
                calls.close();
                return self.fail(NeverReady::Halted(error.to_string()));
            }
        };
        let log = LogHandle::new(log);
        // Set once, here.
        let _ = self.door.set(Arc::new(ControlEndpoint {
            commands,
            log: log.clone(),
            standing: self.standing_source(),
            patience,
        }));
        let _ = self.log.set(Arc::new(log.clone()));
        let _ = self.recovery.set(RecoveryAccess::new(log.clone(), calls.clone()));
        tokio::spawn(self.clone().notice_recoveries(log.histories()));
        let control = ControlTask::new(ControlParts {
            cluster: founding.cluster,
            me: me.id,
            node: self.machine(me.clone(), configs, &founding, loads),
            kept: self.durable.get().map(|durable| (durable.place.clone(), durable.mode)),
            log: Arc::new(log.clone()),
            seat: log.clone(),
            calls: calls.clone(),
            advertised,
            hub,
            local: self.local.clone(),
            chains: self.chains.clone(),
            standings,
            words,
            events: cluster.events(),
            commands: queue,
            leases,
            state,
            ready: Some(ready),
            reasons: self.reporting.reasons.clone(),
            feed: self.reporting.feed.clone(),
            patience,
        });
        // The task must not keep the socket open after the node has ended.
        drop(cluster);
        let end = control.run(self.phases()).await;
        log.stop().await;
        match end {
            ControlEnd::Stopped => {}
            ControlEnd::Failed => {
                tracing::error!("the configuration log of this node has failed: this node stops");
                self.stop(Stopped::LogFailed);
            }
            ControlEnd::Succeeded => self.stop(Stopped::Succeeded),
            ControlEnd::RolledBack => {
                tracing::error!("the directory of this node is an older copy, or a second one: this node stops");
                self.note_refused().await;
                // The directory's newer incarnation may run where it isn't reachable now. It takes a farewell as proof that
                // this one has ended.
                if let Some(cluster) = self.cluster.get() {
                    cluster.leave().await;
                }
                self.stop(Stopped::RolledBack);
            }
        }
    }

    /// The next start of this directory is no better than this one.
    async fn note_refused(&self) {
        let Some(durable) = self.durable.get() else { return };
        let control = durable.control.clone();
        let note = move || control.change(|record| record.refused = true);
        let noted = tokio::task::spawn_blocking(note).await.map(|noted| noted.map_err(|error| error.to_string()));
        if !matches!(noted, Ok(Ok(()))) {
            tracing::error!(?noted, "it can't be noted on the disk");
        }
    }

    /// The founding is on the disk before the log's group starts.
    async fn keep_founding(&self, me: MemberId, founding: &Arc<Bootstrap>) -> Result<(), ControlFileError> {
        let Some(durable) = self.durable.get() else { return Ok(()) };
        let (control, founding) = (durable.control.clone(), founding.clone());
        let keep = move || {
            control.change(|record| {
                record.keep_founding(me, &founding);
            })
        };
        tokio::task::spawn_blocking(keep).await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    fn machine(&self, me: NodeInfo, configs: Arc<Configs>, founding: &Bootstrap, loads: bool) -> NodeMachine {
        let settings = self.node_settings(founding);
        match self.durable.get() {
            Some(durable) => {
                let heard = durable.control.look(|record| record.heard.clone());
                let holds = durable.holds().filter(|_| !loads).map(<[_]>::to_vec);
                NodeMachine::durable(me, configs, settings, holds, heard)
            }
            None => NodeMachine::new(me, configs, settings),
        }
    }

    /// Followers wait `election_max` for a silent leader, and an election begins within as long again. Together that is
    /// half a lease, so the leases of living members outlast an election.
    fn log_settings(founding: &Bootstrap) -> EmbeddedSettings {
        let lease = founding.timing.lease;
        EmbeddedSettings {
            heartbeat: lease / 10,
            election_min: lease / 6,
            election_max: lease / 4,
            seed: super::random::random(),
            ..EmbeddedSettings::default()
        }
    }

    fn node_settings(&self, founding: &Bootstrap) -> node::CoordinatorSettings {
        let Timing { lease, drift_ppm, suspect, slow } = founding.timing;
        let defaults = node::CoordinatorSettings::default();
        node::CoordinatorSettings {
            cluster: founding.cluster,
            lease,
            drift_ppm,
            suspect,
            slow,
            replicas: founding.settings.replicas as usize,
            reopen: self.config.data.as_ref().map_or(defaults.reopen, |data| data.reopen),
            ..defaults
        }
    }

    /// Waits until the deciding node calls this one ready; a spare waits also until a member answers it.
    pub(super) async fn become_member(
        self: Arc<Self>,
        cluster: ClusterId,
        mut state: watch::Receiver<NodeState>,
        mut standings: Vec<watch::Receiver<ChainReadiness>>,
        mut ready: oneshot::Receiver<()>,
    ) {
        let became = async {
            loop {
                let halted = standings.iter().find_map(|standing| standing.borrow().halted.clone());
                if let Some(why) = halted {
                    return self.fail(NeverReady::Halted(why.to_string()));
                }
                tokio::select! {
                    biased;
                    () = any_changed(&mut standings) => {}
                    // The sender is gone only if the node has stopped, which ends this wait.
                    told = &mut ready => match told {
                        Ok(()) => break,
                        Err(_) => std::future::pending().await,
                    },
                }
            }
            if !state.borrow().configs.names(self.id()) {
                self.reach_a_member().await;
                // That may have taken long: meanwhile this node may have become a joiner, or another node may have
                // died.
                if state.wait_for(|state| state.unready.is_none()).await.is_err() {
                    return;
                }
            }
            self.advance(NodePhase::Ready(Ready::new(self.role(), cluster)));
        };
        self.unless_stopped(became).await;
    }

    /// Whether this node may serve now. It must have been ready, and now a member needs a lease and open chains, and a
    /// spare must have heard recently from members that it can ask.
    pub(super) fn may_serve(&self) -> bool {
        let Some(standings) = self.standings.get().filter(|_| self.phases().borrow().is_ready()) else { return false };
        if standings.iter().any(|standing| standing.borrow().halted.is_some()) {
            return false;
        }
        let Some(state) = self.state.get() else {
            return standings.iter().all(|standing| standing.borrow().open.is_some());
        };
        let known = state.borrow().clone();
        let now = clock::now();
        let heard = self.is_led(&known);
        let is_serving = |config: &ChainConfig| config.role(self.id()) == Some(Role::Serving);
        // Ask the gate too: a member that resigned has given its lease up before that expires.
        let is_leased = |config: &ChainConfig| self.local.lease(config.chain) > now;
        self.serves(&known, standings)
            && known.configs.iter().all(|config| if is_serving(config) { is_leased(config) } else { heard })
    }

    /// Whether a leader confirmed by a majority has answered recently.
    pub(super) fn is_led(&self, known: &NodeState) -> bool {
        clock::now() - known.heard < self.lease() * UNHEARD_LEASES
    }

    /// Whether this node can fulfil its place in each chain.
    fn serves(&self, known: &NodeState, standings: &[watch::Receiver<ChainReadiness>]) -> bool {
        let leased = known.lease > clock::now();
        let mut chains = known.configs.iter().zip(standings);
        let serves = |(config, standing): (&ChainConfig, &watch::Receiver<ChainReadiness>)| match config.role(self.id())
        {
            Some(Role::Serving) => leased && standing.borrow().open == Some(config.epoch),
            Some(_) => false,
            None => known.answered,
        };
        // Until the chains have acted for the first time, no configuration is known.
        known.configs.iter().next().is_some() && chains.all(serves)
    }

    /// Executes an operator's command at this node.
    pub(super) async fn arrange(&self, wish: AdminCommand) -> Result<Option<Epoch>, ArrangeError> {
        let (Some(door), Some(state)) = (self.door.get(), self.state.get()) else { return Err(ArrangeError::Fixed) };
        match wish {
            AdminCommand::Leave => {
                let me = self.id();
                let configs = state.borrow().configs.clone();
                let last = |config: &&ChainConfig| config.serving().eq([me]);
                if let Some(config) = configs.iter().find(last) {
                    return Err(ArrangeError::Last { chain: config.chain });
                }
                // The operator watches the configuration for the end of this.
                let (done, _) = oneshot::channel();
                let until = Some(clock::now() + self.lease() * DRAIN_LEASES);
                door.commands.send(ControlCommand::Leave { until, done }).await.map_err(|_| ArrangeError::Stopped)?;
                Ok(None)
            }
            AdminCommand::Reorder { chain, order } => {
                let (answer, result) = oneshot::channel();
                let command = ControlCommand::Reorder { chain, order, answer };
                door.commands.send(command).await.map_err(|_| ArrangeError::Stopped)?;
                Ok(Some(result.await.map_err(|_| ArrangeError::Stopped)??))
            }
        }
    }

    /// Leaves the chains, and waits until this node may end. A last member waits until another one holds its data.
    pub(crate) async fn resign(&self) {
        self.end_by(|done| ControlCommand::Leave { until: None, done }).await;
    }

    /// Leaves the chains of a node with a directory, which stays a node and a voter. A last member waits a while at most.
    pub(crate) async fn withdraw(&self) {
        self.end_by(|done| ControlCommand::Withdraw { done }).await;
    }

    async fn end_by(&self, command: impl FnOnce(oneshot::Sender<()>) -> ControlCommand) {
        self.is_leaving.store(true, Ordering::Relaxed);
        let Some(door) = self.door.get() else { return };
        let (done, left) = oneshot::channel();
        let leave = async {
            if door.commands.send(command(done)).await.is_ok() {
                drop(left.await);
            }
        };
        // The task that takes commands ends when this node stops: a command sent at that moment may stay in the queue
        // without an answer.
        self.unless_stopped(leave).await;
    }
}

/// Waits until one of these changes; for ever, if all senders are gone.
async fn any_changed(standings: &mut [watch::Receiver<ChainReadiness>]) {
    let mut changes: Vec<_> = standings.iter_mut().map(|standing| Box::pin(standing.changed())).collect();
    poll_fn(|cx| {
        let mut changed = false;
        changes.retain_mut(|change| match change.as_mut().poll(cx) {
            Poll::Ready(result) => {
                changed |= result.is_ok();
                false
            }
            Poll::Pending => true,
        });
        if changed { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
