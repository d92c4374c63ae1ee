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
    addresses, batches, clocks, common, disks, evictions, expiry, founded, hold_lists, lags, large, locks, losses,
    mixed, moving, one_key, power, readers, resync, retries, scripts, sole, turmoil, unrest, walks, watches, young,
};
pub use self::{
    every_write::every_write,
    gray::{BACK, Gray, gray_setup},
    setup::{ControlSetup, FoundingSetup, LockSetup, Setup},
};

use crate::{
    client::Mix,
    faults::{self, Fault, Kind, Planned, play},
    rng::{Concern, Rng},
};

/// One virtual second in nanoseconds.
pub const SECOND: u64 = 1_000_000_000;

/// Default number of seeds per thousand with disks, in scenarios with restarts.
pub const DURABLE: u32 = 300;

static DISKS: AtomicU32 = AtomicU32::new(DURABLE);

/// Sets the number of seeds per thousand with disks, in scenarios with restarts. Must be called before any run.
pub fn set_disks(permille: u32) {
    DISKS.store(permille, Relaxed);
}

/// The number of seeds per thousand with disks, in scenarios with restarts.
pub fn disks_of_seeds() -> u32 {
    DISKS.load(Relaxed)
}

/// Default minimum number of operations per seed.
pub const OPERATIONS: u64 = 2_000;
/// When faults start.
pub const TROUBLE: u64 = SECOND / 2;
/// Restarts of nodes that form a cluster begin before this time.
pub const FOUNDED: u64 = 5 * SECOND;
/// Default end of all faults except crashes.
pub const HEALED: u64 = 20 * SECOND;
/// Time after healing within which every chain must be complete and each of its members must have served.
pub const RECOVERY: u64 = 5 * SECOND;
/// The earliest time of a permanent crash.
pub const CRASHES: u64 = 27 * SECOND;
/// Default time at which clients stop if they have done enough.
pub const STOP: u64 = 30 * SECOND;
/// When clients stop in any case.
pub const LAST: u64 = 120 * SECOND;

/// A named kind of world.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scenario {
    /// Three members, and nothing worse than delays.
    Calm,
    /// Loss, duplication, reordering.
    Lossy,
    /// Connections that break and recover, one-way cuts.
    Links,
    /// Slow members and windows so small that heads answer `Busy`.
    Slow,
    /// Faults of frames and connections and slow members, then a member stops permanently.
    Crash,
    /// Classic mode: strong reads at the tail only.
    Classic,
    /// A chain of one.
    Single,
    /// A chain of two.
    Pair,
    /// A chain of five.
    Long,
    /// One key, few writers, many readers.
    Hot,
    /// One key, many writers and readers, and frames that constantly overtake each other.
    Storm,
    /// Three chains on three nodes, each with a different head.
    Many,
    /// Leases that expire and are renewed.
    Leases,
    /// Nodes start in any order, some repeatedly, and form a cluster before clients use it.
    Formation,
    /// Lists and counters, and applications with many requests in flight, any of which may be retried.
    Retries,
    /// A session table so small that sessions are constantly evicted.
    Evictions,
    /// Batches that write many or all registers, and reads of many keys.
    Batches,
    /// Reads in sessions that hop from node to node.
    Sessions,
    /// One key, one writer, 64 readers.
    Readers,
    /// Clients that watch changes, from any member.
    Watches,
    /// Values many times as large as a frame may be.
    Large,
    /// Chains of random number, length and mode, with small windows, leases and watchers in some seeds.
    Mixed,
    /// Members restart with empty memory, one after the other. Spares or their next incarnations replace them.
    Failover,
    /// Members are cut off, from one or all others, in one or both directions.
    Partitions,
    /// Members pause, and then continue as if no time had passed.
    Pauses,
    /// Leaders of the configuration log change.
    Leaders,
    /// Chains of one or two members.
    Sole,
    /// Backlogs so small that a returning member needs a full resync.
    Resync,
    /// Clocks whose rates differ by up to 10 %.
    Clocks,
    /// One key that is constantly read and written, while members are cut off one after the other.
    Unrest,
    /// All faults of nodes and links that can change a configuration, at once.
    Turmoil,
    /// Tails are lost after they announced their last commits only to the head.
    Whispers,
    /// Two of three members are cut off together.
    Halves,
    /// Local reads that stall for seconds, while their members are cut off and return.
    Stalls,
    /// Sole members are lost right after they requested the promotion of a joiner.
    LastWords,
    /// Snapshots of many keys whose source or link is lost during the transfer.
    Disturbed,
    /// Snapshots of many keys over narrow links, while clients saturate the links with writes.
    Race,
    /// Snapshots for joiners with a small update buffer, so that snapshots contain changes before the joiner receives
    /// their updates. Clients read from a joiner as soon as it answers.
    Overlaps,
    /// Heads are cut off, continue to order, and return with updates that no other member has.
    Forks,
    /// Almost twice as many nodes as form a cluster.
    Crowd,
    /// Nodes that may expect different numbers of founders, even one, and start within three seconds of each other.
    Unequal,
    /// A live member holds up its chain: a link is dead, or its links, the member or its disk are a hundred times
    /// slower.
    Gray,
    /// Without a spare, one member repeatedly holds up its chain for a short time. With a spare, the head receives
    /// nothing from other nodes.
    Relapses,
    /// An operator repeatedly reorders the members under load.
    Orders,
    /// An operator repeatedly reorders the members, while nodes restart, pause and are cut off.
    Shuffles,
    /// An operator drains members under load, one after the other.
    Drains,
    /// All nodes but one or two leave, and one returns.
    Leaves,
    /// Scripts that read and write many keys, with some failing groups.
    Scripts,
    /// Walks through all keys in hash order, from member to member, while keys are created and deleted.
    Walks,
    /// Several chains that receive their node's orders late, at different times, and members that can't reach each
    /// other.
    Lags,
    /// An operator restarts one node after the other, waiting for each to be ready, under many other faults.
    Rolling,
    /// An operator creates another cluster wherever no member can be reached. The members continue as before.
    Succession,
    /// Nodes meet another cluster with the same name and secret around the first writes, and the empty one gives way.
    Strangers,
    /// Most voters of the log are lost permanently, and an operator recovers the cluster from the rest.
    Recovery,
    /// A cluster forms under faults, and then runs with failover under further faults.
    Dawn,
    /// Nodes with disks end, singly and all at once, and restart with the data on their disks.
    Power,
    /// All disks of the members of a chain are lost permanently, and an operator accepts that.
    Losses,
    /// Nodes that can dial others but can't be dialled: their address changed, or inbound connections are blocked.
    Addresses,
    /// Nodes without names in a crash loop.
    Young,
    /// Members restart with empty memory, and processing a snapshot blocks all other work of a node.
    Busy,
    /// Keys with times to live, under all faults that change a configuration.
    Expiry,
    /// Processes that contend for locks, pause, die and are cut off, and copies of keys that fall behind.
    Locks,
}

impl Scenario {
    /// The kinds of faults of the scenario. Each must have an effect in some seeds.
    pub const fn kinds(self) -> &'static [Kind] {
        use Kind::{
            Accept, Break, Crash, Cut, Delay, Drain, Duplication, Far, Found, Halt, Isolate, Leave, Loss, Meet, Order,
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
            Self::Locks => &[Restart, Loss, Delay, Break, Cut, Pause, Isolate],
            Self::Expiry => {
                &[Outage, Restart, Halt, Loss, Duplication, Reorder, Delay, Break, Cut, Slow, Pause, Isolate]
            }
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
            Self::Strangers => &[Meet, Order, Restart, Pause, Isolate, Break, Cut, Delay],
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

    /// The world of `seed`, with a guard disabled if a mutant is given.
    pub fn setup(self, seed: u64, mutant: Option<Mutant>) -> Setup {
        let mut rng = Rng::new(seed, Concern::Setup);
        let mut setup = common(&mut rng);
        setup.guards = mutant.into();
        match self {
            Self::Calm | Self::Lossy | Self::Links => {}
            Self::Slow => {
                // Enough for some writes of each client.
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
                // An attempt gets more time than a write needs for its round trip.
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
            Self::Strangers => leaves::strangers(&mut rng, &mut setup),
            Self::Recovery => leaves::recovery(&mut rng, &mut setup),
            Self::Dawn => leaves::dawn(&mut rng, &mut setup),
            Self::Power => power(&mut rng, &mut setup),
            Self::Losses => losses(&mut rng, &mut setup),
            Self::Addresses => addresses(&mut rng, &mut setup),
            Self::Young => young(&mut rng, &mut setup),
            Self::Busy => busy(&mut rng, &mut setup),
            Self::Expiry => expiry(&mut rng, &mut setup),
            Self::Locks => locks(&mut rng, &mut setup),
        }
        let restarts = setup.control.is_some() || setup.founding.is_some();
        // The time for which a node is busy does not include its disk work.
        let may_have_disks =
            self != Self::Busy && (setup.guards == Guards::ALL || mutant == Some(Mutant::TolerateSlowDisk));
        if restarts && setup.durable.is_none() && may_have_disks {
            let mut rng = Rng::new(seed, Concern::Disks);
            if rng.chance(disks_of_seeds()) {
                disks(&mut rng, &mut setup);
            }
        }
        if let Some(of) = setup.durable.as_mut().filter(|_| matches!(self, Self::Gray | Self::Relapses)) {
            // A failed disk would end the member before the leader finds it slow.
            of.fails = 0;
        }
        if let Some(of) = setup.durable.as_mut().filter(|_| self == Self::Locks) {
            // Without syncs a power failure may lose acknowledged writes, and a lock with them.
            of.never = 0;
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
            // Streams lose nothing while their connection is up, so that no resends are needed.
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
            Self::Shuffles | Self::Expiry => {
                setup.faults.extend(gray::orders_at(&mut Rng::new(seed, Concern::Orders)));
            }
            _ => {}
        }
        if matches!(self, Self::Unrest | Self::Clocks | Self::Stalls | Self::Succession) {
            setup.faults.extend(faults::unrest(&mut faults, setup.members, TROUBLE, HEALED));
        }
        let restarts = self.kinds().contains(&Kind::Restart);
        // Disks only matter if their nodes restart.
        let is_lost = setup.durable.is_some() && matches!(self, Self::Recovery | Self::Succession);
        if setup.control.is_some() && (restarts || is_lost) {
            setup.faults.extend(faults::rolling(&mut faults, setup.members, TROUBLE, HEALED - 3 * SECOND));
        }
        if restarts && matches!(self, Self::Formation | Self::Crowd | Self::Unequal) {
            setup.faults.extend(faults::restarts(&mut faults, setup.members, FOUNDED));
        }
    }
}

/// Crash loops of all nodes without names, for as long as there are faults.
fn young_lives(setup: &Setup) -> Vec<Planned> {
    let unnamed = setup.control.map_or(0, |control| control.unnamed);
    let loops = (setup.members - unnamed..setup.members).map(Fault::Young);
    loops.map(|fault| Planned { fault, start: TROUBLE, end: HEALED }).collect()
}
