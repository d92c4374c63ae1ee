//! Live members that hold up their chain (gray failures), and changes ordered by an operator.

use std::time::Duration;

use super::{
    HEALED, RECOVERY, SECOND, Setup,
    draw::{common, moving},
};
use crate::{
    client::{Keys, Mix},
    faults::{Fault, Planned, Play},
    network::Profile,
    rng::{Concern, Rng},
};

const MILLI: u64 = 1_000_000;

const SLOWER: u64 = 100;

/// The interval in which one member holds up its chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gray {
    /// Start of the interval, up to `start`, in which the normal write rate is measured.
    pub quiet: u64,
    /// When the member starts to hold up the chain.
    pub start: u64,
    /// When it stops holding it up.
    pub end: u64,
}

/// Time within which the write rate must recover, in virtual nanoseconds.
pub const BACK: u64 = 5 * SECOND;

/// Three members under a high load, and perhaps a spare.
fn busy(rng: &mut Rng, setup: &mut Setup) {
    moving(rng, setup);
    setup.members = rng.between(3, 4) as usize;
    setup.keys = Keys { registers: 4, lists: 0, counters: 0, chains: 1 };
    setup.mix = Mix { writes: 500, eventual: 50, bounded: 0, cuts: 0, scans: 0, ..setup.mix };
    setup.clients = 16;
    setup.lanes = 1;
    setup.pace = 8;
    setup.window = 1 << 20;
    setup.padding = 8;
    setup.batch = 1;
    setup.cost = 100_000;
    setup.late_polls = 0;
    let delay = rng.between(300, 600) * 1_000;
    setup.profile = Profile { delay, jitter: delay / 2, room: 1 << 20, nasty: false, uneven: false };
    setup.attempt = (300 * MILLI, 600 * MILLI);
    let control = setup.control_mut();
    control.founders = 3;
    // No elections without cause: a new leader would have to start its observations from scratch.
    (control.whims, control.cut_off) = (0, 0);
}

pub(super) fn gray(rng: &mut Rng, setup: &mut Setup) {
    busy(rng, setup);
    // Requests to the slow node wait in any case. If half of them were reads, clients would mostly wait and not write.
    setup.mix.writes = 800;
    setup.favourite = 0;
    setup.gray = Some(Gray { quiet: 2 * SECOND, start: 6 * SECOND, end: 16 * SECOND });
}

/// Without a spare, one member repeatedly holds up its chain. The third and fourth time it is kept out for 20 times
/// `slow`, here 12 s. With unbounded backoff the fourth time would be twice as long. With a spare, the head receives
/// nothing from other nodes.
pub(super) fn relapses(rng: &mut Rng, setup: &mut Setup) {
    busy(rng, setup);
    setup.mix.writes = 800;
    setup.favourite = 0;
    setup.excused = false;
    setup.members = if rng.chance(300) { 3 } else { 4 };
    if setup.members > 3 {
        // A light load suffices, since no member has to be found slow.
        (setup.clients, setup.pace) = (4, 1);
        (setup.healed, setup.stop) = (14 * SECOND, 31 * SECOND);
    } else {
        (setup.healed, setup.stop) = (43 * SECOND, 50 * SECOND);
    }
    let control = setup.control_mut();
    control.lease = Duration::from_millis(300);
    (control.suspect, control.slow) = (control.lease / 2, control.lease * 2);
}

pub(super) fn orders(rng: &mut Rng, setup: &mut Setup) {
    busy(rng, setup);
    setup.pace = 2;
    setup.peaceful = true;
    // Long delays, so that updates are in flight when members change places.
    setup.profile.delay *= 4;
    setup.mix.numbered = 500;
}

pub(super) fn drains(rng: &mut Rng, setup: &mut Setup) {
    busy(rng, setup);
    setup.pace = 2;
    setup.closes = true;
    setup.members = rng.between(4, 5) as usize;
    let control = setup.control_mut();
    control.whims = 2;
    control.lease = Duration::from_millis(rng.pick(&[1000, 300]));
    control.suspect = control.lease / 2;
}

/// One member holds up its chain: by a broken or one-way connection, by distance, or because it or its disk is slow.
pub(super) fn slow_member(seed: u64, rng: &mut Rng, setup: &Setup) -> Option<Vec<Planned>> {
    let gray = setup.gray?;
    let node = rng.index(3);
    let other = (node + 1 + rng.index(2)) % 3;
    let fault = match seed % 4 {
        _ if setup.durable.is_some() && !(seed / 4).is_multiple_of(2) => Fault::SlowDisk(node, SLOWER),
        0 => Fault::Break(node, other),
        1 => Fault::Cut(node, other),
        2 => Fault::Far(node, 100),
        _ => Fault::Slow(node, 100 * setup.cost),
    };
    let mut plan = vec![Planned { fault, start: gray.start, end: gray.end }];
    plan.extend(short_delays(rng, gray.end + SECOND));
    Some(plan)
}

/// Without a spare, one member is far or slow, or has a slow disk, four times, each time after it has returned. With a
/// spare, the head becomes deaf until long after the chain should have recovered.
pub(super) fn member_relapses(rng: &mut Rng, setup: &Setup) -> Vec<Planned> {
    if setup.members > 3 {
        let start = rng.between(4000, 8000) * MILLI;
        let end = setup.healed + RECOVERY + SECOND;
        let mut plan = vec![Planned { fault: Fault::Play(Play::DeafHead), start, end }];
        plan.extend(short_delays(rng, SECOND));
        return plan;
    }
    let node = rng.index(3);
    let relapse = |(nth, start): (usize, u64)| {
        let fault = match rng.chance(500) {
            _ if setup.durable.is_some() && nth % 2 == 1 => Fault::SlowDisk(node, SLOWER),
            true => Fault::Far(node, 100),
            false => Fault::Slow(node, 100 * setup.cost),
        };
        let start = start * SECOND + rng.below(300 * MILLI);
        Planned { fault, start, end: start + 2200 * MILLI }
    };
    let mut plan: Vec<_> = [2, 8, 17, 32].into_iter().enumerate().map(relapse).collect();
    plan.extend(short_delays(rng, SECOND));
    plan
}

pub(super) fn new_orders(rng: &mut Rng) -> Vec<Planned> {
    let mut plan: Vec<_> = short_delays(rng, SECOND).collect();
    plan.extend(orders_at(rng));
    plan
}

pub(super) fn orders_at(rng: &mut Rng) -> Vec<Planned> {
    let mut plan = Vec::new();
    let mut at = 2 * SECOND;
    while at < HEALED - 3 * SECOND {
        plan.push(Planned { fault: Fault::Order(rng.below(1 << 20)), start: at, end: at + 1 });
        at += rng.between(100, 2000) * MILLI;
    }
    plan
}

pub(super) fn members_drained(rng: &mut Rng, setup: &Setup) -> Vec<Planned> {
    let mut plan: Vec<_> = short_delays(rng, SECOND).collect();
    let mut at = 2 * SECOND;
    while at < HEALED - 3 * SECOND {
        let end = at + rng.between(1500, 3000) * MILLI;
        plan.push(Planned { fault: Fault::Drain(rng.index(setup.members)), start: at, end });
        at = end + rng.between(500, 2500) * MILLI;
    }
    plan
}

fn short_delays(rng: &mut Rng, from: u64) -> impl Iterator<Item = Planned> + use<> {
    let delays: Vec<_> = (0..4)
        .map(|n| {
            let start = from + n * 200 * MILLI;
            Planned { fault: Fault::Delay(rng.between(3, 10)), start, end: start + rng.between(5, 50) * MILLI }
        })
        .collect();
    delays.into_iter()
}

/// The world of [`Scenario::Gray`](super::Scenario::Gray) with three members, no disks and the given faults.
pub fn gray_setup(seed: u64, faults: Vec<Planned>) -> Setup {
    let mut rng = Rng::new(seed, Concern::Setup);
    let mut setup = common(&mut rng);
    gray(&mut rng, &mut setup);
    setup.members = 3;
    setup.keys.chains = 1;
    setup.faults = faults;
    setup
}
