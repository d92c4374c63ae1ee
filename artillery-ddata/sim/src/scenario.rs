//! Scenarios: named kinds of worlds, with their setups and faults.

mod directed;
mod draw;
mod every_write;
mod gray;
mod leaves;
mod names;
mod setup;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use artillery_proto::{
    Mode,
    guards::{Guards, Mutant},
};

use self::directed::{busy, crowd, disturbed, forks, halves, last_words, overlaps, race, stalls, unequal, whispers};
use self::draw::{
    addresses, batches, clocks, common, disks, evictions, founded, hold_lists, lags, large, losses, mixed, moving,
    one_key, power, readers, resync, retries, scripts, sole, turmoil, unrest, walks, watches, young,
};
pub use self::{
    every_write::every_write,
    gray::{BACK, Gray, gray_setup},
    setup::{ControlSetup, FoundingSetup, Setup},
};

use crate::{
    client::Mix,
    faults::{self, Fault, Kind, Planned, play},
    rng::{Concern, Rng},
};

/// The virtual second in nanoseconds.
pub const SECOND: u64 = 1_000_000_000;

/// How many of a thousand seeds have disks, in scenarios in which nodes may restart, unless another number is set.
pub const DURABLE: u32 = 300;

static DISKS: AtomicU32 = AtomicU32::new(DURABLE);

/// Sets how many of a thousand seeds have disks, in scenarios in which nodes may restart. Call it before any of them runs.
pub fn set_disks(permille: u32) {
    DISKS.store(permille, Relaxed);
}

/// How many of a thousand seeds have disks, in scenarios in which nodes may restart.
pub fn disks_of_seeds() -> u32 {
    DISKS.load(Relaxed)
}

/// Fewest operations of a seed, as a rule.
pub const OPERATIONS: u64 = 2_000;
/// When faults begin.
pub const TROUBLE: u64 = SECOND / 2;
/// When restarts of nodes that form a cluster end.
pub const FOUNDED: u64 = 5 * SECOND;
/// When all faults but crashes are over, as a rule.
pub const HEALED: u64 = 20 * SECOND;
/// Within this time of healing every chain is whole and each member of it has served.
pub const RECOVERY: u64 = 5 * SECOND;
/// When members begin to crash.
pub const CRASHES: u64 = 27 * SECOND;
/// When clients stop if they did enough, as a rule.
pub const STOP: u64 = 30 * SECOND;
/// When clients stop in any case.
pub const LAST: u64 = 120 * SECOND;

/// A named kind of world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scenario {
    /// Three members, nothing worse than delays.
    Calm,
    /// Loss, duplication, reordering.
    Lossy,
    /// Connections that break and come back, one-way cuts.
    Links,
    /// Slow members and windows so small that heads answer `Busy`.
    Slow,
    /// All faults, then a member stops for good.
    Crash,
    /// Strong reads at the tail alone.
    Classic,
    /// A chain of one.
    Single,
    /// A chain of two.
    Pair,
    /// A chain of five.
    Long,
    /// One key, few writers, many readers.
    Hot,
    /// One key, many writers and readers, and frames that overtake each other all the time.
    Storm,
    /// Three chains on three nodes, each with a head of its own.
    Many,
    /// Leases that run out and are renewed.
    Leases,
    /// Nodes start in any order, some repeatedly, and form a cluster before clients can use it.
    Formation,
    /// Lists and counters, and applications with many requests in flight, each of which may be repeated.
    Retries,
    /// So little room for sessions that they are constantly evicted.
    Evictions,
    /// Batches that write all registers, and reads of all of them.
    Batches,
    /// Reads in sessions that hop from node to node.
    Sessions,
    /// One key, one writer, 64 readers.
    Readers,
    /// Clients that watch changes, from any member.
    Watches,
    /// Values many times as large as a frame may be.
    Large,
    /// Everything at once.
    Mixed,
    /// Members restart with empty memory, one after the other. Spares or they themselves take their places.
    Failover,
    /// Members are cut off, from one or from all others, both ways or one way.
    Partitions,
    /// Members pause, and then go on as if no time had passed.
    Pauses,
    /// Leaders of the configuration log come and go.
    Leaders,
    /// Chains of one or two members.
    Sole,
    /// Backlogs so small that a member that was away needs a full resync.
    Resync,
    /// Clocks that differ in rate by a tenth.
    Clocks,
    /// One key that is constantly read and written, while members are cut off one after the other.
    Unrest,
    /// Everything that can change a configuration at once.
    Turmoil,
    /// Tails are lost that announced their last commits only to the head.
    Whispers,
    /// Two of three members are cut off together.
    Halves,
    /// Local reads whose threads are not run for seconds, while their members are cut off and come back.
    Stalls,
    /// Sole members are lost right after they have asked for the promotion of a joiner.
    LastWords,
    /// Snapshots of many keys, whose source or link is lost on the way.
    Disturbed,
    /// Snapshots of many keys over narrow links, while clients write as much as the links can carry.
    Race,
    /// Snapshots of many keys for joiners with little room for updates beside them, so that snapshots contain changes before
    /// their updates come. Clients read from a joiner as soon as it answers.
    Overlaps,
    /// Heads are cut off, go on ordering, and come back with updates that no other member has.
    Forks,
    /// Almost twice as many nodes as form a cluster, which meet late.
    Crowd,
    /// Nodes that expect different numbers of founders, from one up, start within three seconds of each other.
    Unequal,
    /// A live member holds up its chain: by a dead link, in one or both directions, or since it, or its disk, is a hundred times
    /// slower.
    Gray,
    /// A member repeatedly holds up its chain for a moment. Or it stops hearing others, and there is a spare.
    Relapses,
    /// An operator repeatedly reorders the members, under load.
    Orders,
    /// An operator repeatedly reorders the members, beside everything else that can change a configuration.
    Shuffles,
    /// An operator drains members, one after the other, under load.
    Drains,
    /// All nodes but one or two leave, and one comes back.
    Leaves,
    /// Scripts that read and write many keys, some of whose groups fail.
    Scripts,
    /// Walks through all keys in hash order, from member to member, while keys come and go.
    Walks,
    /// Several chains, which learn late, and at different times, what their node was told; members that can't reach each other.
    Lags,
    /// An operator restarts one node after the other, each when the one before is ready, beside all other faults.
    Rolling,
    /// An operator founds another cluster wherever no member is heard. The members go on as before.
    Succession,
    /// Most nodes that keep the log are lost for good, and an operator recovers the cluster from the rest.
    Recovery,
    /// A cluster forms among all faults, and goes on among others, with failover.
    Dawn,
    /// Nodes with disks end, one by one and all at once, and start again with what their disks hold.
    Power,
    /// All disks of those that serve a chain are lost for good, and an operator accepts it.
    Losses,
    /// Nodes that dial others and can't be dialled: their address has changed, or their inbound connections are closed.
    Addresses,
    /// Nodes without names start and soon die, again and again.
    Young,
    /// Members restart with empty memory, and the work for a snapshot keeps a node from all else.
    Busy,
}

impl Scenario {
    /// The kinds of faults of the scenario. Each must occur in some seed.
    pub const fn kinds(self) -> &'static [Kind] {
        use Kind::{
            Accept, Break, Crash, Cut, Delay, Drain, Duplication, Far, Found, Halt, Isolate, Leave, Loss, Order,
            Outage, Pause, Recover, Reorder, Restart, Roll, Slow, Undialable, Young,
        };
        match self {
            Self::Calm => &[Delay],
            Self::Lossy => &[Loss, Duplication, Reorder],
            Self::Links => &[Break, Cut],
            Self::Slow => &[Slow, Delay],
            Self::Crash => &[Loss, Duplication, Reorder, Delay, Break, Cut, Slow, Crash],
            Self::Single => &[Loss, Delay, Slow],
            Self::Storm => &[Reorder, Duplication, Loss, Delay],
            Self::Leases => &[Delay, Break, Slow],
            Self::Formation | Self::Crowd => &[Loss, Duplication, Reorder, Delay, Break, Cut, Slow, Restart],
            Self::Unequal => &[Duplication, Reorder, Delay, Restart],
            Self::Readers => &[Delay],
            Self::Failover => &[Restart, Delay, Break],
            Self::Busy => &[Restart, Delay],
            Self::Partitions => &[Isolate, Cut, Break, Delay],
            Self::Pauses => &[Pause, Delay],
            Self::Leaders => &[Pause, Isolate, Restart, Cut],
            Self::Sole => &[Isolate, Pause, Break, Restart],
            Self::Resync => &[Restart, Isolate, Break, Pause, Delay],
            Self::Clocks => &[Isolate, Pause],
            Self::Unrest => &[Isolate, Pause, Break],
            Self::Turmoil => &[Loss, Duplication, Reorder, Delay, Break, Cut, Slow, Restart, Pause, Isolate, Halt],
            Self::Whispers | Self::Halves | Self::Forks => &[Isolate, Cut],
            Self::Stalls => &[Isolate, Pause, Break],
            Self::LastWords => &[Isolate, Break],
            Self::Disturbed => &[Restart, Isolate, Break],
            Self::Race | Self::Overlaps => &[Restart, Isolate, Delay],
            Self::Gray => &[Break, Cut, Far, Slow, Delay],
            Self::Relapses => &[Cut, Far, Slow, Delay],
            Self::Orders => &[Order, Delay],
            Self::Shuffles => &[Order, Loss, Duplication, Reorder, Delay, Break, Cut, Slow, Restart, Pause, Isolate],
            Self::Drains => &[Drain, Delay],
            Self::Leaves => &[Leave, Delay],
            Self::Lags => &[Break, Cut, Isolate, Pause],
            Self::Rolling => {
                &[Roll, Halt, Loss, Duplication, Reorder, Delay, Break, Cut, Slow, Restart, Pause, Isolate]
            }
            Self::Dawn => &[Loss, Duplication, Reorder, Delay, Break, Cut, Slow, Restart, Pause, Isolate],
            Self::Power => &[Outage, Restart, Loss, Duplication, Reorder, Delay, Break, Cut, Slow, Pause, Isolate],
            Self::Losses => &[Accept, Outage, Delay, Loss, Break],
            Self::Addresses => &[Undialable, Restart, Break, Pause, Isolate],
            Self::Young => &[Young, Restart, Break, Pause, Isolate, Cut],
            Self::Recovery => &[Recover, Break, Cut, Isolate, Pause, Delay],
            Self::Succession => &[Found, Break, Cut, Isolate, Pause, Delay],
            Self::Classic
            | Self::Pair
            | Self::Long
            | Self::Hot
            | Self::Many
            | Self::Retries
            | Self::Evictions
            | Self::Batches
            | Self::Sessions
            | Self::Watches
            | Self::Large
            | Self::Scripts
            | Self::Walks
            | Self::Mixed => &[Loss, Duplication, Reorder, Delay, Break, Cut, Slow],
        }
    }

    /// The world of `seed`.
    pub fn setup(self, seed: u64, mutant: Option<Mutant>) -> Setup {
        let mut rng = Rng::new(seed, Concern::Setup);
        let mut setup = common(&mut rng);
        setup.guards = mutant.into();
        match self {
            Self::Calm | Self::Lossy | Self::Links => {}
            Self::Slow => {
                // Room for some writes of each client.
                setup.window = rng.between(70 * setup.clients as u64, 3000) as usize;
                setup.padding = rng.between(0, 250);
            }
            Self::Crash => setup.members = rng.between(2, 4) as usize,
            Self::Classic => setup.mode = Mode::Classic,
            Self::Single => setup.members = 1,
            Self::Pair => setup.members = 2,
            Self::Long => setup.members = 5,
            Self::Hot => {
                setup.keys = one_key();
                setup.clients = rng.between(8, 16) as usize;
                setup.mix = Mix { writers: rng.between(1, 3) as usize, ..setup.mix };
            }
            Self::Storm => {
                setup.keys = one_key();
                setup.clients = rng.between(10, 16) as usize;
                setup.mix = Mix { writers: setup.clients / 2, ..setup.mix };
            }
            Self::Many => {
                setup.chains = 3;
                setup.keys.registers = rng.between(6, 12) as u32;
            }
            Self::Leases => setup.leases = true,
            Self::Formation => founded(&mut rng, &mut setup),
            Self::Retries => retries(&mut rng, &mut setup),
            Self::Evictions => evictions(&mut rng, &mut setup),
            Self::Batches => batches(&mut rng, &mut setup),
            Self::Sessions => {
                setup.mix = Mix { writes: rng.between(300, 600) as u32, sessions: 1000, eventual: 600, ..setup.mix };
                // Many concurrent operations, and some members far from the tail, so that they lag behind it.
                setup.profile.uneven = true;
                // An attempt gets more time than a write takes there and back.
                setup.attempt.1 += 100 * setup.profile.delay;
                setup.favourite = 0;
                setup.lanes = 4;
                setup.clients += 4;
                setup.bursts = Some(80 * setup.profile.delay);
            }
            Self::Readers => readers(&mut setup),
            Self::Watches => watches(&mut rng, &mut setup),
            Self::Large => large(&mut rng, &mut setup),
            Self::Mixed => mixed(&mut rng, &mut setup),
            Self::Failover | Self::Partitions | Self::Pauses | Self::Leaders => moving(&mut rng, &mut setup),
            Self::Sole => sole(&mut rng, &mut setup),
            Self::Resync => resync(&mut rng, &mut setup),
            Self::Clocks => clocks(&mut rng, &mut setup),
            Self::Unrest => unrest(&mut rng, &mut setup),
            Self::Turmoil | Self::Shuffles => turmoil(&mut rng, &mut setup),
            Self::Whispers => whispers(&mut rng, &mut setup),
            Self::Halves => halves(&mut rng, &mut setup),
            Self::Stalls => stalls(&mut rng, &mut setup),
            Self::LastWords => last_words(&mut rng, &mut setup),
            Self::Disturbed => disturbed(&mut rng, &mut setup),
            Self::Race => race(&mut rng, &mut setup),
            Self::Overlaps => overlaps(&mut rng, &mut setup),
            Self::Forks => forks(&mut rng, &mut setup),
            Self::Crowd => crowd(&mut rng, &mut setup),
            Self::Unequal => unequal(&mut rng, &mut setup),
            Self::Gray => gray::gray(&mut rng, &mut setup),
            Self::Relapses => gray::relapses(&mut rng, &mut setup),
            Self::Orders => gray::orders(&mut rng, &mut setup),
            Self::Drains => gray::drains(&mut rng, &mut setup),
            Self::Leaves => leaves::leaves(&mut rng, &mut setup),
            Self::Scripts => scripts(&mut rng, &mut setup),
            Self::Walks => walks(&mut rng, &mut setup),
            Self::Lags => lags(&mut rng, &mut setup),
            Self::Rolling => leaves::rolling(&mut rng, &mut setup),
            Self::Succession => leaves::succession(&mut rng, &mut setup),
            Self::Recovery => leaves::recovery(&mut rng, &mut setup),
            Self::Dawn => leaves::dawn(&mut rng, &mut setup),
            Self::Power => power(&mut rng, &mut setup),
            Self::Losses => losses(&mut rng, &mut setup),
            Self::Addresses => addresses(&mut rng, &mut setup),
            Self::Young => young(&mut rng, &mut setup),
            Self::Busy => busy(&mut rng, &mut setup),
        }
        let restarts = setup.control.is_some() || setup.founding.is_some();
        // The work for a disk is not counted among what keeps a node busy.
        let may_have_disks =
            self != Self::Busy && (setup.guards == Guards::ALL || mutant == Some(Mutant::TolerateSlowDisk));
        if restarts && setup.durable.is_none() && may_have_disks {
            let mut rng = Rng::new(seed, Concern::Disks);
            if rng.chance(disks_of_seeds()) {
                disks(&mut rng, &mut setup);
            }
        }
        if let Some(of) = setup.durable.as_mut().filter(|_| matches!(self, Self::Gray | Self::Relapses)) {
            // No member ends where one is to be found slow.
            of.fails = 0;
        }
        if !matches!(self, Self::Slow | Self::Mixed) {
            hold_lists(&mut setup);
        }
        setup.keys.chains = setup.chains;
        match self.own_plan(seed, &setup) {
            Some(plan) => setup.faults = plan,
            None => self.draw_faults(seed, &mut rng, &mut setup),
        }
        setup
    }

    /// The faults of a scenario that has a plan of its own.
    fn own_plan(self, seed: u64, setup: &Setup) -> Option<Vec<Planned>> {
        let mut faults = Rng::new(seed, Concern::Faults);
        match self {
            Self::Gray => gray::slow_member(seed, &mut faults, setup),
            Self::Relapses => Some(gray::member_relapses(&mut faults, setup)),
            Self::Orders => Some(gray::new_orders(&mut faults)),
            Self::Drains => Some(gray::members_drained(&mut faults, setup)),
            Self::Leaves => Some(leaves::members_leave(&mut faults, setup)),
            _ => None,
        }
    }

    fn draw_faults(self, seed: u64, rng: &mut Rng, setup: &mut Setup) {
        let mut faults = Rng::new(seed, Concern::Faults);
        let lossless = |kind: &Kind| matches!(kind, Kind::Delay | Kind::Slow | Kind::Break | Kind::Crash);
        if self.kinds().iter().all(lossless) && rng.chance(500) {
            // Streams lose nothing while their connection is up.
            setup.resend = None;
        }
        setup.faults = faults::plan(&mut faults, self.kinds(), setup.members, TROUBLE, HEALED);
        if self == Self::Storm {
            let fault = Fault::Reorder(faults.between(200, 600) as u32);
            setup.faults.push(Planned { fault, start: TROUBLE, end: HEALED });
        }
        if self.kinds().contains(&Kind::Crash) {
            setup.crash = Some(faults::crash(&mut faults, setup.members, CRASHES, CRASHES + SECOND));
        }
        match self {
            Self::Whispers => setup.faults.extend(play::plays(&mut faults, play::lose_tail, TROUBLE, HEALED)),
            Self::Forks => setup.faults.extend(play::plays(&mut faults, play::lose_head, TROUBLE, HEALED)),
            Self::Halves => setup.faults.extend(play::plays(&mut faults, play::lose_rest, TROUBLE, HEALED)),
            Self::Succession => setup.faults.extend(leaves::cut_off(&mut faults, setup.members)),
            Self::Addresses => {
                let long = (6 * SECOND, 10 * SECOND);
                setup.faults.extend(faults::undialable(&mut faults, setup.members, TROUBLE, HEALED, long));
            }
            Self::Young => setup.faults.extend(young_lives(setup)),
            Self::Shuffles => setup.faults.extend(gray::orders_at(&mut Rng::new(seed, Concern::Orders))),
            _ => {}
        }
        if matches!(self, Self::Unrest | Self::Clocks | Self::Stalls | Self::Succession) {
            setup.faults.extend(faults::unrest(&mut faults, setup.members, TROUBLE, HEALED));
        }
        let restarts = self.kinds().contains(&Kind::Restart);
        // A disk shows its worth when its node restarts.
        let is_lost = setup.durable.is_some() && matches!(self, Self::Recovery | Self::Succession);
        if setup.control.is_some() && (restarts || is_lost) {
            setup.faults.extend(faults::rolling(&mut faults, setup.members, TROUBLE, HEALED - 3 * SECOND));
        }
        if restarts && matches!(self, Self::Formation | Self::Crowd | Self::Unequal) {
            setup.faults.extend(faults::restarts(&mut faults, setup.members, FOUNDED));
        }
    }
}

/// Crash loops of all nodes without names, from the beginning of the faults to their end.
fn young_lives(setup: &Setup) -> Vec<Planned> {
    let unnamed = setup.control.map_or(0, |control| control.unnamed);
    let loops = (setup.members - unnamed..setup.members).map(Fault::Young);
    loops.map(|fault| Planned { fault, start: TROUBLE, end: HEALED }).collect()
}
