//! The faults, and the plan that draws them.

use std::{fmt, time::Duration};

use artillery_programs::chance::Dice;
use clap::ValueEnum;

use super::set::NodeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Kind {
    /// Kill a node and start it again, with its directory if it has one
    Kill,
    /// Stop a node by SIGTERM and start it again
    Restart,
    /// Pause a node
    Pause,
    /// Drop all packets between two nodes
    Cut,
    /// Drop the packets from one node to another, in one direction
    OneWay,
    /// Drop all packets between a node and all others
    Isolate,
    /// Drop all packets to a node
    Deaf,
    /// Drop all packets from a node
    Mute,
    /// Limit the bandwidth of a node's links to its peers, with a bounded queue
    Slow,
    /// Replace the address of a running node
    Address,
    /// Start a second process with the name of a running node
    Twin,
    /// Start an unnamed node and kill it, again and again
    Young,
    /// Let a node dial others, but block dialling to it
    Outbound,
    /// Kill several nodes at once (--data)
    KillSome,
    /// Kill all nodes at once (--data)
    KillAll,
    /// Delete the directories of killed nodes (--data)
    Wipe,
    /// Flip a bit in the directories of killed nodes (--data)
    Damage,
    /// Replace the directories of killed nodes by older copies (--data)
    Restore,
}

impl Kind {
    /// The shortest and the longest duration, in milliseconds.
    fn span(self) -> (u64, u64) {
        match self {
            Self::Kill | Self::Restart => (200, 4000),
            Self::KillSome | Self::KillAll | Self::Wipe | Self::Damage | Self::Restore => (200, 4000),
            Self::Pause => (300, 6000),
            // Long enough for the lease to end, and for the checks of an isolated member.
            Self::Isolate => (8000, 10_000),
            Self::Cut | Self::OneWay | Self::Deaf | Self::Mute => (1000, 6000),
            Self::Slow => (2000, 6000),
            // Long enough to check that the other nodes serve during the fault.
            Self::Address | Self::Young | Self::Outbound => (6000, 9000),
            // The twin must have ended by itself by then.
            Self::Twin => (9000, 10_000),
        }
    }

    /// Whether the fault applies only to nodes with directories.
    pub(super) fn wants_directories(self) -> bool {
        matches!(self, Self::KillSome | Self::KillAll) || self.touches()
    }

    pub(super) fn touches(self) -> bool {
        matches!(self, Self::Wipe | Self::Damage | Self::Restore)
    }

    /// Whether the nodes that it does not affect must serve soon after it begins.
    pub(super) fn is_checked_at_its_begin(self) -> bool {
        matches!(self, Self::Address | Self::Twin | Self::Young | Self::Outbound)
    }

    pub(super) fn kills(self) -> bool {
        self == Self::Kill || self.wants_directories()
    }

    pub(super) fn all(durable: bool) -> Vec<Self> {
        Self::value_variants().iter().copied().filter(|kind| durable || !kind.wants_directories()).collect()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name that `--kinds` accepts. No kind is hidden, so there is a value for each.
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) victim: usize,
    /// The other end of a `cut` or `one-way` fault, which differs from the victim.
    pub(super) other: usize,
    pub(super) hold: Duration,
    /// The bandwidth of a slow link in kbit/s; `keeps_ms` is the longest delay in its queue.
    pub(super) kilobits: u64,
    pub(super) keeps_ms: u64,
    /// Nodes that are killed together with the victim.
    pub(super) others: NodeSet,
    /// Nodes whose directory is changed; all of them are killed.
    pub(super) touched: NodeSet,
    /// Whether killed nodes restart at other ports.
    pub(super) moves: bool,
    /// Whether a node with a replaced address gets its old address back at the end.
    pub(super) returns: bool,
    /// Whether the young nodes run in place of the victim, which is killed.
    pub(super) instead: bool,
    /// Seed for the change to a directory, or for the loop of young nodes; also selects the start order.
    pub(super) pick: u64,
    /// Whether a majority of the voters loses its directories, so that an operator recovers the cluster.
    pub(super) recovers: bool,
}

impl Fault {
    /// A fault of zero duration.
    pub(super) fn of(kind: Kind, victim: usize, other: usize) -> Self {
        let (others, touched) = (NodeSet::default(), NodeSet::default());
        let (hold, kilobits, keeps_ms) = (Duration::ZERO, 1, 1);
        let (moves, returns, instead, pick, recovers) = (false, false, false, 0, false);
        Self { kind, victim, other, hold, kilobits, keeps_ms, others, touched, moves, returns, instead, pick, recovers }
    }

    pub(super) fn killed(&self) -> NodeSet {
        let killed = NodeSet::of(self.victim).and(self.others).and(self.touched);
        if self.kind.kills() || self.instead { killed } else { NodeSet::default() }
    }

    /// The nodes that become unreachable, so that the configuration may drop them.
    pub(super) fn removes(&self) -> NodeSet {
        match self.kind {
            Kind::Cut | Kind::OneWay | Kind::Slow | Kind::Twin => NodeSet::default(),
            Kind::Young => self.killed(),
            _ => self.killed().and(NodeSet::of(self.victim)),
        }
    }

    pub(super) fn aim(&mut self, victim: usize) {
        // `other` must differ from the victim.
        if self.other == victim {
            self.other = self.victim;
        }
        if self.touched.contains(self.victim) && !self.touched.contains(victim) {
            self.touched = self.touched.without(NodeSet::of(self.victim)).and(NodeSet::of(victim));
        }
        self.victim = victim;
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alone = self.killed() == self.touched;
        match self.kind {
            Kind::KillAll => write!(f, "{}", self.kind),
            Kind::Young if !self.instead => write!(f, "{}", self.kind),
            Kind::Twin => write!(f, "{} of {}", self.kind, name(self.victim)),
            Kind::KillSome => write!(f, "{} {}", self.kind, self.killed()),
            kind if !kind.touches() => write!(f, "{kind} {}", name(self.victim)),
            kind if alone => write!(f, "{kind} {}", self.touched),
            kind => write!(f, "{kind} {} of killed {}", self.touched, self.killed()),
        }?;
        match self.kind {
            Kind::Cut => write!(f, " and {}", name(self.other)),
            Kind::OneWay => write!(f, " from {}", name(self.other)),
            Kind::Slow => write!(f, " to {} kbit/s", self.kilobits),
            _ => Ok(()),
        }?;
        let moves = if self.moves { ", then at other ports" } else { "" };
        let back = if self.returns { ", then the old one again" } else { "" };
        write!(f, " for {:.1} s{moves}{back}", self.hold.as_secs_f64())
    }
}

/// The maximum number of voters that may lose their directories at once without a recovery.
pub(super) fn minority(voters: usize) -> usize {
    voters.saturating_sub(1) / 2
}

/// The maximum number of voters in the configuration log.
const MOST_VOTERS: usize = 5;

pub(super) fn name(node: usize) -> String {
    format!("n{}", node + 1)
}

/// Faults in an order determined by the seed: all given kinds once per turn, each turn in a new order.
pub(super) struct Plan {
    dice: Dice,
    nodes: usize,
    kinds: Vec<Kind>,
    bag: Vec<Kind>,
    durable: bool,
}

impl Plan {
    pub(super) fn new(seed: u64, nodes: usize, kinds: &[Kind], durable: bool) -> Self {
        let kinds = if kinds.is_empty() { Kind::all(durable) } else { kinds.to_vec() };
        Self { dice: Dice::new(seed), nodes, kinds, bag: Vec::new(), durable }
    }

    /// A restart of all nodes, which may delete directories: of at most a minority of the voters or, with `recovers`,
    /// of a bare majority.
    pub(super) fn restart_of_all(&mut self, recovers: bool) -> Fault {
        let victim = self.dice.below(self.nodes as u64) as usize;
        let most = minority(self.nodes.min(MOST_VOTERS));
        let many = if recovers { most + 1 } else { self.dice.below(most as u64 + 1) as usize };
        let kind = if many > 0 { Kind::Wipe } else { Kind::KillAll };
        let touched = if many > 0 { self.some(victim, many) } else { NodeSet::default() };
        let (others, moves, pick) = (NodeSet::all(self.nodes), self.dice.below(2) == 0, self.dice.below(u64::MAX));
        let hold = Duration::from_millis(self.dice.below(1000));
        Fault { hold, others, touched, moves, pick, recovers, ..Fault::of(kind, victim, victim) }
    }

    /// The next fault. The victim is a position among the nodes, independent of their roles.
    pub(super) fn next(&mut self) -> Fault {
        if self.bag.is_empty() {
            self.bag.clone_from(&self.kinds);
        }
        let place = self.dice.below(self.bag.len() as u64) as usize;
        let kind = self.bag.swap_remove(place);
        let victim = self.dice.below(self.nodes as u64) as usize;
        let other = (victim + 1 + self.dice.below(self.nodes as u64 - 1) as usize) % self.nodes;
        let (least, most) = kind.span();
        let hold = Duration::from_millis(least + self.dice.below(most - least));
        let (kilobits, keeps_ms) = (128 << self.dice.below(4), 200 + self.dice.below(800));
        let mut fault = Fault { hold, kilobits, keeps_ms, ..Fault::of(kind, victim, other) };
        match kind {
            Kind::Address => fault.returns = self.dice.below(2) == 0,
            Kind::Young => (fault.instead, fault.pick) = (self.dice.below(2) == 0, self.dice.below(u64::MAX)),
            _ if self.durable && kind.kills() => self.draw_nodes(&mut fault),
            _ => {}
        }
        fault
    }

    /// Draws the nodes that are killed with the victim, the directories that are changed, and whether nodes change
    /// ports.
    fn draw_nodes(&mut self, fault: &mut Fault) {
        let (kind, all) = (fault.kind, self.nodes);
        (fault.moves, fault.pick) = (self.dice.below(3) == 0, self.dice.below(u64::MAX));
        if kind.touches() {
            let most = minority(all.min(MOST_VOTERS)).max(1);
            let many = 1 + self.dice.below(most as u64) as usize;
            fault.touched = self.some(fault.victim, many);
        }
        // The scope is the touched nodes alone, more nodes, or all nodes.
        let scope = if kind.touches() { self.dice.below(3) } else { 1 };
        fault.others = match (kind, scope) {
            (Kind::Kill, _) | (_, 0) => NodeSet::default(),
            (Kind::KillAll, _) | (_, 2) => NodeSet::all(all),
            _ => {
                let many = 2 + self.dice.below(all as u64 - 2) as usize;
                self.some(fault.victim, many)
            }
        };
    }

    /// A set of `many` random nodes that contains `node`.
    fn some(&mut self, node: usize, many: usize) -> NodeSet {
        let mut set = NodeSet::of(node);
        while set.len() < many {
            set = set.and(NodeSet::of(self.dice.below(self.nodes as u64) as usize));
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_faults() {
        let plan = |seed| Plan::new(seed, 5, &[], true);
        let (mut one, mut same, mut another) = (plan(7), plan(7), plan(8));
        let all: Vec<_> = (0..40).map(|_| one.next()).collect();
        assert!(all.iter().all(|fault| *fault == same.next()));
        assert!(all.iter().any(|fault| *fault != another.next()));
        assert!(all.iter().all(|fault| fault.victim != fault.other && fault.victim.max(fault.other) < 5));
    }

    #[test]
    fn no_kind_is_left_out() {
        for durable in [false, true] {
            let mut plan = Plan::new(1, 3, &[], durable);
            let mut kinds: Vec<_> = Kind::all(durable).iter().map(|_| plan.next().kind).collect();
            kinds.sort_unstable();
            assert_eq!(kinds, Kind::all(durable));
        }
        assert_eq!(Kind::all(true), Kind::value_variants());
        let mut plan = Plan::new(1, 3, &[Kind::Slow], false);
        assert!((0..5).all(|_| plan.next().kind == Kind::Slow));
    }

    #[test]
    fn half_of_the_addresses_return_and_half_of_the_young_nodes_replace_a_victim() {
        for durable in [false, true] {
            let mut plan = Plan::new(3, 3, &[Kind::Address, Kind::Young, Kind::Twin, Kind::Outbound], durable);
            let faults: Vec<_> = (0..400).map(|_| plan.next()).collect();
            let count = |of: fn(&&Fault) -> bool| faults.iter().filter(of).count();
            assert!((30..70).contains(&count(|fault| fault.returns)));
            assert!((30..70).contains(&count(|fault| fault.instead)));
            assert!(faults.iter().all(|fault| !fault.returns || fault.kind == Kind::Address));
            assert!(faults.iter().all(|fault| fault.instead != fault.killed().is_empty()));
            let spares = |fault: &Fault| fault.kind == Kind::Twin || fault.kind == Kind::Young && !fault.instead;
            assert!(faults.iter().all(|fault| spares(fault) == fault.removes().is_empty()));
        }
    }

    #[test]
    fn a_minority_of_the_directories_is_touched_and_their_nodes_are_killed() {
        for nodes in [3, 4, 5, 9] {
            let mut plan = Plan::new(1, nodes, &[], true);
            let (mut alone, mut all) = (0, 0);
            for _ in 0..300 {
                let mut fault = plan.next();
                fault.aim(plan.dice.below(nodes as u64) as usize);
                assert_eq!(fault.kind.touches(), !fault.touched.is_empty());
                assert!(fault.touched.len() <= minority(nodes.min(5)), "{fault}");
                assert!(fault.touched.without(fault.killed()).is_empty(), "{fault}");
                assert_eq!(fault.kind.kills() || fault.instead, !fault.killed().is_empty());
                alone += usize::from(fault.kind.touches() && fault.killed() == fault.touched);
                all += usize::from(fault.kind.touches() && fault.killed().len() == nodes);
            }
            assert!(alone > 5 && all > 5, "{nodes}: {alone} {all}");
            let restarts: Vec<_> = (0..40).map(|_| plan.restart_of_all(false)).collect();
            assert!(restarts.iter().all(|fault| fault.killed() == NodeSet::all(nodes)));
            assert!(restarts.iter().all(|fault| fault.touched.len() <= minority(nodes.min(5))));
            assert!(restarts.iter().any(|fault| fault.touched.len() == minority(nodes.min(5))));
            assert!(restarts.iter().any(|fault| fault.touched.is_empty()));
            assert_eq!(plan.restart_of_all(true).touched.len(), minority(nodes.min(5)) + 1);
        }
    }
}
