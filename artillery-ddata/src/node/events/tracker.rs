//! Decides which changes of members, chains and this node are events. Does no I/O.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use artillery_core::{Member, MemberEvent, MemberId, NodeId, Timestamp};

use super::{EventNode, MoveReason, NodeEvent, allowance::Allowance};
use crate::{ChainConfig, ChainId, Role, control::Configs, driver::control::ChangeReasons, node::waiting::WaitingFor};

/// The most removals that wait for their reason.
const MAX_REMOVALS: usize = 64;

/// A removal is reported without a reason after this time. The membership reports that a node left soon after its
/// removal.
const REASON_TIMEOUT: Duration = Duration::from_secs(2);

/// The most nodes whose state is remembered.
const MAX_NODES: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Liveness {
    Alive,
    Suspect {
        since: Timestamp,
    },
    /// `since`: when the node was first suspected, if it was.
    Down {
        since: Option<Timestamp>,
    },
    Left,
}

#[derive(Debug, Clone)]
struct TrackedNode {
    id: MemberId,
    name: String,
    liveness: Liveness,
    /// Whether the last report on the node was its loss.
    shown_lost: bool,
    allowance: Allowance,
}

/// The state at the last comparison.
#[derive(Debug)]
pub(crate) struct EventTracker {
    me: MemberId,
    nodes: BTreeMap<NodeId, TrackedNode>,
    configs: Option<Arc<Configs>>,
    chains: BTreeMap<ChainId, Allowance>,
    /// Removals whose reason is not known yet.
    removals: Vec<Removal>,
    /// Whether this node serves; `None`: it never has.
    serves: Option<bool>,
    /// Whether this node served according to the last reported event.
    shown_serves: bool,
    shown_majority_lost: bool,
    serving: Allowance,
}

impl EventTracker {
    pub(crate) fn new(me: MemberId) -> Self {
        Self {
            me,
            nodes: BTreeMap::new(),
            configs: None,
            chains: BTreeMap::new(),
            removals: Vec::new(),
            serves: None,
            shown_serves: true,
            shown_majority_lost: false,
            serving: Allowance::default(),
        }
    }

    /// Handles a change of the membership. Returns the event to report, if any.
    pub(crate) fn member(&mut self, now: Timestamp, event: &MemberEvent) -> Option<NodeEvent> {
        match event {
            MemberEvent::Joined(member) | MemberEvent::Up(member) => self.is_there(now, member),
            MemberEvent::Suspect(member) => {
                let node = self.tracked(member)?;
                if node.liveness == Liveness::Alive {
                    node.liveness = Liveness::Suspect { since: now };
                }
                None
            }
            MemberEvent::Down(member) => {
                let node = self.tracked(member)?;
                node.liveness = match node.liveness {
                    Liveness::Suspect { since } => Liveness::Down { since: Some(since) },
                    Liveness::Alive => Liveness::Down { since: None },
                    Liveness::Down { .. } | Liveness::Left => return None,
                };
                node.correct(now)
            }
            MemberEvent::Left(member) => {
                let node = self.tracked(member)?;
                let is_news = node.liveness != Liveness::Left;
                (node.liveness, node.shown_lost) = (Liveness::Left, false);
                is_news.then(|| NodeEvent::MemberLeft { node: node.named() })
            }
            _ => None,
        }
    }

    /// Records the present state of a member.
    pub(crate) fn knows(&mut self, now: Timestamp, member: &Member) {
        // The event, if any, is not reported.
        let _ = self.is_there(now, member);
    }

    fn tracked(&mut self, member: &Member) -> Option<&mut TrackedNode> {
        self.nodes.get_mut(&member.id.node).filter(|node| node.id == member.id)
    }

    fn is_there(&mut self, now: Timestamp, member: &Member) -> Option<NodeEvent> {
        let Some(node) = self.nodes.get_mut(&member.id.node) else {
            if self.nodes.len() >= MAX_NODES {
                self.nodes.retain(|_, node| matches!(node.liveness, Liveness::Alive | Liveness::Suspect { .. }));
            }
            if self.nodes.len() < MAX_NODES {
                self.nodes.insert(member.id.node, TrackedNode::new(member));
            }
            return None;
        };
        let (before, had_left) = (node.id, node.liveness == Liveness::Left);
        (node.id, node.liveness) = (member.id, Liveness::Alive);
        if before == member.id {
            return node.correct(now);
        }
        node.shown_lost = false;
        (!had_left && node.allowance.take(now)).then(|| NodeEvent::MemberReplaced { node: node.named() })
    }

    /// Handles new configurations. The first ones cause no events.
    pub(crate) fn configs(
        &mut self,
        now: Timestamp,
        configs: &Arc<Configs>,
        reasons: &ChangeReasons,
    ) -> Vec<NodeEvent> {
        let mut events = Vec::new();
        let before = self.configs.replace(configs.clone());
        let Some(before) = before.filter(|before| !Arc::ptr_eq(before, configs)) else { return events };
        for config in configs.iter() {
            let Some(earlier) = before.get(config.chain).filter(|earlier| earlier.epoch != config.epoch) else {
                continue;
            };
            let has_same_data = before.sessions_id() == configs.sessions_id();
            for (id, change) in changes(earlier, config, has_same_data) {
                let name = configs.node(id).or_else(|| before.node(id)).map(|node| node.name.clone());
                let node = EventNode { name: name.unwrap_or_else(|| id.node.to_string()), id };
                let (chain, is_this) = (config.chain, id.node == self.me.node);
                let removal = match change {
                    Change::Promoted => {
                        events.extend(self.allowed(now, chain, NodeEvent::Promoted { chain, node, is_this }));
                        continue;
                    }
                    Change::MovedOut => Removal { chain, node, is_this, report_by: now + REASON_TIMEOUT },
                };
                let reopened = is_reopened(earlier, config).then_some(MoveReason::Reopened);
                let why = reasons.take_removal(chain, id).or(reopened);
                match why.or_else(|| inferred(&self.nodes, id)) {
                    None if !is_this && self.removals.len() < MAX_REMOVALS => self.removals.push(removal),
                    why => events.extend(self.allowed(now, chain, removal.event(why))),
                }
            }
        }
        events
    }

    /// Handles the present state: whether this node serves, and why not.
    pub(crate) fn serving(&mut self, now: Timestamp, serves: bool, waiting_for: &[WaitingFor]) -> Option<NodeEvent> {
        if self.serves.is_none() && !serves {
            return None;
        }
        self.serves = Some(serves);
        let majority = waiting_for.iter().find_map(|reason| match reason {
            WaitingFor::Majority { away, voters } => Some((away.clone(), *voters)),
            _ => None,
        });
        let is_known = serves == self.shown_serves && (serves || majority.is_none() || self.shown_majority_lost);
        // An omitted change is reported when a token is available, if it still applies.
        if is_known || !self.serving.take(now) {
            return None;
        }
        self.shown_serves = serves;
        self.shown_majority_lost = majority.is_some();
        let has_no_lease = |reason: &WaitingFor| matches!(reason, WaitingFor::NoLease { .. });
        Some(match majority {
            _ if serves => NodeEvent::ServesAgain,
            Some((away, voters)) => NodeEvent::MajorityLost { away, voters },
            None if waiting_for.iter().any(has_no_lease) => NodeEvent::LeaseLost,
            None => NodeEvent::ServesNoLonger { waiting_for: waiting_for.to_vec() },
        })
    }

    /// Returns the event if the chain's allowance permits it; counts it as omitted otherwise.
    fn allowed(&mut self, now: Timestamp, chain: ChainId, event: NodeEvent) -> Option<NodeEvent> {
        let allowance = self.chains.entry(chain).or_default();
        if allowance.take(now) {
            return Some(event);
        }
        allowance.omit();
        None
    }

    /// Reports a removal whose reason has become known, or whose wait for a reason is over.
    fn explained_removal(&mut self, now: Timestamp) -> Option<NodeEvent> {
        let nodes = &self.nodes;
        let is_due = |removal: &Removal| removal.report_by <= now || inferred(nodes, removal.node.id).is_some();
        let removal = self.removals.iter().position(is_due).map(|at| self.removals.remove(at))?;
        let why = inferred(&self.nodes, removal.node.id);
        self.allowed(now, removal.chain, removal.event(why))
    }

    /// Reports a removal that had no reason yet, corrects an outdated report, or reports how many events were omitted.
    pub(crate) fn tick(&mut self, now: Timestamp) -> Option<NodeEvent> {
        if let Some(event) = self.explained_removal(now) {
            return Some(event);
        }
        let corrected = self.nodes.values_mut().find_map(|node| node.correct(now));
        corrected.or_else(|| {
            let count = self.chains.values_mut().find_map(|allowance| allowance.omitted(now))?;
            Some(NodeEvent::Omitted { count })
        })
    }
}

impl TrackedNode {
    fn new(member: &Member) -> Self {
        let (id, name) = (member.id, member.name.clone());
        Self { id, name, liveness: Liveness::Alive, shown_lost: false, allowance: Allowance::default() }
    }

    fn named(&self) -> EventNode {
        EventNode { name: self.name.clone(), id: self.id }
    }

    /// The event that brings the last report up to date, if one is allowed now.
    fn correct(&mut self, now: Timestamp) -> Option<NodeEvent> {
        let event = match self.liveness {
            Liveness::Down { since } if !self.shown_lost => {
                NodeEvent::MemberLost { node: self.named(), silent: since.map(|since| now - since) }
            }
            Liveness::Alive if self.shown_lost => NodeEvent::MemberFound { node: self.named() },
            _ => return None,
        };
        self.allowance.take(now).then(|| {
            self.shown_lost = !self.shown_lost;
            event
        })
    }
}

#[derive(Debug)]
struct Removal {
    chain: ChainId,
    node: EventNode,
    is_this: bool,
    report_by: Timestamp,
}

impl Removal {
    fn event(self, why: Option<MoveReason>) -> NodeEvent {
        NodeEvent::MovedOut { chain: self.chain, node: self.node, is_this: self.is_this, why }
    }
}

enum Change {
    MovedOut,
    Promoted,
}

/// The members that were moved out of a chain, and the promoted ones. A new serving member was promoted if it was a
/// joiner in the previous known configuration. After a gap of epochs, it may have been a joiner in between, so
/// `has_same_data` is enough.
fn changes(before: &ChainConfig, now: &ChainConfig, has_same_data: bool) -> Vec<(MemberId, Change)> {
    let serves = |of: &ChainConfig, id: MemberId| of.serving().any(|member| member.node == id.node);
    let gone = before.serving().filter(|&id| !serves(now, id)).map(|id| (id, Change::MovedOut));
    let has_gap = now.epoch.0.saturating_sub(before.epoch.0) > 1;
    let was_joiner = |id| before.role(id).is_some_and(|role| role != Role::Serving);
    let joined = |&id: &MemberId| !serves(before, id) && (was_joiner(id) || has_gap && has_same_data);
    gone.chain(now.serving().filter(joined).map(|id| (id, Change::Promoted))).collect()
}

/// Whether the chain was opened again: one of its serving members was not a member in the previous configuration.
fn is_reopened(before: &ChainConfig, now: &ChainConfig) -> bool {
    now.epoch.0 == before.epoch.0 + 1 && now.serving().any(|id| before.role(id).is_none())
}

/// The reason of a removal according to the membership, if it shows one.
fn inferred(nodes: &BTreeMap<NodeId, TrackedNode>, id: MemberId) -> Option<MoveReason> {
    let node = nodes.get(&id.node)?;
    match node.liveness {
        Liveness::Down { .. } | Liveness::Suspect { .. } => Some(MoveReason::Silent),
        Liveness::Left if node.id == id => Some(MoveReason::Left),
        Liveness::Left | Liveness::Alive => None,
    }
}
