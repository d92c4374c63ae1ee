//! The faults, and their sequence.

use std::{fmt, time::Duration};

use artillery_programs::chance::Dice;
use clap::ValueEnum;

use super::set::NodeSet;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Kind {
    /// A node is killed, and started again: with its directory, or without its data
    Kill,
    /// A node is asked to stop, does so, and is started again
    Restart,
    /// A node stands still, and goes on later
    Pause,
    /// Two nodes don't hear each other
    Cut,
    /// A node doesn't hear one other, which hears it
    OneWay,
    /// A node and all others don't hear each other
    Isolate,
    /// A node hears no other, and is heard by all
    Deaf,
    /// A node is heard by no other, and hears all
    Mute,
    /// A node's links to the others carry little, and late
    Slow,
    /// A running node's address is replaced
    Address,
    /// A second process with the name of a living node is started
    Twin,
    /// A node without a name is started and killed again and again
    Young,
    /// A node dials others, and none can dial it
    Outbound,
    /// Several nodes are killed at once (--data)
    KillSome,
    /// All nodes are killed at once (--data)
    KillAll,
    /// The directories of killed nodes are deleted (--data)
    Wipe,
    /// A bit is flipped in the directories of killed nodes (--data)
    Damage,
    /// Older copies take the place of the directories of killed nodes (--data)
    Restore,
}

impl Kind {
    /// How long it lasts, in milliseconds: at least and at most.
    fn span(self) -> (u64, u64) {
        match self {
            Self::Kill | Self::Restart => (200, 4000),
            Self::KillSome | Self::KillAll | Self::Wipe | Self::Damage | Self::Restore => (200, 4000),
            Self::Pause => (300, 6000),
            // Long enough for the lease to end, and for the checks of an isolated member.
            Self::Isolate => (8000, 10_000),
            Self::Cut | Self::OneWay | Self::Deaf | Self::Mute => (1000, 6000),
            Self::Slow => (2000, 6000),
            // Long enough for the check that the others serve meanwhile.
            Self::Address | Self::Young | Self::Outbound => (6000, 9000),
            // The twin has so long to end by itself.
            Self::Twin => (9000, 10_000),
        }
    }

    /// Whether it is a fault of nodes with a directory alone.
    pub(super) fn wants_directories(self) -> bool {
        matches!(self, Self::KillSome | Self::KillAll) || self.touches()
    }

    /// Whether it changes directories.
    pub(super) fn touches(self) -> bool {
        matches!(self, Self::Wipe | Self::Damage | Self::Restore)
    }

    /// Whether the nodes that it leaves alone have to serve soon after it begins, too.
    pub(super) fn is_checked_at_its_begin(self) -> bool {
        matches!(self, Self::Address | Self::Twin | Self::Young | Self::Outbound)
    }

    /// Whether nodes are killed.
    pub(super) fn kills(self) -> bool {
        self == Self::Kill || self.wants_directories()
    }

    /// All kinds that nodes with, or without, directories can have.
    pub(super) fn all(durable: bool) -> Vec<Self> {
        Self::value_variants().iter().copied().filter(|kind| durable || !kind.wants_directories()).collect()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As `--kinds` takes it. No kind is hidden there.
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) victim: usize,
    /// The other end of a cut; never the victim.
    pub(super) other: usize,
    pub(super) hold: Duration,
    /// What a slow link carries, and for how long it keeps what waits.
    pub(super) kilobits: u64,
    pub(super) keeps_ms: u64,
    /// Nodes that are killed together with the victim.
    pub(super) others: NodeSet,
    /// Nodes of which the directory is changed: all of them are killed.
    pub(super) touched: NodeSet,
    /// Killed nodes come back at other ports.
    pub(super) moves: bool,
    /// A node whose address is replaced gets the old one back in the end.
    pub(super) returns: bool,
    /// The young nodes run instead of the victim, which is killed.
    pub(super) instead: bool,
    /// Chooses what is changed in a directory, or how long young nodes live.
    pub(super) pick: u64,
    /// A majority of the voters loses its directories, and an operator recovers the cluster.
    pub(super) recovers: bool,
}

impl Fault {
    /// A fault of two nodes that lasts no time.
    pub(super) fn of(kind: Kind, victim: usize, other: usize) -> Self {
        let (others, touched) = (NodeSet::default(), NodeSet::default());
        let (hold, kilobits, keeps_ms) = (Duration::ZERO, 1, 1);
        let (moves, returns, instead, pick, recovers) = (false, false, false, 0, false);
        Self { kind, victim, other, hold, kilobits, keeps_ms, others, touched, moves, returns, instead, pick, recovers }
    }

    /// The nodes that are killed.
    pub(super) fn killed(&self) -> NodeSet {
        let killed = NodeSet::of(self.victim).and(self.others).and(self.touched);
        if self.kind.kills() || self.instead { killed } else { NodeSet::default() }
    }

    /// The nodes that the others have to do without, so that the configuration may leave them out.
    pub(super) fn removes(&self) -> NodeSet {
        match self.kind {
            Kind::Cut | Kind::OneWay | Kind::Slow | Kind::Twin => NodeSet::default(),
            Kind::Young => self.killed(),
            _ => self.killed().and(NodeSet::of(self.victim)),
        }
    }

    /// Makes another node the victim.
    pub(super) fn aim(&mut self, victim: usize) {
        // The two ends of a cut stay two.
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

/// The most voters that may lose their directories at once.
pub(super) fn minority(voters: usize) -> usize {
    voters.saturating_sub(1) / 2
}

/// The most nodes that keep the configuration.
const MOST_VOTERS: usize = 5;

/// The name of a node.
pub(super) fn name(node: usize) -> String {
    format!("n{}", node + 1)
}

/// Faults in an order that comes from a seed alone: every kind once, then every kind once more in another order.
pub(super) struct Plan {
    dice: Dice,
    nodes: usize,
    kinds: Vec<Kind>,
    bag: Vec<Kind>,
    /// Nodes have directories.
    durable: bool,
}

impl Plan {
    pub(super) fn new(seed: u64, nodes: usize, kinds: &[Kind], durable: bool) -> Self {
        let kinds = if kinds.is_empty() { Kind::all(durable) } else { kinds.to_vec() };
        Self { dice: Dice::new(seed), nodes, kinds, bag: Vec::new(), durable }
    }

    /// A restart of all, with the directories of at most a minority of the voters deleted, or else of a bare majority.
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

    /// The next fault. The victim is a place among the nodes, independent of their roles by then.
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

    /// Draws which nodes are killed beside the victim, which directories are changed, and where nodes come back.
    fn draw_nodes(&mut self, fault: &mut Fault) {
        let (kind, all) = (fault.kind, self.nodes);
        (fault.moves, fault.pick) = (self.dice.below(3) == 0, self.dice.below(u64::MAX));
        if kind.touches() {
            let most = minority(all.min(MOST_VOTERS)).max(1);
            let many = 1 + self.dice.below(most as u64) as usize;
            fault.touched = self.some(fault.victim, many);
        }
        // The victims alone, more, or all.
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

    /// So many nodes, one of them given.
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
