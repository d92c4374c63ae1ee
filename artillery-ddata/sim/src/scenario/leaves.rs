//! Nodes that leave, restart in turn, form or meet other clusters, or lose the log's majority.

use std::time::Duration;

use super::{HEALED, SECOND, Setup, draw::controlled, setup::FoundingSetup};
use crate::{
    faults::{Fault, Planned},
    rng::Rng,
};

const MILLI: u64 = 1_000_000;

pub(super) fn leaves(rng: &mut Rng, setup: &mut Setup) {
    setup.members = rng.between(2, 5) as usize;
    // No spare: it could not take over after all members have left.
    controlled(rng, setup, setup.members, 5);
    let control = setup.control_mut();
    (control.whims, control.cut_off) = (0, 0);
    setup.closes = true;
}

/// All nodes but one or two are asked to stop, often right after one was killed. One of them, and the killed node,
/// return much later.
pub(super) fn members_leave(rng: &mut Rng, setup: &Setup) -> Vec<Planned> {
    let farewell = setup.control.map_or(0, |control| control.lease.as_nanos() as u64 * 3);
    let mut nodes: Vec<usize> = (0..setup.members).collect();
    let mut plan: Vec<_> = (0..4)
        .map(|_| {
            let start = rng.between(SECOND, HEALED - SECOND);
            Planned { fault: Fault::Delay(rng.between(3, 10)), start, end: start + rng.between(20, 200) * MILLI }
        })
        .collect();
    let mut at = 3 * SECOND;
    let killed = (nodes.len() >= 3 && rng.chance(500)).then(|| nodes.swap_remove(rng.index(nodes.len())));
    let killed_at = at - rng.between(50, 400) * MILLI;
    let stay = 1 + rng.index(2.min(nodes.len() - 1));
    while nodes.len() > stay {
        let node = nodes.swap_remove(rng.index(nodes.len()));
        plan.push(Planned { fault: Fault::Leave(node), start: at, end: at + farewell });
        at += if rng.chance(500) { rng.below(200 * MILLI) } else { rng.between(500, 4000) * MILLI };
    }
    let back = plan.iter().rev().find_map(|planned| match planned.fault {
        Fault::Leave(node) => Some(node),
        _ => None,
    });
    let start = at + farewell + SECOND;
    plan.extend(back.map(|node| Planned { fault: Fault::Restart(node), start, end: start + 100 * MILLI }));
    plan.extend(killed.map(|node| Planned { fault: Fault::Restart(node), start: killed_at, end: start + SECOND }));
    plan.sort_by_key(|planned| planned.start);
    plan
}

/// Draws two to five nodes, and returns how many of them serve. With many spares clients would get `NoChain` too often.
fn of_the_members(rng: &mut Rng, setup: &mut Setup) -> u64 {
    setup.members = rng.between(2, 5) as usize;
    let least = if setup.members > 3 { 2 } else { 1 };
    rng.between(least, 3.min(setup.members as u64))
}

/// Two to five nodes that an operator restarts in turn. A joiner often needs long for its resync.
pub(super) fn rolling(rng: &mut Rng, setup: &mut Setup) {
    let replicas = of_the_members(rng, setup);
    controlled(rng, setup, setup.members, replicas);
    setup.chains = rng.between(1, 2) as usize;
    setup.keys.registers = rng.pick(&[2, 12, 60]);
    setup.padding = rng.pick(&[0, 300, 600]);
    // More than the largest batch. If a sole member orders and commits an update in one step, the oracle finds the
    // update only in the backlog.
    setup.backlog = rng.pick(&[128 << 10, 1 << 20]);
    setup.control_mut().rolls = true;
}

/// Five or six nodes, some of which never serve. An operator orders these to create another cluster if they reach no
/// member.
pub(super) fn succession(rng: &mut Rng, setup: &mut Setup) {
    setup.members = rng.between(5, 6) as usize;
    let replicas = rng.between(2, 3);
    controlled(rng, setup, 5, replicas);
    let control = setup.control_mut();
    control.founds = true;
    (control.lease, control.suspect) = (Duration::from_millis(300), Duration::from_millis(150));
}

/// Two to five nodes, some of them spares. In some seeds an operator restarts nodes.
pub(super) fn strangers(rng: &mut Rng, setup: &mut Setup) {
    let replicas = of_the_members(rng, setup);
    controlled(rng, setup, setup.members, replicas);
    setup.chains = rng.between(1, 2) as usize;
    let control = setup.control_mut();
    (control.meets, control.rolls) = (true, rng.chance(300));
}

/// Three to six nodes. Among other faults, most voters of the log are lost at once. Their nodes start other
/// incarnations later.
pub(super) fn recovery(rng: &mut Rng, setup: &mut Setup) {
    setup.members = rng.between(3, 6) as usize;
    let replicas = rng.between(2, 3);
    controlled(rng, setup, setup.members.min(5), replicas);
    setup.chains = rng.between(1, 2) as usize;
    setup.control_mut().loses = true;
    // With many small pieces, a node that receives all data again would take too long.
    setup.chunk = 64 << 10;
}

/// Nodes form a cluster under faults, and then run with failover under further faults.
pub(super) fn dawn(rng: &mut Rng, setup: &mut Setup) {
    let expect = rng.between(3, 5);
    setup.members = (expect + rng.below(2)) as usize;
    let replicas = rng.between(2, 3.min(expect));
    controlled(rng, setup, expect as usize, replicas);
    setup.chains = rng.between(1, 2) as usize;
    setup.founding = Some(FoundingSetup { expect: expect as u16, most: expect as u16, replicas: replicas as u32 });
}

/// Isolates nodes for long enough that nodes that never served consider all members lost.
pub(super) fn cut_off(rng: &mut Rng, nodes: usize) -> Vec<Planned> {
    let one = |rng: &mut Rng| {
        let start = rng.between(2 * SECOND, HEALED - 6 * SECOND);
        Planned { fault: Fault::Isolate(rng.index(nodes)), start, end: start + rng.between(1500, 2500) * MILLI }
    };
    (0..5).map(|_| one(rng)).collect()
}
