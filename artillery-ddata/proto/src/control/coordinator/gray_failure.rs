//! Gray failures: living members that stall their chain (docs/DESIGN.md §5.9, docs/adr/0017-slow-members.md).
//!
//! A hop is *dead* when a member has long had an update, or the opening of an epoch, that doesn't reach its successor,
//! and the successor makes no progress at all. A chain is *slow* when its head has long committed clearly less than
//! before, although updates were always in flight. Then the delays of the paths show the member to blame (module
//! `paths`). If a machine slows all members alike, no member stands out.
//!
//! A durable chain waits for the slowest disk of its members, which no path delay identifies. So each member reports
//! the delay of its own disk. A disk that alone is slow, or that has stopped completing writes, is itself the cause.

use super::{known_node::LastReport, paths::SlowSuspect, quarantine::Quarantines, reason::Why, view::View};
use crate::{ChainConfig, MemberId, Sequence, Timestamp, control::message::PathDelay};

/// Two broken hops within this many times `slow` have one cause.
const SAME_CAUSE_FACTOR: u32 = 4;
/// A member must have been the suspect for `slow` divided by this: queues need time to grow before they show the cause.
/// A disk that waits less than this isn't stuck.
const SUSPECT_DIVISOR: u32 = 2;

/// A member that should be moved out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Suspicion {
    pub(super) member: MemberId,
    pub(super) why: Why,
    pub(super) ends: Option<[MemberId; 2]>,
    pub(super) since: Timestamp,
}

/// The member that should be moved out of a chain; never its only living one.
pub(super) fn blame(
    view: View<'_>,
    outside: &Quarantines,
    config: &ChainConfig,
    ends: Option<([MemberId; 2], Timestamp)>,
    suspect: Option<(SlowSuspect, Timestamp)>,
) -> Option<Suspicion> {
    let serving: Vec<MemberId> = config.serving().collect();
    if serving.iter().any(|&id| view.is_gone(id)) {
        // A dead member is removed first: its neighbours look broken too.
        return None;
    }
    let found = halted(view, config)
        .or_else(|| deaf(view, &serving))
        .or_else(|| dead_hop(view, config, &serving, ends).filter(|_| !allows!(view.guards(), TolerateDeadHop)))
        .or_else(|| dead_joiner(view, config).filter(|_| !allows!(view.guards(), TolerateDeadJoiner)))
        .or_else(|| unheard_joiner(view, outside, config).filter(|_| !allows!(view.guards(), TolerateUnheardJoiner)))
        .or_else(|| stuck_disk(view, config, &serving).filter(|_| !allows!(view.guards(), TolerateSlowDisk)))
        .or_else(|| slow_member(view, config, &serving, suspect).filter(|_| !allows!(view.guards(), TolerateSlow)))?;
    let others = serving.iter().any(|&id| id != found.member && view.lived(id));
    others.then_some(found)
}

fn is_long(view: View<'_>, since: Timestamp) -> bool {
    view.now - since.max(view.nodes().since()) >= view.settings().slow
}

fn guilty(view: View<'_>, member: MemberId, why: Why, ends: Option<[MemberId; 2]>) -> Suspicion {
    Suspicion { member, why, ends, since: view.now }
}

/// A member whose messages arrive but that receives none, so it never gets a lease: for `slow` it has shown none of
/// this leader's answers. A leader that no quorum confirms records no answers, and so finds no deaf member.
fn deaf(view: View<'_>, serving: &[MemberId]) -> Option<Suspicion> {
    let deaf = |id: &MemberId| {
        *id != view.me() && view.node(*id).and_then(|seen| seen.unshown).is_some_and(|since| is_long(view, since))
    };
    serving.iter().copied().find(deaf).map(|id| guilty(view, id, Why::Deaf, None))
}

/// The end to blame for a dead hop: data that one member has long had doesn't reach its successor, which makes no
/// progress.
fn dead_hop(
    view: View<'_>,
    config: &ChainConfig,
    serving: &[MemberId],
    last: Option<([MemberId; 2], Timestamp)>,
) -> Option<Suspicion> {
    // An end that this leader can't reach either is the cause: it can dial others but can't be dialled. With two
    // witnesses, twice `suspect` is enough.
    let unreached = |id: MemberId| view.is_unreached(id);
    let lacks = |from: MemberId, to: MemberId| {
        let patience =
            if unreached(from) == unreached(to) { view.settings().slow } else { view.settings().suspect * 2 };
        let is_long = |since: Timestamp| view.now - since.max(view.nodes().since()) >= patience;
        let (before, behind) = (view.told(config, from)?, view.told(config, to)?);
        let open = |told: &LastReport| told.report.epoch == config.epoch && told.report.open;
        let unopened = open(before) && is_long(before.opened) && !open(behind);
        // The pending update may have arrived, and only its acknowledgement is missing. So the successor must also hold
        // less than the member.
        let waits = before.report.hop.waits.is_some_and(|(_, age)| age >= patience);
        let unsent = open(before) && waits && behind.report.held < before.report.held;
        Some((unopened || unsent) && is_long(behind.moved))
    };
    let hop = serving.windows(2).find(|hop| lacks(hop[0], hop[1]) == Some(true))?;
    let (from, to) = (hop[0], hop[1]);
    // A member that was also an end of the last broken hop is the cause of both.
    let soon = last.filter(|(_, at)| view.now - *at < view.settings().slow * SAME_CAUSE_FACTOR);
    let again = |id: MemberId| soon.is_some_and(|(ends, _)| ends.contains(&id));
    let is_first = if unreached(from) == unreached(to) { again(from) && !again(to) } else { unreached(from) };
    let member = if is_first { from } else { to };
    Some(guilty(view, member, Why::Unreached, Some([from, to])))
}

fn waits_long(view: View<'_>, way: &PathDelay) -> Option<Sequence> {
    way.waits.filter(|&(_, age)| age >= view.settings().slow).map(|(at, _)| at)
}

/// The joiner, if the tail has waited for its acknowledgement for `slow`. A tail commits only the updates that a joiner
/// in promotion has acknowledged, so the chain makes no progress.
fn dead_joiner(view: View<'_>, config: &ChainConfig) -> Option<Suspicion> {
    let (tail, joiner) = (config.tail()?, config.syncing()?);
    let report = &view.told(config, tail).filter(|told| told.report.epoch == config.epoch)?.report;
    let waits = report.open && waits_long(view, &report.commit).is_some() && waits_long(view, &report.hop).is_some();
    waits.then(|| guilty(view, joiner, Why::Unreached, Some([tail, joiner])))
}

/// A joiner from which its tail has received nothing for `slow`, while another node could take its place (trap 50).
fn unheard_joiner(view: View<'_>, outside: &Quarantines, config: &ChainConfig) -> Option<Suspicion> {
    let (tail, joiner) = (config.tail()?, config.syncing()?);
    let report = &view.told(config, tail).filter(|told| told.report.epoch == config.epoch)?.report;
    let replaced = || outside.spare(view, config, Some(tail)).is_some();
    (report.unheard >= view.settings().slow && replaced())
        .then(|| guilty(view, joiner, Why::Unreached, Some([tail, joiner])))
}

/// A serving member, or the joiner, that permanently stopped serving.
fn halted(view: View<'_>, config: &ChainConfig) -> Option<Suspicion> {
    let mut members = config.members.iter().map(|member| member.id);
    members.find(|&id| view.has_halted(config.chain, id)).map(|id| guilty(view, id, Why::Halted, None))
}

/// The suspect, if the chain has been slow for `slow`.
fn slow_member(
    view: View<'_>,
    config: &ChainConfig,
    serving: &[MemberId],
    suspect: Option<(SlowSuspect, Timestamp)>,
) -> Option<Suspicion> {
    let ((member, why), since) = suspect?;
    let head = &view.told(config, *serving.first()?)?.report;
    // If the tail makes no progress, a hop is broken: that isn't a slow chain.
    let moves = view.now - view.told(config, *serving.last()?)?.moved < view.settings().slow / 2;
    // Paths may be slow briefly by chance, while the chain is slow for another reason.
    let long = head.slowed >= view.settings().slow && view.now - since >= view.settings().slow / SUSPECT_DIVISOR;
    (long && moves).then(|| guilty(view, member, why, None))
}

/// A member whose disk has completed nothing for `slow`, while another member's disk isn't stuck. Until a write
/// completes, nothing is committed, and no hop waits. The joiner is considered only if commits wait at the tail, since
/// it is then being promoted.
fn stuck_disk(view: View<'_>, config: &ChainConfig, serving: &[MemberId]) -> Option<Suspicion> {
    let report = |id| Some(&view.told(config, id).filter(|told| told.report.epoch == config.epoch)?.report);
    let serving: Vec<_> = serving.iter().map(|&id| Some((id, report(id)?))).collect::<Option<_>>()?;
    let commits_wait = serving.last().is_some_and(|(_, tail)| waits_long(view, &tail.commit).is_some());
    let joiner = config.syncing().filter(|_| commits_wait).and_then(|id| Some((id, report(id)?)));
    let waits = || serving.iter().copied().chain(joiner).map(|(id, report)| (report.disk.waits_for(), id));
    let ((least, _), (longest, member)) = waits().min().zip(waits().max())?;
    let stands_out = longest >= view.settings().slow && least < view.settings().slow / SUSPECT_DIVISOR;
    stands_out.then(|| guilty(view, member, Why::Disk, None))
}
