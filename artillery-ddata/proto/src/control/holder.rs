//! The part of a node that asks for leases: whom, when, and what the answers come to. Sans-IO.
//!
//! A lease runs from the moment at which its renewal was *sent*, by this node's own clock (docs/DESIGN.md §6): whatever
//! delays the way there and back only makes it shorter.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    Founder,
    log::{Configs, LogIndex},
    message::{Leave, Promotion, Renewal, Renewed, Stage},
};
use crate::{MemberId, NodeId, Timestamp};

/// After so many renewals without an answer others are asked besides the leader: it may be gone, or its answers only take
/// long.
const PATIENCE: u32 = 2;

/// Renewals whose answers are still taken in.
const REMEMBERED: usize = 64;

/// What an answer came to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Learned {
    /// The lease of this node runs until then now: later than before.
    pub lease: Option<Timestamp>,
    /// When that lease was asked for: this node served then.
    pub asked: Timestamp,
    /// What the log comes to, newer than what was known.
    pub configs: Option<Arc<Configs>>,
    /// The log needs this node no more, which is about to leave.
    pub released: bool,
    /// A leader agrees to the change that this node wants to leave by: its chains are to act by no lease any more, and
    /// [`Holder::resign`] follows.
    pub resigns: bool,
    /// That change can't be made any more: this node serves again as soon as it gets a lease, and wants to leave as before.
    pub serves_again: bool,
}

/// Asks for leases.
#[derive(Debug)]
#[cfg_attr(feature = "mutants", derive(Clone))]
pub(crate) struct Holder {
    me: Founder,
    configs: Arc<Configs>,
    /// The last entry that all chains of this node act by.
    acted: LogIndex,
    leader: Option<MemberId>,
    /// Lives of nodes that seem to be there: suggestions of whom to ask.
    met: BTreeMap<NodeId, MemberId>,
    /// Renewals since the leader answered last.
    silent: u32,
    /// Who was asked last besides.
    probed: Option<MemberId>,
    /// Renewals that are due now.
    due: VecDeque<MemberId>,
    /// Nodes that are to be asked beside these, and since when.
    asks: VecDeque<MemberId>,
    asks_at: Timestamp,
    sent_at: Timestamp,
    number: u64,
    /// The highest number answered, and by whom: it means nothing to others.
    answered: Option<(MemberId, u64)>,
    sent: BTreeMap<u64, Timestamp>,
    next_at: Timestamp,
    until: Timestamp,
    leave: Leave,
    promotions: BTreeSet<Promotion>,
}

impl Holder {
    /// A node that knows this much of the log and has acted by it.
    pub(crate) fn new(me: Founder, configs: Arc<Configs>) -> Self {
        Self {
            me,
            acted: configs.applied(),
            configs,
            leader: None,
            met: BTreeMap::new(),
            silent: 0,
            probed: None,
            due: VecDeque::new(),
            asks: VecDeque::new(),
            asks_at: Timestamp::ZERO,
            sent_at: Timestamp::ZERO,
            number: 0,
            answered: None,
            sent: BTreeMap::new(),
            next_at: Timestamp::ZERO,
            until: Timestamp::ZERO,
            leave: Leave::default(),
            promotions: BTreeSet::new(),
        }
    }

    /// What the log comes to, as far as is known here.
    pub(crate) fn configs(&self) -> &Arc<Configs> {
        &self.configs
    }

    /// When [`renew`](Self::renew) has something to say next.
    pub(crate) fn next_tick(&self) -> Timestamp {
        if self.due.is_empty() { self.next_at } else { self.sent_at }
    }

    /// When [`next_ask`](Self::next_ask) has something to say next.
    pub(crate) fn ask_at(&self) -> Option<Timestamp> {
        (!self.asks.is_empty()).then_some(self.asks_at)
    }

    /// Takes in what the log comes to, from whatever node: what was applied anywhere is true. Whether it is news.
    pub(crate) fn learn(&mut self, configs: &Arc<Configs>) -> bool {
        let news = configs.applied() > self.configs.applied();
        if news {
            self.configs = configs.clone();
            let present = |wish: &Promotion| configs.get(wish.chain).is_some_and(|config| config.epoch == wish.epoch);
            self.promotions.retain(present);
        }
        news
    }

    /// All chains of this node act by the log up to here: whoever it expels has been refused since.
    pub(crate) fn acts_by(&mut self, now: Timestamp, applied: LogIndex) {
        if applied > self.acted {
            self.acted = applied;
            self.next_at = now;
        }
    }

    /// A node seems to be there, in this life.
    pub(crate) fn meets(&mut self, id: MemberId) {
        self.met.insert(id.node, id);
    }

    /// Somebody is said to lead, by those who keep the log. A new leader is asked at once: the lease that the one before
    /// it granted has run through an election already.
    pub(crate) fn leads(&mut self, now: Timestamp, leader: MemberId) {
        if self.leader != Some(leader) {
            self.leader = Some(leader);
            self.silent = 0;
            self.next_at = self.next_at.min(self.soon(now));
        }
    }

    /// By the cluster's lease, not by the one that this node was started with (trap 63).
    fn renew_every(&self) -> Duration {
        self.configs.timing().renew()
    }

    /// The next renewal that comes before its time.
    fn soon(&self, now: Timestamp) -> Timestamp {
        now.max(self.sent_at + self.renew_every() / 4)
    }

    /// A chain of this node asks for a promotion as its tail.
    pub(crate) fn promote(&mut self, now: Timestamp, wish: Promotion) {
        if self.promotions.insert(wish) {
            self.next_at = now;
        }
    }

    /// Asks these nodes too, as soon as there is room: whether they are there.
    pub(crate) fn ask(&mut self, now: Timestamp, nodes: impl IntoIterator<Item = MemberId>) {
        for id in nodes {
            if id != self.me.id && !self.asks.contains(&id) {
                self.asks.push_back(id);
            }
        }
        self.asks_at = now;
    }

    /// The next node that is to be asked, once the renewals that are due have been sent.
    pub(crate) fn next_ask(&mut self, now: Timestamp) -> Option<(MemberId, Renewal)> {
        let to = self.asks.pop_front()?;
        Some((to, self.renewal(now, to)))
    }

    /// When that renewal of this node was sent; `None`: too long ago to count.
    pub(crate) fn sent(&self, number: u64) -> Option<Timestamp> {
        self.sent.get(&number).copied()
    }

    /// Somebody waits for what the next renewal says: it is due now.
    pub(crate) fn hurry(&mut self, now: Timestamp) {
        self.next_at = now;
    }

    /// Whether this node wants to leave, and how far that has come.
    pub(crate) fn leaves(&self) -> Leave {
        self.leave
    }

    /// Asks with the next renewal, which is due now, to leave. It serves on until a leader agrees.
    pub(crate) fn leave(&mut self, now: Timestamp) {
        if !self.leave.is_asked() {
            self.leave.stage = Stage::Asks;
            self.next_at = now;
        }
    }

    /// Says with the next renewal, which is due now, that this node serves nothing any more, as a leader has agreed. Its
    /// chains act by no lease any more.
    pub(crate) fn resign(&mut self, now: Timestamp) {
        if self.leave.is_asked() {
            self.leave = self.leave.resigned();
            self.until = Timestamp::ZERO;
            self.next_at = now;
        }
    }

    /// Wants to leave no more, and serves again if it has resigned.
    pub(crate) fn stay(&mut self, now: Timestamp) {
        if self.leave.is_asked() {
            self.take_back(now, self.leave.back(Stage::Stays));
        }
    }

    /// A lease that was asked for before this may be one that a leader no longer reckons with: the removal of this node may
    /// be decided by what it said until now (trap 62). So no answer to an earlier renewal counts.
    fn take_back(&mut self, now: Timestamp, leave: Leave) {
        self.leave = leave;
        self.sent.clear();
        self.until = Timestamp::ZERO;
        self.next_at = now;
    }

    /// A renewal that is due, and to whom; to be called until there is none.
    pub(crate) fn renew(&mut self, now: Timestamp) -> Option<(MemberId, Renewal)> {
        if self.due.is_empty() && now >= self.next_at {
            self.next_at = now + self.renew_every();
            self.sent_at = now;
            self.choose();
        }
        let to = self.due.pop_front()?;
        Some((to, self.renewal(now, to)))
    }

    fn renewal(&mut self, now: Timestamp, to: MemberId) -> Renewal {
        self.number += 1;
        self.sent.insert(self.number, now);
        while self.sent.len() > REMEMBERED {
            self.sent.pop_first();
        }
        let answered = self.answered.filter(|&(by, _)| by == to).map_or(0, |(_, number)| number);
        Renewal {
            number: self.number,
            answered,
            me: self.me.clone(),
            applied: self.acted,
            leave: self.leave,
            promotions: self.promotions.iter().copied().collect(),
            reports: Vec::new(),
        }
    }

    /// The leader, until somebody names another one; and when it is slow or unknown, one node after the other.
    ///
    /// However long a leader doesn't answer, it goes on being asked: if it lives, it hears by this alone that this node
    /// does, and would remove it otherwise.
    fn choose(&mut self) {
        self.silent = self.silent.saturating_add(1);
        self.due.extend(self.leader);
        if self.leader.is_none() || self.silent > PATIENCE {
            self.probed = self.next_probe();
            self.due.extend(self.probed.filter(|&id| Some(id) != self.leader));
        }
    }

    fn next_probe(&self) -> Option<MemberId> {
        let known = self.configs.nodes().map(|founder| founder.id);
        let known = known.filter(|id| !self.met.contains_key(&id.node));
        let all: BTreeSet<_> = known.chain(self.met.values().copied()).chain([self.me.id]).collect();
        let next = all.iter().find(|&&id| self.probed.is_none_or(|last| id > last));
        next.or_else(|| all.first()).copied()
    }

    /// Takes in an answer.
    pub(crate) fn answered(&mut self, now: Timestamp, from: MemberId, renewed: Renewed) -> Learned {
        let Some(&sent) = self.sent.get(&renewed.number) else { return Learned::default() };
        let is_led = self.leader.is_some_and(|leader| leader != from) && self.silent <= 1;
        match renewed.leader {
            Some(leader) if leader == from => {
                self.leader = Some(from);
                self.silent = 0;
            }
            // Somebody else is to be asked, soon: it may be told the same of us or of another one.
            // While its leader answers, what others say may be of before it led.
            Some(_) if is_led => {}
            Some(leader) if self.leader != Some(leader) => {
                self.leader = Some(leader);
                self.silent = 0;
                self.next_at = self.next_at.min(self.soon(now));
            }
            Some(_) => {}
            None if self.leader == Some(from) => {
                self.leader = None;
                self.next_at = self.next_at.min(self.soon(now));
            }
            None => {}
        }
        let is_newer = self
            .answered
            .is_none_or(|(by, number)| if by == from { number < renewed.number } else { self.leader != Some(by) });
        if is_newer {
            self.answered = Some((from, renewed.number));
        }
        let mut learned = Learned { released: renewed.released && self.leave.is_asked(), ..Learned::default() };
        if let Some(configs) = renewed.configs {
            let configs = Arc::<Configs>::from(configs);
            if self.learn(&configs) {
                learned.configs = Some(configs);
            }
        }
        match renewed.leave {
            Some(next) if self.leave.stage == Stage::Asks && next == self.leave.resigned() => learned.resigns = true,
            Some(next) if self.leave.has_resigned() && next == self.leave.back(Stage::Asks) => {
                self.take_back(now, next);
                learned.serves_again = true;
            }
            _ => {}
        }
        if let Some(lease) = renewed.lease
            && !self.leave.has_resigned()
            && !learned.resigns
            && !learned.serves_again
            && sent + lease > self.until
        {
            self.until = sent + lease;
            learned.lease = Some(self.until);
            learned.asked = sent;
        }
        learned
    }
}

#[cfg(feature = "mutants")]
impl Holder {
    /// Test-only: writes down all that its conduct depends on, but for what the entries say that it
    /// knows of: two holders that write the same and share a log go on in the same way.
    ///
    /// # Errors
    /// What `out` fails with.
    pub(crate) fn describe(&self, out: &mut dyn std::fmt::Write) -> std::fmt::Result {
        // Names every field: a new one that is forgotten here doesn't compile.
        let Self {
            me,
            configs,
            acted,
            leader,
            met,
            silent,
            probed,
            due,
            asks,
            asks_at: _,
            sent_at,
            number,
            answered,
            sent,
            next_at,
            until,
            leave,
            promotions,
        } = self;
        write!(out, "{:?}", (me.id, configs.applied(), acted, leader, met, silent, probed, due, sent_at))?;
        write!(out, "{:?}", (number, answered, sent, next_at, until, leave, promotions, asks))
    }
}

#[cfg(test)]
mod tests;
