//! Slow paths and disks of a chain, and the member that they show to be slow.

use std::time::Duration;

use super::{known_node::LastReport, reason::Why, view::View};
use crate::{
    ChainConfig, MemberId,
    control::message::{PathDelay, Report},
};

/// A path with a delay below `slow / (2 * QUICK_DIVISOR)` is not slow: an eightieth.
const QUICK_DIVISOR: u32 = 40;
/// A slow path has at least this many times its usual delay.
const SLOW_FACTOR: u32 = 8;
/// Replaces [`SLOW_FACTOR`] if every path is either slow by this factor or below [`SLOW_FACTOR`] times its usual delay.
const LONE_SLOW_FACTOR: u32 = 32;
/// Replaces [`QUICK_DIVISOR`] in the same case: a four-hundredth of `slow`.
const LONE_MIN_DELAY_DIVISOR: u32 = 200;
/// A slow path has at least this fraction of the slowest path's delay.
const SLOWEST_DIVISOR: u32 = 4;
/// A slow disk is blamed only if its delay is at least this fraction of a commit's. A stuck one is blamed in any case.
const DISK_SHARE_DIVISOR: u32 = 2;

pub(super) type SlowSuspect = (MemberId, Why);

/// The paths from each member to its successor, and from the tail back to the head: the current and the usual delay of
/// each.
struct PathRing(Vec<(Duration, Duration)>);

impl PathRing {
    fn of(reports: &[&Report], without_disks: bool) -> Option<Self> {
        let (head, hops) = (reports.first()?, reports.split_last()?.1);
        // A hop is measured as a round trip, so a path takes half of it. A commit also waits for the slowest disk. The
        // rest of its time is the path from tail to head.
        let mut ways: Vec<_> = hops.iter().map(|report| (report.hop.takes() / 2, report.hop.usual / 2)).collect();
        let slowest = |time: fn(&PathDelay) -> Duration| reports.iter().map(|report| time(&report.disk)).max();
        let disk = (slowest(PathDelay::takes).unwrap_or_default(), slowest(|disk| disk.usual).unwrap_or_default());
        let disk = if without_disks { disk } else { Default::default() };
        let (there, usual) = ways.iter().fold(disk, |(a, b), way| (a.saturating_add(way.0), b.saturating_add(way.1)));
        ways.push((head.commit.takes().saturating_sub(there), head.commit.usual.saturating_sub(usual)));
        Some(Self(ways))
    }

    /// The disks of the members instead of paths.
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

/// The suspect of a slow chain: the only member with a slow disk, or the one between slow paths.
pub(super) fn slow_suspect(view: View<'_>, config: &ChainConfig) -> Option<SlowSuspect> {
    let serving: Vec<MemberId> = config.serving().collect();
    let told: Vec<&LastReport> = serving.iter().map(|&id| view.told(config, id)).collect::<Option<_>>()?;
    let reports: Vec<&Report> = told.iter().map(|told| &told.report).collect();
    let slowed = reports.first().is_some_and(|head| head.slowed > Duration::ZERO);
    if !slowed || reports.iter().any(|report| report.epoch != config.epoch) {
        return None;
    }
    match slow_disks(view, &reports)[..] {
        [] => Some((between_slow_ways(view, &serving, &reports)?, Why::Slow)),
        [at] => Some((serving[at], Why::Disk)),
        // For example, all members share a machine with slow disks.
        _ => None,
    }
}

/// The positions of the members whose disks are outliers and explain a substantial part of a commit's delay.
fn slow_disks(view: View<'_>, reports: &[&Report]) -> Vec<usize> {
    if reports.len() < 2 || allows!(view.guards(), TolerateSlowDisk) {
        return Vec::new();
    }
    let commit = reports[0].commit.takes();
    let explains = |at: usize| reports[at].disk.takes().saturating_mul(DISK_SHARE_DIVISOR) >= commit;
    let slow = PathRing::of_disks(reports).slow(view.settings().slow);
    (0..reports.len()).filter(|&at| slow[at] && explains(at)).collect()
}

/// The only member with slow paths on both sides. The path from the tail back to the head closes the ring. If no member
/// has two slow paths: the member after the first slow path, or the tail if only the path from the tail to the head is
/// slow. `None` if several members have two slow paths, if no path is slow, or with fewer than three members.
fn between_slow_ways(view: View<'_>, serving: &[MemberId], reports: &[&Report]) -> Option<MemberId> {
    if serving.len() < 3 {
        // With two members nothing shows which of them is slow.
        return None;
    }
    let without_disks = !allows!(view.guards(), TolerateSlowDisk);
    let slow = PathRing::of(reports, without_disks)?.slow(view.settings().slow);
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
