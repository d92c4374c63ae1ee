//! Faults for the members that have a certain role when the fault begins, rather than for given nodes.

use std::fmt;

use super::{Fault, Kind, Planned};
use crate::rng::Rng;

const MILLI: u64 = 1_000_000;

/// A fault for the members that have a certain role in the first chain, or lead the log, when it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Play {
    /// Only the head receives messages of the tail.
    WhisperingTail,
    /// The tail is cut off, and the successor of the head receives nothing from the head.
    LostTail,
    /// All members except the head are cut off together from all other nodes.
    LostRest,
    /// The head is cut off.
    LostHead,
    /// The head receives nothing from other nodes, but can send to all of them.
    DeafHead,
    /// No other node can dial the leader of the configuration log, which can dial others.
    UndialableLeader,
}

impl Play {
    /// The kind under which reports count it.
    pub const fn kind(self) -> Kind {
        match self {
            Self::WhisperingTail | Self::LostRest | Self::DeafHead => Kind::Cut,
            Self::LostTail | Self::LostHead => Kind::Isolate,
            Self::UndialableLeader => Kind::Undialable,
        }
    }
}

impl fmt::Display for Play {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WhisperingTail => "whispering tail",
            Self::LostTail => "lost tail",
            Self::LostRest => "lost rest of a chain",
            Self::LostHead => "lost head",
            Self::DeafHead => "deaf head",
            Self::UndialableLeader => "leader that can't be dialled",
        })
    }
}

/// Adds plays to a plan, the first of which begins at the given time. Returns the time at which all of them are over.
type Plot = fn(&mut Rng, u64, &mut Vec<Planned>) -> u64;

/// Repeats a plot between `from` and `until`, with time to heal in between.
pub fn plays(rng: &mut Rng, plot: Plot, from: u64, until: u64) -> Vec<Planned> {
    let (mut at, mut plan) = (from, Vec::new());
    while at < until {
        at = plot(rng, at, &mut plan) + rng.between(300, 1500) * MILLI;
    }
    plan.retain(|planned| planned.end <= until);
    plan
}

fn play(play: Play, start: u64, end: u64) -> Planned {
    Planned { fault: Fault::Play(play), start, end }
}

/// Loses the tail after a commit that was announced only to the head. The other members notice the loss late.
pub fn lose_tail(rng: &mut Rng, at: u64, plan: &mut Vec<Planned>) -> u64 {
    let lost = at + rng.between(50, 300) * MILLI;
    let end = lost + rng.between(600, 1500) * MILLI;
    plan.extend([play(Play::WhisperingTail, at, end), play(Play::LostTail, lost, end)]);
    end
}

/// Cuts off all members except the head. The members that are cut off still reach each other.
pub fn lose_rest(rng: &mut Rng, at: u64, plan: &mut Vec<Planned>) -> u64 {
    let end = at + rng.between(600, 2000) * MILLI;
    plan.push(play(Play::LostRest, at, end));
    end
}

/// Cuts off the head for long enough to be replaced.
pub fn lose_head(rng: &mut Rng, at: u64, plan: &mut Vec<Planned>) -> u64 {
    let end = at + rng.between(500, 1500) * MILLI;
    plan.push(play(Play::LostHead, at, end));
    end
}
