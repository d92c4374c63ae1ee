//! Other clusters of the same name and secret, formed while the networks were cut (docs/DESIGN.md §5.14). This node
//! logs the clusters that it meets, reports them to the other nodes of its cluster, and isn't ready until it is settled
//! which cluster stays.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use artillery_core::{Cluster, Member, MemberEvent, internal::watch, transport::ForeignPeer};
use artillery_proto::{
    control::encounter::{Encountered, Encounters, MAX_ENCOUNTERS, Meeting, Party, Statement},
    guards::Guards,
    node::NodeInput,
};
use tokio::{sync::mpsc, task::JoinSet, time::MissedTickBehavior};

use super::{
    data::{Data, Others, is_alive},
    stage::Formed,
};
use crate::{
    ClusterId,
    control::message::NotGivenUp,
    driver::control::{ControlCommand, NodeState},
};

/// The period at which the known clusters are examined again, and the leader is notified.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// Known addresses are dialled once in this many looks.
const DIAL_EVERY: u64 = 3;

/// The most meetings that wait for their task. Further ones are dropped: the next contact repeats them.
pub(super) const MEETING_QUEUE: usize = 16;

struct Watcher {
    data: Arc<Data>,
    cluster: Cluster,
    mine: ClusterId,
    encounters: Encounters,
    stated: Option<Statement>,
    /// The last logged state of each cluster.
    logged: BTreeMap<ClusterId, Encountered>,
    dials: JoinSet<()>,
    looks: u64,
    /// Whether the leader may have been notified of a cluster to which this one gives way.
    has_notified: bool,
}

impl Data {
    /// Tracks the other clusters that are met, until the node stops or fails.
    pub(super) async fn watch_others(
        self: Arc<Self>,
        cluster: Cluster,
        formed: Arc<Formed>,
        mut met: mpsc::Receiver<ForeignPeer>,
    ) {
        let (mine, mut state) = (formed.founding.cluster, formed.state.clone());
        drop(formed);
        let mut phases = self.phases();
        let mut events = cluster.events();
        let members: Vec<_> = events.members().cloned().collect();
        let encounters = Encounters::new(mine, state.is_none());
        let mut watcher = Watcher {
            data: self,
            cluster,
            mine,
            encounters,
            stated: None,
            logged: BTreeMap::new(),
            dials: JoinSet::new(),
            looks: 0,
            has_notified: false,
        };
        members.iter().for_each(|member| watcher.member(member));
        let mut look = tokio::time::interval(LOOK_PERIOD);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !phases.borrow().is_final() {
            tokio::select! {
                biased;
                changed = phases.changed() => if changed.is_err() { return },
                peer = met.recv() => match peer {
                    Some(peer) => watcher.meet(peer),
                    None => return,
                },
                event = events.next() => match event {
                    Some(event) => watcher.event(&event),
                    None => return,
                },
                Some(()) = changed(&mut state) => {}
                _ = watcher.dials.join_next(), if !watcher.dials.is_empty() => continue,
                _ = look.tick() => watcher.look(),
            }
            let known = state.as_ref().map(|state| state.borrow().clone());
            watcher.follow(known.as_ref()).await;
        }
    }

    /// Checks that an operator may abandon the named cluster at this node.
    pub(super) fn may_be_given_up(&self, asked: ClusterId) -> Result<(), NotGivenUp> {
        if let Some(found) = self.local.cluster().filter(|&found| found != asked) {
            return Err(NotGivenUp::DifferentCluster { asked, found });
        }
        if self.others.borrow().may_be_given_up { Ok(()) } else { Err(NotGivenUp::Alone) }
    }
}

/// Waits for a change of the node's state; `None` if the state never changes again.
async fn changed(state: &mut Option<watch::Receiver<NodeState>>) -> Option<()> {
    match state {
        Some(state) => state.changed().await.ok(),
        None => None,
    }
}

impl Watcher {
    fn meet(&mut self, peer: ForeignPeer) {
        if !peer.is_led {
            return;
        }
        let other = Party { cluster: peer.cluster, holds_data: peer.holds_data };
        self.encounters.meet(self.data.local.clock.now(), other, peer.name, peer.addr);
    }

    fn event(&mut self, event: &MemberEvent) {
        match event {
            MemberEvent::Joined(member)
            | MemberEvent::Up(member)
            | MemberEvent::Payload(member)
            | MemberEvent::Formed(member) => self.member(member),
            MemberEvent::Down(member) | MemberEvent::Left(member) => {
                self.encounters.retain(|node| node != member.id.node);
            }
            MemberEvent::Lagged { .. } => {
                let members = self.cluster.members();
                self.encounters
                    .retain(|node| members.iter().any(|member| member.id.node == node && is_alive(member.state)));
                members.iter().for_each(|member| self.member(member));
            }
            _ => {}
        }
    }

    fn member(&mut self, member: &Member) {
        if member.cluster_id == Some(self.mine) && is_alive(member.state) {
            self.encounters.tell(member.id.node, &member.name, Statement::from_bytes(&member.payload));
        }
    }

    /// At intervals, dials the clusters that were met, to keep what is known of them up to date. Notifies the leader,
    /// which may be this node, of a cluster to which this one gives way.
    fn look(&mut self) {
        self.looks += 1;
        self.encounters.forget(self.data.local.clock.now());
        if self.looks.is_multiple_of(DIAL_EVERY) && self.dials.len() < MAX_ENCOUNTERS {
            for addr in self.encounters.addrs() {
                let endpoint = self.cluster.endpoint().clone();
                // Its hello, or the refusal, carries the statements: see `Service::met_foreign`.
                self.dials.spawn(async move { drop(endpoint.connect(addr).await) });
            }
        }
        let by = self.encounters.outranked(Guards::ALL);
        if let Some(following) = self.data.stage.following().filter(|_| by.is_some() || self.has_notified) {
            // With a full queue the notice is dropped: the next look repeats it.
            let is_sent =
                following.control.commands.try_send(ControlCommand::Input(NodeInput::Outranked { by })).is_ok();
            self.has_notified = by.is_some() || !is_sent;
        }
    }

    /// Publishes changes: of this node's statements to the other nodes, of the other clusters to the rest of this node.
    /// `state`: `None` for a node with a fixed configuration.
    async fn follow(&mut self, state: Option<&NodeState>) {
        if state.is_some_and(|state| state.holds_data) {
            self.encounters.hold_data();
        }
        // A cluster with a node of an earlier release can't give way, so it must not make another cluster give way.
        let is_led = match state {
            Some(state) => !state.is_over && self.data.is_led(state),
            None => self.data.is_open(),
        };
        self.cluster.set_led(is_led && self.encounters.all_state());
        if self.encounters.mine().holds_data {
            self.cluster.set_holds_data();
        }
        let statement = self.encounters.statement();
        if self.stated.as_ref() != Some(&statement) && self.cluster.set_payload(statement.to_bytes()).await.is_ok() {
            self.stated = Some(statement);
        }
        let meetings = self.encounters.meetings();
        let others = Others { unready: self.encounters.unready(), may_be_given_up: self.encounters.may_be_given_up() };
        self.data.others.send_if_modified(|known| {
            let changes = *known != others;
            *known = others;
            changes
        });
        self.log(&meetings);
    }

    /// Logs each cluster when it is met, and when its state changes.
    fn log(&mut self, meetings: &[Meeting]) {
        self.logged.retain(|cluster, _| meetings.iter().any(|meeting| meeting.other.cluster == *cluster));
        for Meeting { other, by, node } in meetings {
            let met = self.encounters.encountered(*other);
            if self.logged.insert(other.cluster, met) == Some(met) {
                continue;
            }
            let (node, addr) = node.clone().unzip();
            tracing::warn!(
                cluster = %other.cluster,
                node,
                addr = addr.map(tracing::field::display),
                met_by = by.as_deref(),
                "another cluster was met: {met}"
            );
        }
    }
}
