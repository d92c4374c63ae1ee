//! The task that reports a node's events, and why the node isn't ready. Collects the facts for these reports.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use artillery_core::{Cluster, MemberEvent, MemberEvents, MemberId, Timestamp, internal::watch};
use artillery_proto::node::Unready;
use tokio::time::{MissedTickBehavior, interval};

use super::{
    data::{Data, is_alive},
    durable::NodeDir,
    events::EventTracker,
    waiting::{self, ChainFacts, Facts, Reminder, WaitingFor},
};
use crate::{
    ChainConfig, Role,
    control::{ConfigLog, Configs, message::Unsettled},
    driver::{control::NodeState, phase::NodePhase},
};

/// How often the task compares the node's state with its previous state.
const PERIOD: Duration = Duration::from_millis(250);

impl Data {
    pub(super) fn start_reports(self: &Arc<Self>, cluster: &Cluster) {
        let mut events = cluster.events();
        let data = Arc::downgrade(self);
        let mut phases = self.phases();
        let mut tracker = EventTracker::new(self.id());
        look_around(&mut tracker, &events, self.local.clock.now());
        tokio::spawn(async move {
            let mut reminder = Reminder::default();
            let mut ticks = interval(PERIOD);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                let event = tokio::select! {
                    biased;
                    () = ended(&mut phases) => return,
                    event = events.next() => match event {
                        Some(event) => Some(event),
                        None => return,
                    },
                    _ = ticks.tick() => None,
                };
                let Some(data) = data.upgrade() else { return };
                match event {
                    Some(MemberEvent::Lagged { .. }) => look_around(&mut tracker, &events, data.local.clock.now()),
                    Some(event) => data.take_member_event(&mut tracker, &event),
                    None => data.compare(&mut tracker, &mut reminder).await,
                }
            }
        });
    }

    fn take_member_event(&self, tracker: &mut EventTracker, event: &MemberEvent) {
        let event = tracker.member(self.local.clock.now(), event);
        // A node without a cluster reports no members, and neither does a node that leaves.
        if let Some(event) = event.filter(|_| self.has_cluster() && !self.leaves()) {
            self.reporting.hub.report(event);
        }
    }

    /// Reports changes and, at intervals, the reasons if the node does not serve.
    async fn compare(&self, tracker: &mut EventTracker, reminder: &mut Reminder) {
        if self.leaves() {
            return;
        }
        let now = self.local.clock.now();
        for configs in self.reporting.feed.take() {
            let changes = tracker.configs(now, &configs, &self.reporting.reasons);
            changes.into_iter().for_each(|event| self.reporting.hub.report(event));
        }
        let serves = self.may_serve();
        let waiting_for = if serves { Vec::new() } else { self.waiting_for().await };
        if let Some(event) = tracker.serving(now, serves, &waiting_for) {
            self.reporting.hub.report(event);
        }
        if let Some(event) = tracker.tick(now) {
            self.reporting.hub.report(event);
        }
        if reminder.is_due(now, serves) && !waiting_for.is_empty() {
            tracing::warn!("this node is not ready: {}", waiting::line(&waiting_for));
        }
    }

    fn leaves(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// Why this node isn't ready, or no longer serves.
    pub(super) async fn waiting_for(&self) -> Vec<WaitingFor> {
        waiting::waiting_for(&self.facts().await)
    }

    async fn facts(&self) -> Facts {
        let phase = self.phases().borrow().clone();
        let cluster = self.cluster();
        let cluster = cluster.as_ref();
        let known = self.state();
        let formation = self.reporting.formation.borrow().clone();
        let chains = self.chain_facts(known.as_ref()).await;
        Facts {
            serves: self.may_serve(),
            ended: match &phase {
                NodePhase::Failed(why) => Some(why.to_string()),
                NodePhase::Stopped(why) => Some(why.to_string()),
                _ => None,
            },
            has_cluster: self.has_cluster(),
            has_directory: self.dir.is_some(),
            formation,
            seeds: cluster.map(Cluster::seeds).unwrap_or_default(),
            no_multicast: cluster.and_then(Cluster::no_multicast),
            refused: cluster.map(Cluster::refused_peers).unwrap_or_default(),
            loading: self.dir.as_ref().and_then(NodeDir::loading).filter(|_| self.has_cluster()),
            voters: known.as_ref().map(|known| self.voters(known)).unwrap_or_default(),
            is_led: known.as_ref().is_none_or(|known| known.heard != Timestamp::ZERO && self.is_led(known)),
            is_spare: known.as_ref().map_or_else(|| self.has_no_chain(), |known| !known.configs.names(self.id())),
            is_confirmed: known.as_ref().is_none_or(|known| known.unready.is_none()),
            chains,
            another_cluster: self.others.borrow().unready,
            unsettled: known.as_ref().and_then(|known| self.unsettled(known, phase.is_ready())),
        }
    }

    /// The voters of the configuration log by name, and whether the membership considers them alive.
    fn voters(&self, known: &NodeState) -> Vec<(String, bool)> {
        let Some(following) = self.stage.following() else { return Vec::new() };
        let members = following.formed.started.cluster.members();
        let is_there = |id: MemberId| {
            id.node == self.id().node
                || members.iter().any(|member| member.id.node == id.node && is_alive(member.state))
        };
        following.control.log.voters().into_iter().map(|id| (self.name_of(known, id), is_there(id))).collect()
    }

    fn name_of(&self, known: &NodeState, id: MemberId) -> String {
        let met = || self.cluster()?.member(id.node).map(|member| member.name);
        let name = known.configs.node(id).map(|node| node.name.clone()).or_else(met);
        name.unwrap_or_else(|| id.node.to_string())
    }

    /// The facts of this node's chains. A fixed configuration needs no lease.
    async fn chain_facts(&self, known: Option<&NodeState>) -> Vec<ChainFacts> {
        // The state may have been read before the node entered its present stage.
        let is_current = known.is_some() || !self.config.failover;
        let Some(formed) = self.stage.formed().filter(|_| is_current) else { return Vec::new() };
        let now = self.local.clock.now();
        let role = |config: &ChainConfig| config.role(self.id());
        let joins = |config: &ChainConfig| known.is_some() && role(config).is_some_and(|role| role != Role::Serving);
        let configs = known.map_or_else(|| Arc::new(Configs::of(&formed.founding)), |known| known.configs.clone());
        // Only a joiner queries the chains' tasks, since they may be busy.
        let received = match configs.iter().any(joins) {
            true => self.numbered_states().await,
            false => Default::default(),
        };
        let served = configs.iter().filter(|config| known.is_some() || role(config).is_some());
        let mine = served.zip(&formed.standings).filter(|(config, _)| role(config).is_some());
        mine.map(|(config, standing)| {
            let (chain, standing) = (config.chain, standing.borrow());
            ChainFacts {
                chain,
                is_joiner: joins(config),
                received: received
                    .get(&chain)
                    .and_then(|state| state.resync.receiving)
                    .map(|progress| progress.records),
                is_open: standing.open.is_some_and(|epoch| known.is_none() || epoch == config.epoch),
                is_leased: known.is_none_or(|known| known.lease > now && self.local.lease(chain) > now),
                halted: standing.halted.as_ref().map(ToString::to_string),
            }
        })
        .collect()
    }

    /// Whether a node with a fixed configuration serves no chain.
    fn has_no_chain(&self) -> bool {
        self.stage.formed().is_some_and(|formed| formed.standings.is_empty())
    }

    /// The reason in the node's own state, unless another fact already gives it. Once the node was ready, the state of
    /// other nodes is no reason.
    fn unsettled(&self, known: &NodeState, was_ready: bool) -> Option<String> {
        let named = |id| self.name_of(known, id);
        match known.unready? {
            Unready::Unsettled(Unsettled::Unled) => None,
            Unready::Unsettled(_) if was_ready => None,
            Unready::Unsettled(Unsettled::Joins { chain, member }) => {
                Some(format!("node {} joins chain {}", named(member), chain.0))
            }
            Unready::Unsettled(Unsettled::Missing { chain, member }) => {
                Some(format!("node {} is missing in chain {}", named(member), chain.0))
            }
            Unready::Unsettled(Unsettled::Leaves { member }) => Some(format!("node {} leaves", named(member))),
            Unready::Unsettled(Unsettled::Short { chain, member }) => {
                let (chain, node) = (chain.0, named(member));
                Some(format!("chain {chain} has fewer members than it should, and node {node} may become one"))
            }
            why @ (Unready::Orphaned | Unready::Yields { .. } | Unready::Parted { .. } | Unready::Unsettled(_)) => {
                Some(self.explained(why))
            }
            _ => None,
        }
    }

    /// Why the node isn't ready, with the operator's command if there is one.
    pub(super) fn explained(&self, why: Unready) -> String {
        match (why, self.local.cluster()) {
            (Unready::Orphaned, Some(cluster)) => {
                format!(
                    "{why}: if they are lost permanently, `artillery-ctl create-anew --accept-loss {cluster}` has the others form a new cluster"
                )
            }
            _ => why.to_string(),
        }
    }
}

async fn ended(phases: &mut watch::Receiver<NodePhase>) {
    // The sender is gone only if the node was dropped.
    let _ = phases.wait_for(NodePhase::is_final).await;
}

fn look_around(tracker: &mut EventTracker, events: &MemberEvents, now: Timestamp) {
    events.members().for_each(|member| tracker.knows(now, member));
}
