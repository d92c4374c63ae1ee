//! Members that leave, until one or two are left, often a moment after one was killed; one comes back much later.

use super::{HEALED, SECOND, Setup, draw::controlled};
use crate::{
    faults::{Fault, Planned},
    rng::Rng,
};

const MILLI: u64 = 1_000_000;

pub(super) fn leaves(rng: &mut Rng, setup: &mut Setup) {
    setup.members = rng.between(2, 5) as usize;
    // No spare that would have to take over from members of whom none is left.
    controlled(rng, setup, setup.members, 5);
    if let Some(control) = &mut setup.control {
        (control.whims, control.cut_off) = (0, 0);
    }
}

/// All nodes but one or two leave, some of them together. Whoever isn't released after three leases ends anyway. A member
/// that is alone serves whatever became of the log; it takes nobody in if that can't be changed any more.
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
