//! Gray failures: living members that stall their chain (docs/DESIGN.md §5.9, docs/adr/0017-slow-members.md).
//!
//! There are two kinds. A hop is *dead* when an update, or the opening, that one member has had for long doesn't reach
//! its successor, and the successor makes no progress at all. A chain is *slow* when its head has for long committed
//! clearly less than before, although updates were always in flight. Then the member between two slow paths is to
//! blame, if there is exactly one. On a machine that slows all members alike there is none.
//!
//! A durable chain waits for the slowest disk of its members, which no path delay identifies. So each member reports
//! the delay of its own disk. A disk that alone is slow, or that has stopped completing writes, is itself the cause.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Coordinator,
    known_node::KnownNode,
    reason::Why,
    suspicion::{LastReport, Quarantine, Suspicion, Watched},
    view::View,
};
use crate::{
    ChainConfig, ChainId, MemberId, NodeId, Sequence, Timestamp,
    control::{
        log::Configs,
        message::{PathDelay, Report},
    },
};

/// Two broken hops within this many times `slow` have one cause.
const SAME_CAUSE_FACTOR: u32 = 4;
/// The longest quarantine, as a multiple of the first: the chain has one copy less during it (trap 49).
const MAX_QUARANTINE_FACTOR: u32 = 4;
/// A path with a delay below `slow / (2 * QUICK_DIVISOR)` is not slow: an eightieth.
const QUICK_DIVISOR: u32 = 40;
/// A slow path has at least this many times its usual delay.
const SLOW_FACTOR: u32 = 8;
/// Replaces [`SLOW_FACTOR`] if every other path has its usual delay.
const LONE_SLOW_FACTOR: u32 = 32;
/// Replaces [`QUICK_DIVISOR`] if every other path has its usual delay: a four-hundredth of `slow`.
const LONE_MIN_DELAY_DIVISOR: u32 = 200;
/// A slow path has at least this fraction of the slowest path's delay.
const SLOWEST_DIVISOR: u32 = 4;
/// A disk is blamed only if its delay is at least this fraction of a commit's.
const DISK_SHARE_DIVISOR: u32 = 2;
/// A suspect must have been between slow paths for this fraction of `slow`: queues need time to grow before they show
/// the cause.
const SUSPECT_DIVISOR: u32 = 2;

impl KnownNode {
    pub(super) fn reports(&mut self, now: Timestamp, reports: Vec<Report>) {
        let before = std::mem::take(&mut self.told);
        let state = |report: &Report| (report.epoch, report.open, report.held, report.watermark);
        for report in reports {
            let known = before.get(&report.chain);
            let moved = known.filter(|told| state(&told.report) == state(&report)).map_or(now, |told| told.moved);
            let same = |told: &&LastReport| told.report.epoch == report.epoch && told.report.open && report.open;
            let opened = known.filter(same).map_or(now, |told| told.opened);
            self.told.insert(report.chain, LastReport { report, moved, opened });
        }
    }
}

impl Coordinator {
    /// The quarantined nodes: they stalled a chain, and may not return behind `tail` yet (docs/DESIGN.md §5.9).
    pub(crate) fn kept_away(&self, now: Timestamp, tail: Option<MemberId>) -> impl Iterator<Item = NodeId> + '_ {
        let away = self.outside.iter().filter(move |(_, outside)| !outside.may_return(now, tail));
        away.map(|(&node, _)| node)
    }

    pub(super) fn judge(&mut self, now: Timestamp) {
        let Some(leading) = &mut self.leading else { return };
        let longest = if allows!(self.settings.guards, KeepAwayForLong) {
            MAX_QUARANTINE_FACTOR * 16
        } else {
            MAX_QUARANTINE_FACTOR
        };
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
                    // The reports of a deaf or a halted node show by themselves whether it has recovered.
                    if !matches!(blame.why, Why::Deaf | Why::Halted) {
                        Quarantine::again(self.outside.entry(blame.member.node), now, &self.settings, apart, longest);
                    }
                }
            }
            let view = leading.view(now, self.me, &self.voters, &self.settings, &self.outside);
            let known = chain.suspect;
            let same =
                |found: &SlowSuspect| known.filter(|(before, _)| before == found).map_or(now, |(_, since)| since);
            chain.suspect = view.slow_suspect(config).map(|suspect| (suspect, same(&suspect)));
            let found = view.blame(&self.configs, config, chain.ends, chain.suspect);
            let keeps = now - chain.blame.map_or(Timestamp::ZERO, |blame| blame.since) < self.settings.lease * 2;
            let kept = chain.blame.filter(|before| {
                let same = found.is_some_and(|found| (found.member, found.why) == (before.member, before.why));
                same || (matches!(before.why, Why::Slow | Why::Disk) && keeps)
            });
            chain.blame = kept.or(found);
        }
        leading.watched = watched;
    }
}

pub(super) type SlowSuspect = (MemberId, Why);

/// The paths from each member to its successor, and from the tail back to the head: the current and the usual delay of
/// each.
struct PathRing(Vec<(Duration, Duration)>);

impl PathRing {
    fn of(reports: &[&Report], without_disks: bool) -> Option<Self> {
        let (head, hops) = (reports.first()?, reports.split_last()?.1);
        // A hop is measured as a round trip: its half is the path. A commit waits for the slowest disk. The rest of its
        // time is the path from tail to head.
        let mut ways: Vec<_> = hops.iter().map(|report| (report.hop.takes() / 2, report.hop.usual / 2)).collect();
        let slowest = |time: fn(&PathDelay) -> Duration| reports.iter().map(|report| time(&report.disk)).max();
        let disk = (slowest(PathDelay::takes).unwrap_or_default(), slowest(|disk| disk.usual).unwrap_or_default());
        let disk = if without_disks { disk } else { Default::default() };
        let (there, usual) = ways.iter().fold(disk, |(a, b), way| (a.saturating_add(way.0), b.saturating_add(way.1)));
        ways.push((head.commit.takes().saturating_sub(there), head.commit.usual.saturating_sub(usual)));
        Some(Self(ways))
    }

    /// The disks of the members in place of paths.
    fn of_disks(reports: &[&Report]) -> Self {
        Self(reports.iter().map(|report| (report.disk.takes(), report.disk.usual)).collect())
    }

    fn slow(&self, slow: Duration) -> Vec<bool> {
        let slowest = self.0.iter().map(|&(takes, _)| takes).max().unwrap_or_default();
        let stands_out = |&(takes, usual): &(Duration, Duration), times: u32, part: u32| {
            takes >= usual.saturating_mul(times)
                && takes.saturating_mul(part * 2) >= slow
                && takes.saturating_mul(SLOWEST_DIVISOR) >= slowest
        };
        let far: Vec<bool> =
            self.0.iter().map(|way| stands_out(way, LONE_SLOW_FACTOR, LONE_MIN_DELAY_DIVISOR)).collect();
        let usual = |&(takes, usual): &(Duration, Duration)| takes < usual.saturating_mul(SLOW_FACTOR);
        if self.0.iter().zip(&far).all(|(way, &far)| far || usual(way)) {
            return far;
        }
        self.0.iter().map(|way| stands_out(way, SLOW_FACTOR, QUICK_DIVISOR)).collect()
    }
}

impl View<'_> {
    fn told(&self, config: &ChainConfig, id: MemberId) -> Option<&LastReport> {
        self.nodes.get(&id).filter(|_| !self.is_gone(id)).and_then(|seen| seen.told.get(&config.chain))
    }

    /// The member that should be moved out of a chain; never its only living one.
    fn blame(
        &self,
        configs: &Configs,
        config: &ChainConfig,
        ends: Option<([MemberId; 2], Timestamp)>,
        suspect: Option<(SlowSuspect, Timestamp)>,
    ) -> Option<Suspicion> {
        let serving: Vec<MemberId> = config.serving().collect();
        if serving.iter().any(|&id| self.is_gone(id)) {
            // A dead member is removed first: its neighbours look broken too.
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
            .or_else(|| self.stuck_disk(config, &serving).filter(|_| !allows!(self.settings.guards, TolerateSlowDisk)))
            .or_else(|| {
                self.slow_member(config, &serving, suspect).filter(|_| !allows!(self.settings.guards, TolerateSlow))
            })?;
        let others = serving.iter().any(|&id| id != found.member && self.lived(id));
        others.then_some(found)
    }

    fn is_long(&self, since: Timestamp) -> bool {
        self.now - since.max(self.since) >= self.settings.slow
    }

    fn guilty(&self, member: MemberId, why: Why, ends: Option<[MemberId; 2]>) -> Suspicion {
        Suspicion { member, why, ends, since: self.now }
    }

    /// A member whose messages arrive but that receives none, so it never gets a lease: for `slow` it has shown none of
    /// this leader's answers. A leader without a confirming quorum gives no answers, and finds no deaf member.
    fn deaf(&self, serving: &[MemberId]) -> Option<Suspicion> {
        let deaf = |id: &MemberId| {
            *id != self.me && self.nodes.get(id).and_then(|seen| seen.unshown).is_some_and(|since| self.is_long(since))
        };
        serving.iter().copied().find(deaf).map(|id| self.guilty(id, Why::Deaf, None))
    }

    /// Whether the node has recently shown an answer of this leader. A member that is about to be moved out as deaf has
    /// not.
    pub(super) fn hears(&self, id: MemberId) -> bool {
        let shows = |seen: &KnownNode| seen.proven > Timestamp::ZERO && self.now - seen.proven < self.settings.slow;
        id == self.me || self.nodes.get(&id).is_some_and(shows) || allows!(self.settings.guards, TakeDeaf)
    }

    /// Whether the node is so new that it may still show its first answer.
    pub(super) fn is_new(&self, id: MemberId) -> bool {
        let new = |seen: &KnownNode| seen.proven == Timestamp::ZERO && self.now - seen.first < self.settings.slow;
        !self.hears(id) && self.nodes.get(&id).is_some_and(new)
    }

    /// The end to blame for a dead hop: data that one member has had for long doesn't reach its successor, which makes
    /// no progress.
    fn dead_hop(
        &self,
        config: &ChainConfig,
        serving: &[MemberId],
        last: Option<([MemberId; 2], Timestamp)>,
    ) -> Option<Suspicion> {
        // An end that this leader can't reach either is the cause: it can dial others but can't be dialled. With two
        // witnesses less time is enough.
        let unreached = |id: MemberId| self.is_unreached(id);
        let lacks = |from: MemberId, to: MemberId| {
            let patience =
                if unreached(from) == unreached(to) { self.settings.slow } else { self.settings.suspect * 2 };
            let is_long = |since: Timestamp| self.now - since.max(self.since) >= patience;
            let (before, behind) = (self.told(config, from)?, self.told(config, to)?);
            let open = |told: &LastReport| told.report.epoch == config.epoch && told.report.open;
            let unopened = open(before) && is_long(before.opened) && !open(behind);
            // The awaited update may have arrived without its acknowledgement: the successor must miss a later one.
            let waits = before.report.hop.waits.is_some_and(|(_, age)| age >= patience);
            let unsent = open(before) && waits && behind.report.held < before.report.held;
            Some((unopened || unsent) && is_long(behind.moved))
        };
        let hop = serving.windows(2).find(|hop| lacks(hop[0], hop[1]) == Some(true))?;
        let (from, to) = (hop[0], hop[1]);
        // A member at the end of two consecutive broken hops is the cause of both.
        let soon = last.filter(|(_, at)| self.now - *at < self.settings.slow * SAME_CAUSE_FACTOR);
        let again = |id: MemberId| soon.is_some_and(|(ends, _)| ends.contains(&id));
        let is_first = if unreached(from) == unreached(to) { again(from) && !again(to) } else { unreached(from) };
        let member = if is_first { from } else { to };
        Some(self.guilty(member, Why::Unreached, Some([from, to])))
    }

    fn waits_long(&self, way: &PathDelay) -> Option<Sequence> {
        way.waits.filter(|&(_, age)| age >= self.settings.slow).map(|(at, _)| at)
    }

    /// The joiner, if the tail has waited for its acknowledgement for too long. A tail commits only what a joiner that
    /// is being promoted holds, so the chain makes no progress.
    fn dead_joiner(&self, config: &ChainConfig) -> Option<Suspicion> {
        let (tail, joiner) = (config.tail()?, config.syncing()?);
        let report = &self.told(config, tail).filter(|told| told.report.epoch == config.epoch)?.report;
        let waits = report.open && self.waits_long(&report.commit).is_some() && self.waits_long(&report.hop).is_some();
        waits.then(|| self.guilty(joiner, Why::Unreached, Some([tail, joiner])))
    }

    /// A joiner from which its tail has received nothing for long, while another node could take its place (trap 50).
    fn unheard_joiner(&self, configs: &Configs, config: &ChainConfig) -> Option<Suspicion> {
        let (tail, joiner) = (config.tail()?, config.syncing()?);
        let report = &self.told(config, tail).filter(|told| told.report.epoch == config.epoch)?.report;
        let replaced = || self.spare(configs, config, Some(tail)).is_some();
        (report.unheard >= self.settings.slow && replaced())
            .then(|| self.guilty(joiner, Why::Unreached, Some([tail, joiner])))
    }

    pub(super) fn has_halted(&self, chain: ChainId, id: MemberId) -> bool {
        let told = self.nodes.get(&id).and_then(|seen| seen.told.get(&chain));
        told.is_some_and(|told| told.report.halted) && !allows!(self.settings.guards, KeepHalted)
    }

    /// A serving member, or the joiner, that permanently stopped serving.
    fn halted(&self, config: &ChainConfig) -> Option<Suspicion> {
        let mut members = config.members.iter().map(|member| member.id);
        members.find(|&id| self.has_halted(config.chain, id)).map(|id| self.guilty(id, Why::Halted, None))
    }

    /// The member that has made the chain slow for long.
    fn slow_member(
        &self,
        config: &ChainConfig,
        serving: &[MemberId],
        suspect: Option<(SlowSuspect, Timestamp)>,
    ) -> Option<Suspicion> {
        let ((member, why), since) = suspect?;
        let head = &self.told(config, *serving.first()?)?.report;
        // If the tail makes no progress, a hop is broken: that isn't a slow chain.
        let moves = self.now - self.told(config, *serving.last()?)?.moved < self.settings.slow / 2;
        // Paths may be slow briefly by chance, while the chain is slow for another reason.
        let long = head.slowed >= self.settings.slow && self.now - since >= self.settings.slow / SUSPECT_DIVISOR;
        (long && moves).then(|| self.guilty(member, why, None))
    }

    /// A member whose disk has completed nothing for long, while another member's does. Nothing is committed in that
    /// time, and no hop waits. A joiner is considered if the tail waits too: then it is being promoted.
    fn stuck_disk(&self, config: &ChainConfig, serving: &[MemberId]) -> Option<Suspicion> {
        let report = |id| Some(&self.told(config, id).filter(|told| told.report.epoch == config.epoch)?.report);
        let serving: Vec<_> = serving.iter().map(|&id| Some((id, report(id)?))).collect::<Option<_>>()?;
        let commits_wait = serving.last().is_some_and(|(_, tail)| self.waits_long(&tail.commit).is_some());
        let joiner = config.syncing().filter(|_| commits_wait).and_then(|id| Some((id, report(id)?)));
        let waits = || serving.iter().copied().chain(joiner).map(|(id, report)| (report.disk.waits_for(), id));
        let ((least, _), (longest, member)) = waits().min().zip(waits().max())?;
        let stands_out = longest >= self.settings.slow && least < self.settings.slow / SUSPECT_DIVISOR;
        stands_out.then(|| self.guilty(member, Why::Disk, None))
    }

    /// The suspect of a slow chain: the only member with a slow disk, or the one between slow paths.
    fn slow_suspect(&self, config: &ChainConfig) -> Option<SlowSuspect> {
        let serving: Vec<MemberId> = config.serving().collect();
        let told: Vec<&LastReport> = serving.iter().map(|&id| self.told(config, id)).collect::<Option<_>>()?;
        let reports: Vec<&Report> = told.iter().map(|told| &told.report).collect();
        let slowed = reports.first().is_some_and(|head| head.slowed > Duration::ZERO);
        if !slowed || reports.iter().any(|report| report.epoch != config.epoch) {
            return None;
        }
        match self.slow_disks(&reports)[..] {
            [] => Some((self.between_slow_ways(&serving, &reports)?, Why::Slow)),
            [at] => Some((serving[at], Why::Disk)),
            // For example, all members share a machine with slow disks.
            _ => None,
        }
    }

    /// The places of the members whose disks are outliers and explain a substantial part of a commit's delay.
    fn slow_disks(&self, reports: &[&Report]) -> Vec<usize> {
        if reports.len() < 2 || allows!(self.settings.guards, TolerateSlowDisk) {
            return Vec::new();
        }
        let commit = reports[0].commit.takes();
        let explains = |at: usize| reports[at].disk.takes().saturating_mul(DISK_SHARE_DIVISOR) >= commit;
        let slow = PathRing::of_disks(reports).slow(self.settings.slow);
        (0..reports.len()).filter(|&at| slow[at] && explains(at)).collect()
    }

    /// The only member with slow paths on both sides. The path from the tail back to the head closes the ring. If no
    /// member has two slow paths, the one at the end of the first slow path.
    fn between_slow_ways(&self, serving: &[MemberId], reports: &[&Report]) -> Option<MemberId> {
        if serving.len() < 3 {
            // With two members nothing shows which of them is slow.
            return None;
        }
        let without_disks = !allows!(self.settings.guards, TolerateSlowDisk);
        let slow = PathRing::of(reports, without_disks)?.slow(self.settings.slow);
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

    pub(super) fn is_blamed(&self, config: &ChainConfig, id: MemberId) -> Option<Why> {
        let blame = self.watched.get(&config.chain)?.blame?;
        (blame.member == id).then_some(blame.why)
    }
}

pub(super) fn blamed(watched: &BTreeMap<crate::ChainId, Watched>) -> impl Iterator<Item = MemberId> + '_ {
    watched.values().filter_map(|chain| chain.blame).map(|blame| blame.member)
}
