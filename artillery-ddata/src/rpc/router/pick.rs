//! Picks the member for the next attempt.

use std::{
    hash::Hasher,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use siphasher::sip::SipHasher13;
use smallvec::SmallVec;

use super::Router;
use crate::{
    ChainConfig, Epoch, MemberId, Mode, NodeId, Place, Role, Routing,
    api::{ReadMode, Refusal},
    local::Here,
    message::request::Operation,
    rpc::channel::Question,
};

/// Which member serves a client's reads. In a chain of mode [`Classic`](Mode::Classic), strong and bounded reads go to
/// the tail in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Spread {
    /// The same member while it is reachable. Different clients may prefer different members.
    #[default]
    Sticky,
    /// Each member in turn.
    RoundRobin,
}

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(super) struct Attempts {
    count: u32,
    tried: SmallVec<[NodeId; 4]>,
    hint: Option<MemberId>,
    /// Whether the last refusal was due to load: then the routing isn't in doubt.
    busy: bool,
    unreached: SmallVec<[NodeId; 2]>,
}

impl Attempts {
    pub(super) fn is_first(&self) -> bool {
        self.count == 0
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Records a failed attempt at `asked`, and its refusal if there was one.
    pub(super) fn failed(&mut self, asked: Option<NodeId>, refusal: Option<Refusal>) {
        self.count += 1;
        self.tried.extend(asked);
        self.hint = match refusal {
            Some(Refusal::NotHead(member) | Refusal::NotTail(member)) => member,
            _ => None,
        };
        self.busy = matches!(refusal, Some(Refusal::Busy | Refusal::SessionFull));
    }

    pub(super) fn unreached(&mut self, node: NodeId) {
        if !self.unreached.contains(&node) {
            self.unreached.push(node);
        }
    }

    pub(super) fn next_pause(&self) -> Duration {
        // A refusal named the member to ask: retry there immediately, once. Stale hints must not loop.
        if self.hint.is_some() && self.count <= 1 {
            return Duration::ZERO;
        }
        (FIRST_PAUSE * (1 << self.count.min(10))).min(LONGEST_PAUSE)
    }

    pub(super) fn doubts_routing(&self) -> bool {
        !self.busy
    }
}

pub(super) enum Pick {
    Here(Here),
    /// Another node, by the configuration of `epoch`; `others`: whether other members could answer too. `answers`: the
    /// member that should answer, which differs from `member` if `member` forwards the request.
    There {
        member: MemberId,
        answers: MemberId,
        place: Place,
        epoch: Epoch,
        others: bool,
    },
    NoMember,
}

/// The order in which equally suitable members are asked.
pub(super) struct ReadOrder {
    me: NodeId,
    spread: Spread,
    turn: AtomicUsize,
}

impl ReadOrder {
    pub(super) fn new(me: NodeId, spread: Spread) -> Self {
        Self { me, spread, turn: AtomicUsize::new(0) }
    }

    fn sort(&self, members: &mut [MemberId]) {
        match self.spread {
            // Sort by a hash of both ids: clients differ in their order, and a change of the members doesn't reorder
            // the remaining ones.
            Spread::Sticky => {
                let hash = |member: &MemberId| {
                    let mut hasher = SipHasher13::new();
                    hasher.write(self.me.as_bytes());
                    hasher.write(member.node.as_bytes());
                    hasher.finish()
                };
                let mut hashed: SmallVec<[(u64, MemberId); 8]> = members.iter().map(|&id| (hash(&id), id)).collect();
                hashed.sort_unstable_by_key(|&(hash, _)| hash);
                members.iter_mut().zip(hashed).for_each(|(member, (_, id))| *member = id);
            }
            Spread::RoundRobin if !members.is_empty() => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                members.rotate_left(turn % members.len());
            }
            Spread::RoundRobin => {}
        }
    }
}

impl Router {
    pub(super) fn pick(&self, question: &Question, attempts: &Attempts) -> Pick {
        match self.known() {
            Some(routing) => self.pick_by(&routing, question, attempts),
            None => Pick::NoMember,
        }
    }

    pub(super) fn pick_by(&self, routing: &Routing, question: &Question, attempts: &Attempts) -> Pick {
        let Some(config) = routing.chain(question.chain) else { return Pick::NoMember };
        if let Some(member) = question.only {
            return self.pick_member(config, member, false);
        }
        let only = match &question.operation {
            Operation::Write { .. } => Some(config.head()),
            Operation::Read { mode: ReadMode::Strong | ReadMode::Bounded { .. }, .. }
                if config.mode == Mode::Classic =>
            {
                Some(config.tail())
            }
            _ => None,
        };
        match only {
            Some(member) => match attempts.hint.or(member) {
                Some(member) => match self.detour(config, member, question, attempts) {
                    Some(by) => Pick::There {
                        member: by,
                        answers: member,
                        place: config.place(by),
                        epoch: config.epoch,
                        others: false,
                    },
                    None => self.pick_member(config, member, false),
                },
                None => Pick::NoMember,
            },
            None => self.pick_reader(config, &question.operation, attempts),
        }
    }

    fn pick_reader(&self, config: &ChainConfig, operation: &Operation, attempts: &Attempts) -> Pick {
        let eventual = matches!(operation, Operation::Read { mode: ReadMode::Eventual, .. });
        let serves = |role| role == Role::Serving || (eventual && role == Role::Syncing);
        let here = self.local().map(|local| local.me);
        // A node that is a member first asks its own chain, which answers dirty reads, too.
        if let Some(here) = here.filter(|here| attempts.is_first() && config.role(*here).is_some_and(serves)) {
            let others = config.members.iter().any(|other| other.id != here && serves(other.role));
            return self.pick_member(config, here, others);
        }
        let serving = config.members.iter().filter(|m| serves(m.role)).map(|m| m.id);
        let mut members: SmallVec<[MemberId; 8]> = serving.collect();
        self.order.sort(&mut members);
        let peers = self.peers();
        let is_new = |member: &MemberId| !attempts.tried.contains(&member.node);
        let is_near = |member: &MemberId| Some(*member) == here || peers.is_connected(member.node);
        let others = members.len() > 1;
        // Connect to the preferred member without waiting, so that later reads find it connected.
        if let Some(right) = members.first()
            && Some(*right) != here
            && !peers.is_connected(right.node)
        {
            drop(self.channel(right.node));
        }
        let best = (members.iter().find(|member| Some(**member) == here && is_new(member)))
            .or_else(|| members.iter().find(|member| is_new(member) && is_near(member)))
            .or_else(|| members.iter().find(|member| is_new(member)))
            // All members were tried: start again.
            .or_else(|| members.get(attempts.tried.len() % members.len().max(1)));
        best.map_or(Pick::NoMember, |&member| self.pick_member(config, member, others))
    }

    /// The member that should forward a request for `to`, if `to` can't be reached from here: a firewall may admit only
    /// nodes to it. `None`: ask `to` itself. A request is forwarded once, so a forwarded one goes to `to`.
    fn detour(&self, config: &ChainConfig, to: MemberId, question: &Question, attempts: &Attempts) -> Option<MemberId> {
        let peers = self.peers();
        let is_unreached = |node: NodeId| peers.is_unreached(node) || attempts.unreached.contains(&node);
        let here = self.local().map(|local| local.me.node);
        if question.forwarded || here == Some(to.node) || peers.is_connected(to.node) || !is_unreached(to.node) {
            return None;
        }
        let members = config.members.iter().map(|member| member.id);
        let others = members.filter(|member| member.node != to.node && Some(member.node) != here);
        let mut others: SmallVec<[MemberId; 8]> = others.collect();
        self.order.sort(&mut others);
        let is_new = |member: &MemberId| !attempts.tried.contains(&member.node);
        let best = (others.iter().find(|member| is_new(member) && peers.is_connected(member.node)))
            .or_else(|| others.iter().find(|member| is_new(member) && !is_unreached(member.node)));
        match best {
            Some(&member) => Some(member),
            // Each was tried: start again, including `to` itself.
            None => others.get(attempts.tried.len() % (others.len() + 1)).copied(),
        }
    }

    fn pick_member(&self, config: &ChainConfig, member: MemberId, others: bool) -> Pick {
        match self.local() {
            Some(local) if local.me.node == member.node => local.here(config.chain).map_or(Pick::NoMember, Pick::Here),
            _ => {
                let place = config.place(member);
                Pick::There { member, answers: member, place, epoch: config.epoch, others }
            }
        }
    }
}
