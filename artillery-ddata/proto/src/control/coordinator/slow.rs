//! Gray failures: members that live and yet hold their chain up (docs/DESIGN.md §5.9, docs/adr/0017-slow-members.md).
//!
//! Two kinds of them. A hop is *dead* when what one member has held, or opened, for long doesn't get to the next one,
//! and that one doesn't come on at all. A chain is *slow* when its head has for long committed clearly less than before,
//! though something was under way all the time; then whoever stands between two slow ways is to blame, if exactly one
//! does: on a machine on which all are equally slow nobody is.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use super::{Coordinator, Seen, Settings, Why, plan::View};
use crate::{
    ChainConfig, ChainId, Epoch, MemberId, NodeId, Sequence, Timestamp,
    control::{
        log::Configs,
        message::{Report, Way},
    },
};

/// Two broken hops within so many times `slow` have one cause.
const SOON: u32 = 4;
/// Away for so many times `slow` at first; each time that it holds the chain up again soon afterwards, twice as long.
const AWAY: u32 = 5;
/// Never longer than so many times the first time: meanwhile its chain has one copy less than it is to have.
const LONGEST: u32 = 4;
/// Who behaved for so many times as long as it was away is trusted as if it had never been.
const TRUSTED: u32 = 4;
/// A way that takes less than this part of `slow` is no slow one.
const QUICK: u32 = 40;
/// A slow way takes so many times as long as usual.
const UNUSUAL: u32 = 8;
/// Where all other ways are as usual, one that takes so many times as long as usual is slow
const FAR: u32 = 32;
/// unless it takes less than this part of `slow`.
const NEAR: u32 = 200;
/// And no less than this part of what the slowest one takes.
const AS_SLOW: u32 = 4;
/// It stands between the same ones for this part of `slow`: queues grow for a while until they tell where.
const STEADY: u32 = 2;

/// What a member said last of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) report: Report,
    /// When it said something new last.
    moved: Timestamp,
    /// When it said first that this epoch is open.
    opened: Timestamp,
}

/// One chain in one epoch.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    epoch: Epoch,
    /// Who is to be moved out.
    pub(super) blame: Option<Blame>,
    /// Who stands between slow ways, all the time since then.
    suspect: Option<(MemberId, Timestamp)>,
    /// The ends of the hop for which somebody was moved out last, and when.
    ends: Option<([MemberId; 2], Timestamp)>,
}

/// Who is to be moved out, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Blame {
    pub(super) member: MemberId,
    pub(super) why: Why,
    /// The hop that is broken, if one is.
    ends: Option<[MemberId; 2]>,
    since: Timestamp,
}

/// A node that was moved out as unreached or slow: nothing that it says shows that it is well again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outside {
    since: Timestamp,
    until: Timestamp,
    away: Duration,
    /// It can come back before, behind anybody but this one.
    apart: Option<MemberId>,
}

impl Outside {
    #[cfg(test)]
    pub(super) fn for_a_test(until: Timestamp) -> Self {
        Self { since: Timestamp::ZERO, until, away: Duration::ZERO, apart: None }
    }

    /// Whether it may follow `tail` now.
    pub(super) fn may_return(&self, now: Timestamp, tail: Option<MemberId>) -> bool {
        now >= self.until || self.apart.is_some_and(|other| Some(other) != tail)
    }

    fn again(
        entry: Entry<'_, NodeId, Self>,
        now: Timestamp,
        settings: &Settings,
        apart: Option<MemberId>,
        longest: u32,
    ) {
        let first = settings.slow * AWAY;
        let soon = match &entry {
            Entry::Occupied(known) => Some(*known.get()).filter(|known| now - known.since < known.away * TRUSTED),
            Entry::Vacant(_) => None,
        };
        let away = soon.map_or(first, |known| (known.away * 2).min(first * longest));
        let apart = apart.filter(|_| soon.is_none());
        entry.insert_entry(Self { since: now, until: now + away, away, apart });
    }
}

impl Seen {
    /// Takes in what it says of its chains.
    pub(super) fn reports(&mut self, now: Timestamp, reports: Vec<Report>) {
        let before = std::mem::take(&mut self.told);
        let state = |report: &Report| (report.epoch, report.open, report.held, report.watermark);
        for report in reports {
            let known = before.get(&report.chain);
            let moved = known.filter(|told| state(&told.report) == state(&report)).map_or(now, |told| told.moved);
            let same = |told: &&Told| told.report.epoch == report.epoch && told.report.open && report.open;
            let opened = known.filter(same).map_or(now, |told| told.opened);
            self.told.insert(report.chain, Told { report, moved, opened });
        }
    }
}

impl Coordinator {
    /// The nodes that held up a chain and aren't to come back behind `tail` yet (docs/DESIGN.md §5.9).
    pub(crate) fn kept_away(&self, now: Timestamp, tail: Option<MemberId>) -> impl Iterator<Item = NodeId> + '_ {
        let away = self.outside.iter().filter(move |(_, outside)| !outside.may_return(now, tail));
        away.map(|(&node, _)| node)
    }

    /// Looks for who holds up a chain.
    pub(super) fn judge(&mut self, now: Timestamp) {
        let Some(leading) = &mut self.leading else { return };
        let longest = if allows!(self.settings.guards, KeepAwayForLong) { LONGEST * 16 } else { LONGEST };
        let mut watched = std::mem::take(&mut leading.watched);
        watched.retain(|&chain, _| self.configs.get(chain).is_some());
        for config in self.configs.iter() {
            let new = || Watched { epoch: config.epoch, blame: None, suspect: None, ends: None };
            let chain = watched.entry(config.chain).or_insert_with(new);
            if chain.epoch != config.epoch {
                (chain.epoch, chain.suspect) = (config.epoch, None);
                if let Some(blame) = chain.blame.take().filter(|blame| config.role(blame.member).is_none()) {
                    chain.ends = blame.ends.map(|ends| (ends, now));
                    let apart = blame.ends.and_then(|ends| ends.into_iter().find(|&end| end != blame.member));
                    // What a deaf or a halted node says shows by itself whether it is well again.
                    if !matches!(blame.why, Why::Deaf | Why::Halted) {
                        Outside::again(self.outside.entry(blame.member.node), now, &self.settings, apart, longest);
                    }
                }
            }
            let view = leading.view(now, self.me, &self.settings, &self.outside);
            let known = chain.suspect;
            let same = |id: &MemberId| known.filter(|(suspect, _)| suspect == id).map_or(now, |(_, since)| since);
            chain.suspect = view.between_slow_ways(config).map(|id| (id, same(&id)));
            let found = view.blame(&self.configs, config, chain.ends, chain.suspect);
            let keeps = now - chain.blame.map_or(Timestamp::ZERO, |blame| blame.since) < self.settings.lease * 2;
            let kept = chain.blame.filter(|before| {
                let same = found.is_some_and(|found| (found.member, found.why) == (before.member, before.why));
                same || (before.why == Why::Slow && keeps)
            });
            chain.blame = kept.or(found);
        }
        leading.watched = watched;
    }
}

/// The ways from each member to the next one, and from the tail back to the head: how long they take now, and as a rule.
struct Ring(Vec<(Duration, Duration)>);

impl Ring {
    fn of(reports: &[&Report]) -> Option<Self> {
        let (head, hops) = (reports.first()?, reports.split_last()?.1);
        // There and back; of the watermark's way only one half is anybody's.
        let mut ways: Vec<_> = hops.iter().map(|report| (report.hop.takes() / 2, report.hop.usual / 2)).collect();
        let (there, usual) = ways.iter().fold((Duration::ZERO, Duration::ZERO), |(a, b), way| (a + way.0, b + way.1));
        ways.push((head.commit.takes().saturating_sub(there), head.commit.usual.saturating_sub(usual)));
        Some(Self(ways))
    }

    /// Which of them are slow.
    fn slow(&self, slow: Duration) -> Vec<bool> {
        let slowest = self.0.iter().map(|&(takes, _)| takes).max().unwrap_or_default();
        let stands_out = |&(takes, usual): &(Duration, Duration), times: u32, part: u32| {
            takes >= usual * times && takes * part * 2 >= slow && takes * AS_SLOW >= slowest
        };
        let far: Vec<bool> = self.0.iter().map(|way| stands_out(way, FAR, NEAR)).collect();
        let usual = |&(takes, usual): &(Duration, Duration)| takes < usual * UNUSUAL;
        if self.0.iter().zip(&far).all(|(way, &far)| far || usual(way)) {
            return far;
        }
        self.0.iter().map(|way| stands_out(way, UNUSUAL, QUICK)).collect()
    }
}

impl View<'_> {
    fn told(&self, config: &ChainConfig, id: MemberId) -> Option<&Told> {
        self.nodes.get(&id).filter(|_| !self.is_gone(id)).and_then(|seen| seen.told.get(&config.chain))
    }

    /// Who is to be moved out of a chain; never the only one of it that lives.
    fn blame(
        &self,
        configs: &Configs,
        config: &ChainConfig,
        ends: Option<([MemberId; 2], Timestamp)>,
        suspect: Option<(MemberId, Timestamp)>,
    ) -> Option<Blame> {
        let serving: Vec<MemberId> = config.serving().collect();
        if serving.iter().any(|&id| self.is_gone(id)) {
            // First things first.
            return None;
        }
        let found = self
            .halted(config)
            .or_else(|| self.deaf(&serving))
            .or_else(|| {
                self.dead_hop(config, &serving, ends).filter(|_| !allows!(self.settings.guards, TolerateDeadHop))
            })
            .or_else(|| self.dead_joiner(config).filter(|_| !allows!(self.settings.guards, TolerateDeadJoiner)))
            .or_else(|| {
                self.unheard_joiner(configs, config).filter(|_| !allows!(self.settings.guards, TolerateUnheardJoiner))
            })
            .or_else(|| {
                self.slow_member(config, &serving, suspect).filter(|_| !allows!(self.settings.guards, TolerateSlow))
            })?;
        let others = serving.iter().any(|&id| id != found.member && self.lived(id));
        others.then_some(found)
    }

    fn is_long(&self, since: Timestamp) -> bool {
        self.now - since.max(self.since) >= self.settings.slow
    }

    fn guilty(&self, member: MemberId, why: Why, ends: Option<[MemberId; 2]>) -> Blame {
        Blame { member, why, ends, since: self.now }
    }

    /// A member that is heard and hears nothing: it has no lease, and never will. It shows none of the answers that it was given
    /// for so long. A leader that no quorum confirms gives no answers, and can't tell.
    fn deaf(&self, serving: &[MemberId]) -> Option<Blame> {
        let deaf = |id: &MemberId| {
            *id != self.me && self.nodes.get(id).and_then(|seen| seen.unshown).is_some_and(|since| self.is_long(since))
        };
        serving.iter().copied().find(deaf).map(|id| self.guilty(id, Why::Deaf, None))
    }

    /// Whether it has shown that it hears, as none does that is about to be moved out for being deaf.
    pub(super) fn hears(&self, id: MemberId) -> bool {
        let shows = |seen: &Seen| seen.proven > Timestamp::ZERO && self.now - seen.proven < self.settings.slow;
        id == self.me || self.nodes.get(&id).is_some_and(shows) || allows!(self.settings.guards, TakeDeaf)
    }

    /// Whether it has yet to show whether it hears.
    pub(super) fn is_new(&self, id: MemberId) -> bool {
        let new = |seen: &Seen| seen.proven == Timestamp::ZERO && self.now - seen.first < self.settings.slow;
        !self.hears(id) && self.nodes.get(&id).is_some_and(new)
    }

    /// What one member has had for long doesn't get to the next one, and that one doesn't come on at all.
    fn dead_hop(
        &self,
        config: &ChainConfig,
        serving: &[MemberId],
        last: Option<([MemberId; 2], Timestamp)>,
    ) -> Option<Blame> {
        let lacks = |from: MemberId, to: MemberId| {
            let (before, behind) = (self.told(config, from)?, self.told(config, to)?);
            let open = |told: &Told| told.report.epoch == config.epoch && told.report.open;
            let unopened = open(before) && self.is_long(before.opened) && !open(behind);
            // What it waits for may have got there, and the word of it be lost: what came behind hasn't.
            let waits = self.waits_long(&before.report.hop).is_some();
            let unsent = open(before) && waits && behind.report.held < before.report.held;
            Some((unopened || unsent) && self.is_long(behind.moved))
        };
        let hop = serving.windows(2).find(|hop| lacks(hop[0], hop[1]) == Some(true))?;
        let (from, to) = (hop[0], hop[1]);
        // Who stands at the end of one broken hop after the other is no innocent neighbour.
        let soon = last.filter(|(_, at)| self.now - *at < self.settings.slow * SOON);
        let again = |id: MemberId| soon.is_some_and(|(ends, _)| ends.contains(&id));
        let member = if again(from) && !again(to) { from } else { to };
        Some(self.guilty(member, Why::Unreached, Some([from, to])))
    }

    fn waits_long(&self, way: &Way) -> Option<Sequence> {
        way.waits.filter(|&(_, age)| age >= self.settings.slow).map(|(at, _)| at)
    }

    /// A tail that waits for a joiner to hold what it is to commit, for too long.
    fn dead_joiner(&self, config: &ChainConfig) -> Option<Blame> {
        let (tail, joiner) = (config.tail()?, config.syncing()?);
        let report = &self.told(config, tail).filter(|told| told.report.epoch == config.epoch)?.report;
        let waits = report.open && self.waits_long(&report.commit).is_some() && self.waits_long(&report.hop).is_some();
        waits.then(|| self.guilty(joiner, Why::Unreached, Some([tail, joiner])))
    }

    /// A joiner that its tail has not heard for long, while another node could have its place.
    fn unheard_joiner(&self, configs: &Configs, config: &ChainConfig) -> Option<Blame> {
        let (tail, joiner) = (config.tail()?, config.syncing()?);
        let report = &self.told(config, tail).filter(|told| told.report.epoch == config.epoch)?.report;
        let replaced = || self.spare(configs, config, Some(tail)).is_some();
        (report.unheard >= self.settings.slow && replaced())
            .then(|| self.guilty(joiner, Why::Unreached, Some([tail, joiner])))
    }

    /// Whether it stopped serving a chain for good, in this life.
    pub(super) fn has_halted(&self, chain: ChainId, id: MemberId) -> bool {
        let told = self.nodes.get(&id).and_then(|seen| seen.told.get(&chain));
        told.is_some_and(|told| told.report.halted) && !allows!(self.settings.guards, KeepHalted)
    }

    /// A member, or the joiner, that stopped serving for good.
    fn halted(&self, config: &ChainConfig) -> Option<Blame> {
        let mut members = config.members.iter().map(|member| member.id);
        members.find(|&id| self.has_halted(config.chain, id)).map(|id| self.guilty(id, Why::Halted, None))
    }

    /// The member that makes the chain slow, and has for long.
    fn slow_member(
        &self,
        config: &ChainConfig,
        serving: &[MemberId],
        suspect: Option<(MemberId, Timestamp)>,
    ) -> Option<Blame> {
        let (member, since) = suspect?;
        let head = &self.told(config, *serving.first()?)?.report;
        // Where nothing moves any more something is broken.
        let moves = self.now - self.told(config, *serving.last()?)?.moved < self.settings.slow / 2;
        // Ways may be long for a moment, by chance, while the chain is slow for another reason.
        let long = head.slowed >= self.settings.slow && self.now - since >= self.settings.slow / STEADY;
        (long && moves).then(|| self.guilty(member, Why::Slow, None))
    }

    /// The member of a chain which is slowed the ways to both sides of which are slow, and of no other member. The way
    /// back from the tail to the head closes the ring.
    fn between_slow_ways(&self, config: &ChainConfig) -> Option<MemberId> {
        let serving: Vec<MemberId> = config.serving().collect();
        if serving.len() < 3 {
            // Of two nobody can say which.
            return None;
        }
        let told: Vec<&Told> = serving.iter().map(|&id| self.told(config, id)).collect::<Option<_>>()?;
        let reports: Vec<&Report> = told.iter().map(|told| &told.report).collect();
        let slowed = reports.first().is_some_and(|head| head.slowed > Duration::ZERO);
        if !slowed || reports.iter().any(|report| report.epoch != config.epoch) {
            return None;
        }
        let ways = Ring::of(&reports)?;
        let slow = ways.slow(self.settings.slow);
        let count = serving.len();
        let mut between = (0..count).filter(|&at| slow[at] && slow[(at + count - 1) % count]);
        match (between.next(), between.next()) {
            (Some(at), None) => Some(serving[at]),
            (Some(_), Some(_)) => None,
            (None, _) => {
                let at = (0..count).find(|&at| slow[at])?;
                Some(serving[(at + 1).min(count - 1)])
            }
        }
    }

    /// Whether this member is to be moved out of this chain.
    pub(super) fn is_blamed(&self, config: &ChainConfig, id: MemberId) -> Option<Why> {
        let blame = self.watched.get(&config.chain)?.blame?;
        (blame.member == id).then_some(blame.why)
    }
}

/// Those who are to be moved out of what they serve in.
pub(super) fn blamed(watched: &BTreeMap<crate::ChainId, Watched>) -> impl Iterator<Item = MemberId> + '_ {
    watched.values().filter_map(|chain| chain.blame).map(|blame| blame.member)
}
