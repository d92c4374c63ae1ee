//! The orders of an operator, and when each is given.

use std::{fmt, time::Duration};

use artillery_programs::chance::Dice;

use super::{fault::name, set::NodeSet};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Work {
    /// `ctl reorder`.
    Reorder,
    /// `ctl drain`, then a restart of that node.
    Drain,
    /// SIGTERM, then a start.
    Restart,
    /// SIGTERM to all nodes, then a start of all.
    RestartAll,
}

/// One bag of orders, drawn in random sequence. At least half are reorders, so that faults often coincide with one.
const BAG: [Work; 6] = [Work::Reorder, Work::Reorder, Work::Reorder, Work::Reorder, Work::Drain, Work::Restart];
const DURABLE_BAG: [Work; 6] =
    [Work::Reorder, Work::Reorder, Work::Reorder, Work::Drain, Work::Restart, Work::RestartAll];
/// When orders are given: each moment is drawn once before any is repeated.
const MOMENTS: [fn(&mut Orders) -> Moment; 4] = [
    |orders| Moment::During(orders.often_short(300, 3000)),
    |orders| Moment::During(orders.often_short(300, 3000)),
    // A reorder takes about 200 ms, so the fault usually begins during it.
    |orders| Moment::Before(orders.up_to(250)),
    |orders| Moment::Before(orders.up_to(250)),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moment {
    /// This long after a fault began.
    During(Duration),
    /// This long before a fault begins.
    Before(Duration),
}

/// An order as drawn. The members and nodes are chosen only when it is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Draw {
    pub(super) work: Work,
    pub(super) moment: Moment,
    pub(super) pause: Duration,
    /// Selects a permutation of the members, or a node.
    pub(super) pick: u64,
    /// The node that `ctl` asks first.
    pub(super) asked: usize,
    pub(super) down: Duration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Reorder(Vec<String>),
    Drain(usize),
    Restart(usize),
    RestartAll(NodeSet),
}

impl Order {
    pub(super) fn work(&self) -> Work {
        match self {
            Self::Reorder(_) => Work::Reorder,
            Self::Drain(_) => Work::Drain,
            Self::Restart(_) => Work::Restart,
            Self::RestartAll(_) => Work::RestartAll,
        }
    }

    pub(super) fn takes(&self) -> NodeSet {
        match self {
            Self::Reorder(_) => NodeSet::default(),
            Self::Drain(node) | Self::Restart(node) => NodeSet::of(*node),
            Self::RestartAll(nodes) => *nodes,
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reorder => "reorder",
            Self::Drain => "drain",
            Self::Restart => "restart",
            Self::RestartAll => "restart-all",
        })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reorder(members) => write!(f, "reorder {}", members.join(" ")),
            Self::Drain(node) | Self::Restart(node) => write!(f, "{} {}", self.work(), name(*node)),
            Self::RestartAll(nodes) => write!(f, "{} {nodes}", self.work()),
        }
    }
}

/// Orders determined by a seed alone, independent of the faults.
pub(super) struct Orders {
    dice: Dice,
    nodes: usize,
    works: [Work; 6],
    bag: Vec<Work>,
    moments: Vec<fn(&mut Self) -> Moment>,
}

impl Orders {
    pub(super) fn new(seed: u64, nodes: usize, durable: bool) -> Self {
        let works = if durable { DURABLE_BAG } else { BAG };
        // The plan of faults uses the seed itself.
        Self { dice: Dice::new(!seed), nodes, works, bag: Vec::new(), moments: Vec::new() }
    }

    pub(super) fn next(&mut self) -> Draw {
        if self.bag.is_empty() {
            self.bag.extend(self.works);
        }
        if self.moments.is_empty() {
            self.moments.extend(MOMENTS);
        }
        let (place, moment) = (self.below(self.bag.len()), self.below(self.moments.len()));
        let moment = self.moments.swap_remove(moment);
        Draw {
            work: self.bag.swap_remove(place),
            moment: moment(self),
            pause: self.often_short(300, 3000),
            pick: self.dice.below(u64::MAX),
            asked: self.below(self.nodes),
            down: self.often_short(200, 3000),
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.dice.below(end as u64) as usize
    }

    /// A random time below `short` in half of the cases, otherwise below `long`, in milliseconds.
    fn often_short(&mut self, short: u64, long: u64) -> Duration {
        let end = if self.dice.below(2) == 0 { short } else { long };
        self.up_to(end)
    }

    fn up_to(&mut self, ms: u64) -> Duration {
        Duration::from_millis(self.dice.below(ms))
    }
}

/// Another permutation of the members; `None` if there is none.
pub(super) fn rearranged(members: &[String], pick: u64) -> Option<Vec<String>> {
    let all: u64 = (1..=members.len() as u64).product();
    // Number 0 is the present permutation.
    let mut number = 1 + pick.checked_rem(all - 1)?;
    let mut left = members.to_vec();
    let mut order = Vec::new();
    for many in (1..=members.len() as u64).rev() {
        order.push(left.remove((number % many) as usize));
        number /= many;
    }
    Some(order)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_orders() {
        let (mut one, mut same, mut another) =
            (Orders::new(7, 5, true), Orders::new(7, 5, true), Orders::new(8, 5, true));
        let all: Vec<_> = (0..40).map(|_| one.next()).collect();
        assert!(all.iter().all(|draw| *draw == same.next()));
        assert!(all.iter().any(|draw| *draw != another.next()));
        assert!(all.iter().all(|draw| draw.asked < 5));
    }

    #[test]
    fn half_of_the_orders_wait_for_a_fault() {
        for seed in 0..20 {
            let mut orders = Orders::new(seed, 3, false);
            for _ in 0..10 {
                let all: Vec<_> = MOMENTS.iter().map(|_| orders.next().moment).collect();
                let count = |of: fn(&Moment) -> bool| all.iter().filter(|moment| of(moment)).count();
                assert_eq!(count(|moment| matches!(moment, Moment::During(_))), 2);
                assert_eq!(count(|moment| matches!(moment, Moment::Before(_))), 2);
            }
        }
    }

    #[test]
    fn no_work_is_left_out() {
        for (durable, bag) in [(false, BAG), (true, DURABLE_BAG)] {
            let mut orders = Orders::new(1, 3, durable);
            let mut works: Vec<_> = bag.iter().map(|_| orders.next().work).collect();
            works.sort_unstable();
            assert_eq!(works, bag);
        }
    }

    #[test]
    fn every_other_order_of_the_members_is_drawn() {
        let members: Vec<String> = (0..3).map(name).collect();
        let drawn: BTreeSet<_> = (0..50).filter_map(|pick| rearranged(&members, pick)).collect();
        assert_eq!(drawn.len(), 5);
        assert!(!drawn.contains(&members));
        assert_eq!(rearranged(&members[..2], 9), Some(vec![name(1), name(0)]));
        assert_eq!(rearranged(&members[..1], 9), None);
        assert_eq!(rearranged(&[], 9), None);
    }
}
