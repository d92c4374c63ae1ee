//! A node whose configuration may change: it keeps the log with others, or follows it.

use std::{sync::Arc, time::Duration};

use artillery_core::{
    clock,
    cluster::{Cluster, MemberState},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{sleep, timeout},
};

use super::{
    data::Data,
    phase::{NeverReady, Phase, Ready},
    recovering,
};
use crate::{
    ChainConfig, Role,
    control::{
        Configs, Founder, Founding,
        coordinator::{self, Coordinator},
        embedded::{Embedded, EmbeddedSettings, Seat},
        holder::{self, Holder},
    },
    driver::{
        chain::{Rule, Standing},
        control::{self, COMMANDS, Calls, Command, Control, Door, Lease, LogPeers, Parts, State},
        lanes::Hub,
    },
};

/// A node that isn't yet what it is to be isn't kept from being ready for longer than so many times the lease.
const PATIENCE: u32 = 10;
/// Those that leave together would wait for each other: no longer than so many times the lease.
const FAREWELL: f64 = 1.5;
/// How often it is looked whether it is what it is to be.
const LOOK: Duration = Duration::from_millis(50);

/// What the task of the configuration is made of, but for the log.
struct Beginning {
    me: Founder,
    founding: Arc<Founding>,
    configs: Arc<Configs>,
    calls: Arc<Calls>,
    hub: Arc<Hub>,
    commands: mpsc::Sender<Command>,
    queue: mpsc::Receiver<Command>,
    leases: watch::Sender<Lease>,
    state: watch::Sender<State>,
}

impl Data {
    /// Serves what the log says, from what the founding says on.
    pub(super) fn follow_log(self: &Arc<Self>, founding: &Arc<Founding>, cluster: &Cluster, hub: &Arc<Hub>) {
        let configs = Arc::new(Configs::of(founding));
        let (commands, queue) = mpsc::channel(COMMANDS);
        let leases = watch::Sender::new(Lease::default());
        let mut standings = Vec::new();
        let handles = configs.iter().map(|config| {
            let rule = Rule::Log { leases: leases.subscribe(), wishes: commands.clone() };
            let (handle, standing) = self.serve(config.chain, rule);
            standings.push(standing);
            Some(handle)
        });
        let handles = handles.collect();
        self.local.form(control::routing(founding.cluster, &configs), handles);
        let (state, shown) = watch::channel(State::default());
        // Set once, here: a node belongs to one cluster.
        let _ = self.state.set(shown.clone());
        self.advance(Phase::Formed);
        let addrs = vec![cluster.endpoint().advertised_addr()];
        let beginning = Beginning {
            me: Founder { id: self.id(), name: self.name().to_owned(), addrs },
            founding: founding.clone(),
            configs,
            calls: Calls::new(cluster.endpoint().clone()),
            hub: hub.clone(),
            commands,
            queue,
            leases,
            state,
        };
        tokio::spawn(self.clone().keep_configuration(beginning, cluster.clone()));
        tokio::spawn(self.clone().become_member(founding.clone(), shown, standings));
    }

    async fn keep_configuration(self: Arc<Self>, beginning: Beginning, cluster: Cluster) {
        let Beginning { me, founding, configs, calls, hub, commands, queue, leases, state } = beginning;
        let patience = self.config.lease.duration;
        let peers = Arc::new(LogPeers { calls: calls.clone(), patience });
        let started = Embedded::start(me.clone(), &founding, self.log_settings(), peers).await;
        let log = match started {
            Ok(log) => log,
            Err(error) => {
                calls.close();
                return self.fail(NeverReady::Halted(error.to_string()));
            }
        };
        let log = Seat::new(log);
        // Set once, here.
        let _ =
            self.door.set(Arc::new(Door { commands, log: log.clone(), standing: self.standing_source(), patience }));
        let _ = self.log.set(Arc::new(log.clone()));
        let _ = self.recovery.set(recovering::Parts::new(log.clone(), calls.clone()));
        tokio::spawn(self.clone().notice_recoveries(log.histories()));
        let settings = holder::Settings { renew: self.config.lease.duration / 4 };
        let control = Control::new(Parts {
            cluster: founding.cluster,
            me: me.id,
            holder: Holder::new(me.clone(), settings, configs),
            coordinator: Coordinator::new(me.id, self.coordinator_settings(&founding)),
            log: Arc::new(log.clone()),
            seat: log.clone(),
            calls: calls.clone(),
            hub,
            local: self.local.clone(),
            chains: self.chains.clone(),
            events: cluster.events(),
            commands: queue,
            leases,
            state,
            patience,
        });
        // The task must not keep the socket open when the node is gone.
        drop(cluster);
        control.run(self.phases()).await;
        log.stop().await;
    }

    /// Elections are over in half of a lease, so that those of living members outlast them.
    fn log_settings(&self) -> EmbeddedSettings {
        let lease = self.config.lease.duration;
        EmbeddedSettings {
            heartbeat: lease / 10,
            election_min: lease / 4,
            election_max: lease / 2,
            seed: super::builder::random(),
            ..EmbeddedSettings::default()
        }
    }

    pub(super) fn coordinator_settings(&self, founding: &Founding) -> coordinator::Settings {
        coordinator::Settings {
            cluster: founding.cluster,
            lease: self.config.lease.duration,
            drift_ppm: self.config.lease.drift_ppm,
            suspect: self.config.suspect,
            replicas: founding.settings.replicas as usize,
            ..coordinator::Settings::default()
        }
    }

    /// A member is ready when its chains are open and it has a lease, a spare when a member has answered it; and
    /// either when there is nothing more that it is to become.
    async fn become_member(
        self: Arc<Self>,
        founding: Arc<Founding>,
        state: watch::Receiver<State>,
        standings: Vec<watch::Receiver<Standing>>,
    ) {
        let patience = self.config.lease.duration * PATIENCE;
        let became = async {
            let mut waited = Duration::ZERO;
            loop {
                let halted = standings.iter().find_map(|standing| standing.borrow().halted.clone());
                if let Some(why) = halted {
                    return self.fail(NeverReady::Halted(why.to_string()));
                }
                let known = state.borrow().clone();
                if self.serves(&known, &standings) && (waited >= patience || self.is_settled(&founding, &known)) {
                    break;
                }
                sleep(LOOK).await;
                waited += LOOK;
            }
            if !state.borrow().configs.names(self.id()) {
                self.reach_a_member().await;
            }
            self.advance(Phase::Ready(Ready::new(self.role(), founding.cluster)));
        };
        self.unless_stopped(became).await;
    }

    /// Whether this node can do what its place in each chain is for.
    fn serves(&self, known: &State, standings: &[watch::Receiver<Standing>]) -> bool {
        let leased = known.lease > clock::now();
        let mut chains = known.configs.iter().zip(standings);
        let serves = |(config, standing): (&ChainConfig, &watch::Receiver<Standing>)| match config.role(self.id()) {
            Some(Role::Serving) => leased && standing.borrow().open == Some(config.epoch),
            Some(_) => false,
            None => known.answered,
        };
        // Nothing is known before the chains have acted for the first time.
        known.configs.iter().next().is_some() && chains.all(serves)
    }

    /// Whether nothing is missing that this node is to do: to serve where a member is missing or gone, and to keep the
    /// log where a node keeps it no more. Whoever is gone is seen by the membership alone, so this only delays.
    fn is_settled(&self, founding: &Founding, known: &State) -> bool {
        let Some(log) = self.log.get() else { return false };
        let replicas = founding.settings.replicas as usize;
        let all_there = |config: &ChainConfig| config.serving().all(|id| self.is_there(id));
        let place = |config: &ChainConfig| {
            config.role(self.id()).is_some() || (config.serving().count() >= replicas && all_there(config))
        };
        let voters = log.voters();
        let kept = !voters.is_empty() && voters.iter().all(|&voter| self.is_there(voter));
        let is_known = known.configs.node(self.id()).is_some();
        is_known && known.configs.iter().all(place) && (kept || voters.contains(&self.id()))
    }

    fn is_there(&self, id: artillery_core::MemberId) -> bool {
        let member = self.cluster.get().and_then(|cluster| cluster.member(id.node));
        id == self.id() || member.is_some_and(|member| member.id == id && member.state == MemberState::Alive)
    }

    /// Serves nothing more, and waits until no configuration names this node, as far as that can be.
    pub(crate) async fn resign(&self) {
        let (Some(door), Some(state)) = (self.door.get(), self.state.get()) else { return };
        let (done, left) = oneshot::channel();
        if door.commands.send(Command::Leave { done }).await.is_err() {
            return;
        }
        let alone = state.borrow().configs.iter().all(|config| config.serving().all(|id| id == self.id()));
        let patience = if alone { Duration::ZERO } else { self.config.lease.duration.mul_f64(FAREWELL) };
        // Where it can't be, the others find out by themselves.
        drop(timeout(patience, left).await);
    }
}
