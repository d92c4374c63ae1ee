//! The faults, and their sequence.

use std::{fmt, time::Duration};

use artillery_programs::chance::Dice;
use clap::ValueEnum;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Kind {
    /// A node is killed, and started again without its data
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
}

impl Kind {
    /// How long it lasts, in milliseconds: at least and at most.
    fn span(self) -> (u64, u64) {
        match self {
            Self::Kill | Self::Restart => (200, 4000),
            Self::Pause => (300, 6000),
            // Long enough for the lease to end, and for the checks of an isolated member.
            Self::Isolate => (8000, 10_000),
            Self::Cut | Self::OneWay | Self::Deaf | Self::Mute => (1000, 6000),
            Self::Slow => (2000, 6000),
        }
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
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, name(self.victim))?;
        match self.kind {
            Kind::Cut => write!(f, " and {}", name(self.other)),
            Kind::OneWay => write!(f, " from {}", name(self.other)),
            Kind::Slow => write!(f, " to {} kbit/s", self.kilobits),
            _ => Ok(()),
        }?;
        write!(f, " for {:.1} s", self.hold.as_secs_f64())
    }
}

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
}

impl Plan {
    pub(super) fn new(seed: u64, nodes: usize, kinds: &[Kind]) -> Self {
        let kinds = if kinds.is_empty() { Kind::value_variants() } else { kinds };
        Self { dice: Dice::new(seed), nodes, kinds: kinds.to_vec(), bag: Vec::new() }
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
        Fault { kind, victim, other, hold, kilobits, keeps_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_faults() {
        let (mut one, mut same, mut another) = (Plan::new(7, 5, &[]), Plan::new(7, 5, &[]), Plan::new(8, 5, &[]));
        let all: Vec<_> = (0..40).map(|_| one.next()).collect();
        assert!(all.iter().all(|fault| *fault == same.next()));
        assert!(all.iter().any(|fault| *fault != another.next()));
        assert!(all.iter().all(|fault| fault.victim != fault.other && fault.victim.max(fault.other) < 5));
    }

    #[test]
    fn no_kind_is_left_out() {
        let mut plan = Plan::new(1, 3, &[]);
        let mut kinds: Vec<_> = Kind::value_variants().iter().map(|_| plan.next().kind).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, Kind::value_variants());
        let mut plan = Plan::new(1, 3, &[Kind::Slow]);
        assert!((0..5).all(|_| plan.next().kind == Kind::Slow));
    }
}
