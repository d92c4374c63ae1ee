//! The task that finds a cluster or creates one, and then informs later nodes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use artillery_core::internal::watch;
use artillery_core::{
    Cluster, Member, MemberEvent, MemberEvents, MemberId, MemberState, NodeId, internal::clock::NodeClock,
};
use tokio::sync::mpsc;

use super::lanes::Hub;
use crate::{
    ClusterId,
    control::{
        Bootstrap, NodeInfo,
        formation::{Formation, FormationInput, FormationMessage, FormationOutput, FormationPhase, FounderCandidate},
    },
    driver::phase::NodePhase,
};

/// The state of the formation, by which a node explains why it isn't ready.
#[derive(Debug, Clone)]
pub(crate) struct FormationFacts {
    pub(crate) phase: FormationPhase,
    pub(crate) only_joins: bool,
    /// The node's former cluster, if it was abandoned.
    pub(crate) after: Option<ClusterId>,
}

pub(crate) struct Forming {
    pub(crate) me: MemberId,
    pub(crate) clock: NodeClock,
    pub(crate) formation: Formation,
    pub(crate) messages: mpsc::Receiver<(MemberId, FormationMessage)>,
    pub(crate) events: MemberEvents,
    pub(crate) cluster: Cluster,
    pub(crate) hub: Arc<Hub>,
    /// The newest known incarnation of each node; older ones have ended.
    pub(crate) incarnations: BTreeMap<NodeId, MemberId>,
    /// Whether the node yields to a cluster that succeeds its own.
    pub(crate) yields: watch::Receiver<bool>,
    pub(crate) has_directory: bool,
    /// The formation can't end in this incarnation.
    pub(crate) is_stuck: bool,
    pub(crate) shown: watch::Sender<Option<FormationFacts>>,
}

impl Forming {
    /// Forms or finds the cluster. Calls `settled` once the cluster is known. Runs until the node ends, and then
    /// returns `false`; or until this incarnation can form no cluster, and then returns `true`.
    pub(crate) async fn run(
        mut self,
        mut phases: watch::Receiver<NodePhase>,
        settled: impl FnOnce(Arc<Bootstrap>),
    ) -> bool {
        let mut settled = Some(settled);
        self.look_around();
        loop {
            if let Some(founding) = self.flush()
                && let Some(settled) = settled.take()
            {
                settled(founding);
            }
            if self.is_stuck {
                return true;
            }
            self.show();
            let tick = self.formation.next_tick();
            let pause = tick.map_or(Duration::ZERO, |at| at - self.clock.now());
            tokio::select! {
                // A fixed order keeps runs reproducible.
                biased;
                changed = phases.changed() => if changed.is_err() || phases.borrow().is_final() { return false },
                message = self.messages.recv() => {
                    let Some((from, message)) = message else { return false };
                    self.formation.handle(self.clock.now(), FormationInput::Receive { from, message });
                }
                Ok(()) = self.yields.changed() => {
                    let yields = *self.yields.borrow_and_update();
                    self.formation.handle(self.clock.now(), FormationInput::Yields(yields));
                }
                event = self.events.next() => {
                    let Some(event) = event else { return false };
                    self.member(&event);
                }
                () = tokio::time::sleep(pause), if tick.is_some() => {
                    let now = self.clock.now();
                    self.formation.handle(now, FormationInput::SeedsMissing(self.cluster.is_searching()));
                    self.formation.handle(now, FormationInput::Tick);
                }
            }
        }
    }

    fn show(&self) {
        let (phase, only_joins, after) =
            (self.formation.phase(), self.formation.only_joins(), self.formation.given_up());
        let larger = |phase: &FormationPhase| match phase {
            FormationPhase::Free { expected_by: Some(by), expect, .. } => Some((*by, *expect)),
            _ => None,
        };
        let known = self.shown.borrow().as_ref().and_then(|shown| larger(&shown.phase));
        if let Some((node, expect)) = larger(&phase).filter(|now| Some(*now) != known) {
            tracing::warn!("node {node} expects {expect} founders, more than this one: the larger number counts");
        }
        self.shown.send_if_modified(|shown| {
            let is_news = shown.as_ref().is_none_or(|shown| shown.phase != phase);
            *shown = Some(FormationFacts { phase, only_joins, after });
            is_news
        });
    }

    /// Warns if this node has a new directory, but the cluster knows an earlier store of this node: the earlier
    /// directory was lost.
    fn compare_store(&self, founding: &Bootstrap) {
        if self.has_directory && founding.names_another_store(self.me) {
            tracing::warn!(
                cluster = %founding.cluster,
                "the directory is empty, and this cluster knows an earlier store of this node: it joins as a new member; if its \
                 volume is missing, stop it and mount the volume"
            );
        }
    }

    fn look_around(&mut self) {
        let members: Vec<_> = self.events.members().cloned().collect();
        for member in &members {
            match member.state {
                MemberState::Alive | MemberState::Suspect => self.seen(member),
                MemberState::Down | MemberState::Left => {
                    self.formation.handle(self.clock.now(), FormationInput::Gone(member.id));
                }
            }
        }
    }

    fn member(&mut self, event: &MemberEvent) {
        match event {
            MemberEvent::Joined(member)
            | MemberEvent::Up(member)
            | MemberEvent::Payload(member)
            | MemberEvent::Formed(member)
            | MemberEvent::Moved(member) => self.seen(member),
            MemberEvent::Down(member) | MemberEvent::Left(member) => {
                self.formation.handle(self.clock.now(), FormationInput::Gone(member.id));
            }
            // A later incarnation of this node exists, so the agreements of this one are void.
            MemberEvent::Superseded { .. } => {
                self.formation.handle(self.clock.now(), FormationInput::Replaced(self.me))
            }
            MemberEvent::Lagged { .. } => self.look_around(),
            _ => {}
        }
    }

    /// Handles a member reported as alive. The membership reports a node's newest incarnation last, so an earlier one
    /// has ended.
    fn seen(&mut self, member: &Member) {
        let now = self.clock.now();
        if let Some(before) = self.incarnations.insert(member.id.node, member.id)
            && before != member.id
        {
            self.formation.handle(now, FormationInput::Replaced(before));
        }
        let founder = NodeInfo { id: member.id, name: member.name.clone(), addrs: member.addrs.clone(), host: None };
        self.formation.handle(now, FormationInput::Seen(FounderCandidate { founder, cluster: member.cluster_id }));
    }

    fn flush(&mut self) -> Option<Arc<Bootstrap>> {
        let mut settled = None;
        while let Some(output) = self.formation.poll_output() {
            match output {
                FormationOutput::Send { to, message } => {
                    let addrs = self.formation.addrs(to).unwrap_or_default();
                    // A message may be dropped: messages are cumulative, and formation repeats them.
                    drop(self.hub.lanes(to.node, addrs).formation.try_send(message));
                }
                FormationOutput::Formed(founding) => settled = Some(founding),
                FormationOutput::Stuck => self.is_stuck = true,
                FormationOutput::Joined(founding) => {
                    self.compare_store(&founding);
                    settled = Some(founding);
                }
            }
        }
        settled
    }
}
