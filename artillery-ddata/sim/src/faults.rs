//! The faults of a run with their times, planned from the seed before the world starts.

pub mod play;

use std::fmt;

pub use play::Play;

use crate::rng::Rng;

/// The kind of a fault, for reports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Frames, requests and replies get lost.
    Loss,
    /// Frames arrive twice.
    Duplication,
    /// Frames overtake each other.
    Reorder,
    /// Frames, requests and replies take several times as long.
    Delay,
    /// A connection breaks, and recovers later.
    Break,
    /// Frames from one node to another are dropped, but not those in the other direction.
    Cut,
    /// A member is slow to process each input.
    Slow,
    /// The disk of a node is several times slower to sync.
    SlowDisk,
    /// A node stops permanently.
    Crash,
    /// A node starts another incarnation with empty memory.
    Restart,
    /// A node pauses, and then continues as if no time had passed.
    Pause,
    /// All frames to and from a node are dropped, but no connection breaks.
    Isolate,
    /// Frames to and from a node take many times as long.
    Far,
    /// An operator reorders the members of a chain.
    Order,
    /// An operator drains a node.
    Drain,
    /// A node leaves permanently.
    Leave,
    /// An operator restarts one node after the other, waiting for each to be ready.
    Roll,
    /// The store of a node fails, so that its chains stop serving. Then the node starts another incarnation.
    Halt,
    /// An operator orders a node to create another cluster in place of this one.
    Found,
    /// Nodes meet another cluster with the same name and secret.
    Meet,
    /// Most voters of the log are lost permanently, and an operator recovers the cluster from the rest.
    Recover,
    /// Some or all nodes with disks end at once, and start again.
    Outage,
    /// All disks of a chain's members are lost permanently, and an operator accepts that.
    Accept,
    /// A node can dial others but can't be dialled: its address has changed, or a firewall blocks inbound connections.
    Undialable,
    /// A node without a name starts, soon dies, and starts as another node, in a loop.
    Young,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 25] = [
        Self::Loss,
        Self::Duplication,
        Self::Reorder,
        Self::Delay,
        Self::Break,
        Self::Cut,
        Self::Slow,
        Self::SlowDisk,
        Self::Crash,
        Self::Restart,
        Self::Pause,
        Self::Isolate,
        Self::Far,
        Self::Order,
        Self::Drain,
        Self::Leave,
        Self::Roll,
        Self::Halt,
        Self::Found,
        Self::Meet,
        Self::Recover,
        Self::Outage,
        Self::Accept,
        Self::Undialable,
        Self::Young,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Duplication => "duplication",
            Self::Reorder => "reorder",
            Self::Delay => "delay",
            Self::Break => "break",
            Self::Cut => "cut",
            Self::Slow => "slow",
            Self::SlowDisk => "slow-disk",
            Self::Crash => "crash",
            Self::Restart => "restart",
            Self::Pause => "pause",
            Self::Isolate => "isolate",
            Self::Far => "far",
            Self::Order => "order",
            Self::Drain => "drain",
            Self::Leave => "leave",
            Self::Roll => "roll",
            Self::Halt => "halt",
            Self::Found => "found",
            Self::Meet => "meet",
            Self::Recover => "recover",
            Self::Outage => "outage",
            Self::Accept => "accept",
            Self::Undialable => "undialable",
            Self::Young => "young",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// This many of a thousand frames, requests and replies get lost.
    Loss(u32),
    /// This many of a thousand frames arrive twice.
    Duplication(u32),
    /// This many of a thousand frames are held back so that later ones overtake them.
    Reorder(u32),
    /// Delays are multiplied by this.
    Delay(u64),
    /// The connection of these two nodes is down.
    Break(usize, usize),
    /// Frames from the first to the second node are dropped.
    Cut(usize, usize),
    /// This node needs this many nanoseconds per input.
    Slow(usize, u64),
    /// The disk of this node syncs slower by this factor.
    SlowDisk(usize, u64),
    /// This node stops permanently.
    Crash(usize),
    /// This node is down, and then starts another incarnation.
    Restart(usize),
    /// This node is down, and then starts with an empty disk if all its data is also on other disks.
    Replace(usize),
    /// This node is paused.
    Pause(usize),
    /// All frames to and from this node are dropped.
    Isolate(usize),
    /// Faults that are determined when the play begins.
    Play(Play),
    /// Frames to and from this node take longer by this factor.
    Far(usize, u64),
    /// The members of the first chain are reordered as drawn from this number.
    Order(u64),
    /// This node is asked to leave, and then starts another incarnation.
    Drain(usize),
    /// This node is asked to stop, and ends when it reports that it has left.
    Leave(usize),
    /// The store of this node fails. Then the node starts another incarnation.
    Halt(usize),
    /// Nodes drawn from this number end, some of them at one of their next writes, and then start again.
    Outage(u64),
    /// No other node can dial this one, which can dial others.
    Undialable(usize),
    /// This node ends repeatedly, and each time starts as another node.
    Young(usize),
}

impl Fault {
    /// The kind under which reports count it.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Loss(_) => Kind::Loss,
            Self::Duplication(_) => Kind::Duplication,
            Self::Reorder(_) => Kind::Reorder,
            Self::Delay(_) => Kind::Delay,
            Self::Break(..) => Kind::Break,
            Self::Cut(..) => Kind::Cut,
            Self::Slow(..) => Kind::Slow,
            Self::SlowDisk(..) => Kind::SlowDisk,
            Self::Crash(_) => Kind::Crash,
            Self::Restart(_) | Self::Replace(_) => Kind::Restart,
            Self::Pause(_) => Kind::Pause,
            Self::Isolate(_) => Kind::Isolate,
            Self::Play(play) => play.kind(),
            Self::Far(..) => Kind::Far,
            Self::Order(_) => Kind::Order,
            Self::Drain(_) => Kind::Drain,
            Self::Leave(_) => Kind::Leave,
            Self::Halt(_) => Kind::Halt,
            Self::Outage(_) => Kind::Outage,
            Self::Undialable(_) => Kind::Undialable,
            Self::Young(_) => Kind::Young,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loss(permille) => write!(f, "loss of {permille}/1000"),
            Self::Duplication(permille) => write!(f, "duplication of {permille}/1000"),
            Self::Reorder(permille) => write!(f, "reorder of {permille}/1000"),
            Self::Delay(factor) => write!(f, "delay times {factor}"),
            Self::Break(a, b) => write!(f, "break of n{a}-n{b}"),
            Self::Cut(from, to) => write!(f, "cut of n{from}->n{to}"),
            Self::SlowDisk(node, factor) => write!(f, "disk of n{node} {factor} times as slow"),
            Self::Slow(node, nanos) => write!(f, "slow n{node} by {nanos} ns"),
            Self::Crash(node) => write!(f, "crash of n{node}"),
            Self::Restart(node) => write!(f, "restart of n{node}"),
            Self::Replace(node) => write!(f, "restart of n{node} with an empty disk"),
            Self::Pause(node) => write!(f, "pause of n{node}"),
            Self::Isolate(node) => write!(f, "isolation of n{node}"),
            Self::Play(play) => write!(f, "{play}"),
            Self::Far(node, factor) => write!(f, "n{node} {factor} times as far"),
            Self::Order(number) => write!(f, "order {number}"),
            Self::Drain(node) => write!(f, "drain of n{node}"),
            Self::Leave(node) => write!(f, "n{node} leaves"),
            Self::Halt(node) => write!(f, "failure of the store of n{node}"),
            Self::Outage(number) => write!(f, "outage {number}"),
            Self::Undialable(node) => write!(f, "n{node} can't be dialled"),
            Self::Young(node) => write!(f, "crash loop of n{node}"),
        }
    }
}

/// A fault and its interval in virtual nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Planned {
    /// The fault and its target.
    pub fault: Fault,
    /// When it begins.
    pub start: u64,
    /// When it ends; `u64::MAX` for a crash.
    pub end: u64,
}

/// Minimum number of faults per seed.
pub const FEWEST: usize = 5;

const MILLI: u64 = 1_000_000;

/// Plans at least [`FEWEST`] faults of these `kinds` between `from` and `until`. Ignores kinds that are planned
/// elsewhere, such as crashes ([`crash`]) and restarts ([`restarts`]), and plans none if no other kind remains.
pub fn plan(rng: &mut Rng, kinds: &[Kind], nodes: usize, from: u64, until: u64) -> Vec<Planned> {
    let kinds: Vec<Kind> = kinds
        .iter()
        .copied()
        .filter(|&kind| {
            !matches!(
                kind,
                Kind::Crash | Kind::Restart | Kind::Roll | Kind::Found | Kind::Meet | Kind::Recover | Kind::Accept
            )
        })
        .collect();
    if kinds.is_empty() {
        return Vec::new();
    }
    let count = rng.between(FEWEST.max(kinds.len()) as u64, 14.max(kinds.len() as u64));
    let mut plan: Vec<Planned> = (0..count as usize)
        .map(|n| {
            // Every kind once, then random kinds.
            let kind = if n < kinds.len() { kinds[n] } else { rng.pick(&kinds) };
            let start = rng.between(from, until - MILLI);
            let length = match rng.below(4) {
                0 => rng.between(MILLI, 50 * MILLI),
                1 => rng.between(1000 * MILLI, 3000 * MILLI),
                _ => rng.between(50 * MILLI, 1000 * MILLI),
            };
            Planned { fault: draw(rng, kind, nodes), start, end: (start + length).min(until) }
        })
        .collect();
    plan.sort_by_key(|planned| planned.start);
    plan
}

/// The crash of one of `nodes` between `from` and `until`.
pub fn crash(rng: &mut Rng, nodes: usize, from: u64, until: u64) -> Planned {
    Planned { fault: Fault::Crash(rng.index(nodes)), start: rng.between(from, until), end: u64::MAX }
}

/// One to four restarts of random nodes, of `nodes`, that begin before `until`.
pub fn restarts(rng: &mut Rng, nodes: usize, until: u64) -> Vec<Planned> {
    let count = rng.between(1, 4);
    let one = |rng: &mut Rng| {
        let start = rng.between(MILLI, until);
        Planned { fault: Fault::Restart(rng.index(nodes)), start, end: start + rng.between(20, 1500) * MILLI }
    };
    (0..count).map(|_| one(rng)).collect()
}

/// Restarts of random `nodes`, one at a time, that begin between `from` and `until`.
pub fn rolling(rng: &mut Rng, nodes: usize, from: u64, until: u64) -> Vec<Planned> {
    let mut at = from;
    let mut plan = Vec::new();
    while at < until {
        let end = at + rng.between(100, 2500) * MILLI;
        plan.push(Planned { fault: Fault::Restart(rng.index(nodes)), start: at, end });
        at = end + rng.between(500, 5000) * MILLI;
    }
    plan
}

/// Makes one node at a time undialable between `from` and `until`, briefly (a new address) or for `long`. It is one of
/// `nodes` or the leader of the log.
pub fn undialable(rng: &mut Rng, nodes: usize, from: u64, until: u64, long: (u64, u64)) -> Vec<Planned> {
    let mut at = from;
    let mut plan = Vec::new();
    while at < until {
        let length = if rng.chance(400) { rng.between(50 * MILLI, 3000 * MILLI) } else { rng.between(long.0, long.1) };
        let end = (at + length).min(until);
        let (node, leads) = (rng.index(nodes), rng.chance(500));
        let fault = if leads { Fault::Play(Play::UndialableLeader) } else { Fault::Undialable(node) };
        plan.push(Planned { fault, start: at, end });
        at = end + rng.between(500, 4000) * MILLI;
    }
    plan
}

/// Cuts off or pauses one of `nodes` at a time, between `from` and `until`.
pub fn unrest(rng: &mut Rng, nodes: usize, from: u64, until: u64) -> Vec<Planned> {
    let mut at = from;
    let mut plan = Vec::new();
    while at < until {
        let node = rng.index(nodes);
        let fault = if rng.chance(700) { Fault::Isolate(node) } else { Fault::Pause(node) };
        let end = (at + rng.between(150, 900) * MILLI).min(until);
        plan.push(Planned { fault, start: at, end });
        at = end + rng.between(50, 500) * MILLI;
    }
    plan
}

fn draw(rng: &mut Rng, kind: Kind, nodes: usize) -> Fault {
    let (a, b) = two(rng, nodes);
    match kind {
        Kind::Loss => Fault::Loss(rng.between(20, 400) as u32),
        Kind::Duplication => Fault::Duplication(rng.between(50, 600) as u32),
        Kind::Reorder => Fault::Reorder(rng.between(50, 600) as u32),
        Kind::Delay => Fault::Delay(rng.between(3, 40)),
        Kind::Break => Fault::Break(a, b),
        Kind::Cut => Fault::Cut(a, b),
        Kind::SlowDisk => Fault::SlowDisk(a, rng.between(10, 100)),
        Kind::Slow => Fault::Slow(a, rng.between(MILLI / 5, 15 * MILLI)),
        Kind::Crash => Fault::Crash(a),
        Kind::Restart | Kind::Roll | Kind::Found | Kind::Meet | Kind::Recover | Kind::Accept => Fault::Restart(a),
        Kind::Pause => Fault::Pause(a),
        Kind::Isolate => Fault::Isolate(a),
        Kind::Far => Fault::Far(a, 100),
        Kind::Order => Fault::Order(a as u64),
        Kind::Drain => Fault::Drain(a),
        Kind::Leave => Fault::Leave(a),
        Kind::Halt => Fault::Halt(a),
        Kind::Outage => Fault::Outage(rng.below(1 << 20)),
        Kind::Undialable => Fault::Undialable(a),
        Kind::Young => Fault::Young(nodes - 1),
    }
}

/// Two nodes, distinct if there are at least two.
fn two(rng: &mut Rng, nodes: usize) -> (usize, usize) {
    let a = rng.index(nodes);
    let step = 1 + rng.index(nodes.saturating_sub(1).max(1));
    (a, (a + step) % nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Concern;

    #[test]
    fn a_plan_has_each_kind_in_its_time() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed, Concern::Faults);
            let kinds = [Kind::Loss, Kind::Break, Kind::Cut, Kind::Slow];
            let plan = plan(&mut rng, &kinds, 3, 1000, 20_000 * MILLI);
            assert!(plan.len() >= FEWEST);
            for kind in kinds {
                assert!(plan.iter().any(|planned| planned.fault.kind() == kind), "{kind} is missing");
            }
            for planned in plan {
                assert!(1000 <= planned.start && planned.start < planned.end && planned.end <= 20_000 * MILLI);
                if let Fault::Break(a, b) | Fault::Cut(a, b) = planned.fault {
                    assert!(a != b && a < 3 && b < 3);
                }
            }
        }
    }
}
