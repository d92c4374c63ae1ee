//! From `Formed` to `Following` (see `stage`): the node keeps the configuration log with others, or follows it.

use std::sync::Arc;

use artillery_core::internal::{random, watch};
use artillery_proto::{
    data_dir::ControlFileError,
    node::{self, NodeMachine},
};
use tokio::sync::mpsc;

use super::{
    data::Data,
    machine::Machine,
    stage::{Following, Formed, Reached},
};
use crate::{
    MemberId,
    control::{
        Bootstrap, Configs, NodeInfo, Timing,
        embedded::{Embedded, EmbeddedSettings, LogHandle},
    },
    driver::{
        control::{
            ControlCalls, ControlCommand, ControlEnd, ControlEndpoint, ControlParts, ControlQueues, ControlTask,
            LogPeers, NodeState,
        },
        phase::{NeverReady, Stopped},
    },
    offload::offload,
};

/// Values that start the log and the control task.
pub(super) struct FollowStart {
    pub(super) formed: Arc<Formed>,
    pub(super) state: watch::Receiver<NodeState>,
    pub(super) configs: Arc<Configs>,
    /// Whether the chains don't exist yet: [`NodeInput::Loaded`](node::NodeInput::Loaded) follows when they do.
    pub(super) loads: bool,
    pub(super) commands: mpsc::Sender<ControlCommand>,
    pub(super) queues: ControlQueues,
}

impl Data {
    /// Runs this node's part of the log and the control task, until the task ends.
    pub(super) async fn follow_log(self: Arc<Self>, start: FollowStart) {
        let FollowStart { formed, state, configs, loads, commands, queues } = start;
        let (founding, cluster) = (formed.founding.clone(), formed.started.cluster.clone());
        let me = self.info(&cluster);
        let calls = ControlCalls::new(cluster.endpoint().clone());
        let Some(log) = self.start_log(me.clone(), &founding, &calls).await else { return };
        let limit = founding.timing.lease;
        let node = Box::new(Arc::downgrade(&self));
        let control = Arc::new(ControlEndpoint { commands, log: log.clone(), node, limit });
        let following = Following { formed, state, control, calls: calls.clone(), turn: tokio::sync::Mutex::default() };
        let following = Arc::new(following);
        self.stage.enter(Reached::Following(following.clone()));
        tokio::spawn(self.clone().notice_recoveries(following.clone(), log.histories()));
        let task = ControlTask::new(ControlParts {
            cluster: founding.cluster,
            me: me.id,
            node: self.machine(me, configs, &founding, loads),
            kept: self.dir.as_ref().map(|dir| (dir.place.clone(), dir.mode)),
            log: log.clone(),
            calls,
            hub: following.formed.started.hub.clone(),
            local: self.local.clone(),
            chains: self.chains.clone(),
            events: cluster.events(),
            queues,
            reasons: self.reporting.reasons.clone(),
            feed: self.reporting.feed.clone(),
            limit,
        });
        // The task must not keep the socket open after the node has ended.
        drop((cluster, following));
        let end = task.run(self.phases()).await;
        log.stop().await;
        self.end_following(end).await;
    }

    /// Writes the bootstrap to the disk, and then starts the log's group. `None`: one of them failed, which ends the
    /// node.
    async fn start_log(&self, me: NodeInfo, founding: &Arc<Bootstrap>, calls: &Arc<ControlCalls>) -> Option<LogHandle> {
        if let Err(error) = self.keep_founding(me.id, founding).await {
            calls.close();
            tracing::error!(%error, "the disk of this node has failed: the node stops");
            self.stop(Stopped::DiskFailed);
            return None;
        }
        let peers = Arc::new(LogPeers { calls: calls.clone(), limit: founding.timing.lease });
        let kept = self.dir.as_ref().map(|dir| dir.place.clone());
        match Embedded::start(me, founding, log_settings(founding, &self.machine), peers, kept).await {
            Ok(log) => Some(LogHandle::new(log)),
            Err(error) => {
                calls.close();
                self.fail(NeverReady::Halted(error.to_string()));
                None
            }
        }
    }

    async fn end_following(&self, end: ControlEnd) {
        match end {
            ControlEnd::Stopped => {}
            ControlEnd::Failed => {
                tracing::error!("the configuration log of this node has failed: this node stops");
                self.stop(Stopped::LogFailed);
            }
            ControlEnd::Superseded => self.stop(Stopped::Superseded),
            ControlEnd::RolledBack => {
                tracing::error!("the directory of this node is an older copy, or a second one: this node stops");
                self.note_refused().await;
                // The directory's newer incarnation may be unreachable now. It treats a farewell as proof that this one
                // has ended.
                if let Some(cluster) = self.cluster() {
                    cluster.leave().await;
                }
                self.stop(Stopped::RolledBack);
            }
        }
    }

    /// Records on the disk that the directory is refused, since its next start would be refused, too.
    async fn note_refused(&self) {
        let Some(dir) = &self.dir else { return };
        let control = dir.place.control.clone();
        let note = move || control.change(|record| record.refused = true);
        let noted = offload(note).await.map(|noted| noted.map_err(|error| error.to_string()));
        if !matches!(noted, Ok(Ok(()))) {
            tracing::error!(?noted, "it can't be noted on the disk");
        }
    }

    async fn keep_founding(&self, me: MemberId, founding: &Arc<Bootstrap>) -> Result<(), ControlFileError> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let (control, founding) = (dir.place.control.clone(), founding.clone());
        let keep = move || control.change(|record| record.keep_founding(me, &founding));
        offload(keep).await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    fn machine(&self, me: NodeInfo, configs: Arc<Configs>, founding: &Bootstrap, loads: bool) -> NodeMachine {
        let settings = self.coordinator_settings(founding);
        match &self.dir {
            Some(dir) => {
                let heard = dir.place.control.look(|record| record.heard.clone());
                NodeMachine::durable(me, configs, settings, dir.holds().filter(|_| !loads), heard)
            }
            None => NodeMachine::new(me, configs, settings),
        }
    }

    fn coordinator_settings(&self, founding: &Bootstrap) -> node::CoordinatorSettings {
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
}

/// Followers wait `election_max` for a silent leader, and an election begins within the same time again. Together that
/// is half a lease, so the leases of living members outlast an election.
fn log_settings(founding: &Bootstrap, machine: &Machine) -> EmbeddedSettings {
    let lease = founding.timing.lease;
    EmbeddedSettings {
        heartbeat: lease / 10,
        election_min: lease / 6,
        election_max: lease / 4,
        seed: random::number(),
        guards: machine.guards,
        clock: machine.clock.clone(),
        ..EmbeddedSettings::default()
    }
}
