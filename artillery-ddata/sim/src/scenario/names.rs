//! Names and descriptions of scenarios.

use super::Scenario;

impl Scenario {
    /// All scenarios.
    pub const ALL: [Self; 54] = [
        Self::Calm,
        Self::Lossy,
        Self::Links,
        Self::Slow,
        Self::Crash,
        Self::Classic,
        Self::Single,
        Self::Pair,
        Self::Long,
        Self::Hot,
        Self::Storm,
        Self::Many,
        Self::Leases,
        Self::Formation,
        Self::Retries,
        Self::Evictions,
        Self::Batches,
        Self::Sessions,
        Self::Readers,
        Self::Watches,
        Self::Large,
        Self::Mixed,
        Self::Failover,
        Self::Partitions,
        Self::Pauses,
        Self::Leaders,
        Self::Sole,
        Self::Resync,
        Self::Clocks,
        Self::Unrest,
        Self::Turmoil,
        Self::Whispers,
        Self::Halves,
        Self::Stalls,
        Self::LastWords,
        Self::Disturbed,
        Self::Race,
        Self::Overlaps,
        Self::Forks,
        Self::Crowd,
        Self::Gray,
        Self::Relapses,
        Self::Orders,
        Self::Shuffles,
        Self::Drains,
        Self::Leaves,
        Self::Scripts,
        Self::Walks,
        Self::Lags,
        Self::Rolling,
        Self::Succession,
        Self::Recovery,
        Self::Dawn,
        Self::Power,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Lossy => "lossy",
            Self::Links => "links",
            Self::Slow => "slow",
            Self::Crash => "crash",
            Self::Classic => "classic",
            Self::Single => "single",
            Self::Pair => "pair",
            Self::Long => "long",
            Self::Hot => "hot",
            Self::Storm => "storm",
            Self::Many => "many",
            Self::Leases => "leases",
            Self::Formation => "formation",
            Self::Retries => "retries",
            Self::Evictions => "evictions",
            Self::Batches => "batches",
            Self::Sessions => "sessions",
            Self::Readers => "readers",
            Self::Watches => "watches",
            Self::Large => "large",
            Self::Mixed => "mixed",
            Self::Failover => "failover",
            Self::Partitions => "partitions",
            Self::Pauses => "pauses",
            Self::Leaders => "leaders",
            Self::Sole => "sole",
            Self::Resync => "resync",
            Self::Clocks => "clocks",
            Self::Unrest => "unrest",
            Self::Turmoil => "turmoil",
            Self::Whispers => "whispers",
            Self::Halves => "halves",
            Self::Stalls => "stalls",
            Self::LastWords => "last-words",
            Self::Disturbed => "disturbed",
            Self::Race => "race",
            Self::Overlaps => "overlaps",
            Self::Forks => "forks",
            Self::Crowd => "crowd",
            Self::Gray => "gray",
            Self::Relapses => "relapses",
            Self::Orders => "orders",
            Self::Shuffles => "shuffles",
            Self::Drains => "drains",
            Self::Leaves => "leaves",
            Self::Scripts => "scripts",
            Self::Walks => "walks",
            Self::Lags => "lags",
            Self::Rolling => "rolling",
            Self::Succession => "succession",
            Self::Recovery => "recovery",
            Self::Dawn => "dawn",
            Self::Power => "power",
            Self::Losses => "losses",
        }
    }

    /// A short description.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Calm => "three members, nothing worse than delays",
            Self::Lossy => "frames, requests and replies get lost, doubled, swapped",
            Self::Links => "connections break and come back, one-way cuts",
            Self::Slow => "slow members, a small window",
            Self::Crash => "all faults, then a member stops for ever",
            Self::Classic => "classic chain replication: strong reads at the tail",
            Self::Single => "a chain of one",
            Self::Pair => "a chain of two",
            Self::Long => "a chain of five",
            Self::Hot => "one key, few writers, many readers",
            Self::Storm => "one key, many writers and readers, frames always overtake each other",
            Self::Many => "three chains on three nodes, each with another head",
            Self::Leases => "leases run out and are renewed",
            Self::Formation => "nodes start in any order, some repeatedly, and form a cluster first",
            Self::Retries => "lists and counters, many requests in flight, repeated through any node",
            Self::Evictions => "so little room for sessions that they are evicted all the time",
            Self::Batches => "batches that write all keys, reads and scans of all of them",
            Self::Sessions => "reads in sessions that hop from node to node",
            Self::Readers => "one key, one writer, 64 readers",
            Self::Watches => "changes are watched from any member, some by who falls behind",
            Self::Large => "values many times as large as a frame may be",
            Self::Mixed => "everything at once",
            Self::Failover => "members restart with nothing in memory; they and spares take the places",
            Self::Partitions => "members are cut off, from one or all others, both ways or one way",
            Self::Pauses => "members stand still for a while, and go on as if no time had passed",
            Self::Leaders => "leaders of the configuration log come and go",
            Self::Sole => "chains of one or two members, which others join",
            Self::Resync => "backlogs so small that who was away needs everything",
            Self::Clocks => "clocks that differ in rate by a tenth",
            Self::Unrest => "one busy key, while members are cut off one after the other",
            Self::Turmoil => "everything that changes a configuration, at once",
            Self::Whispers => "tails are lost that told only their head what they have committed",
            Self::Halves => "two of three members are cut off together",
            Self::Stalls => "local reads that take seconds, while their members are cut off and come back",
            Self::LastWords => "members that are alone are lost right after they have asked for another one",
            Self::Disturbed => "snapshots of many keys, whose source or link is lost on the way",
            Self::Crowd => "almost twice as many nodes as form a cluster",
            Self::Forks => "heads are cut off, go on ordering, and come back with what nobody else has",
            Self::Race => "snapshots over narrow links, while as much is written as gets through",
            Self::Overlaps => "snapshots that come before the updates that they show",
            Self::Gray => "a living member holds its chain up: a dead link, or a hundred times slower",
            Self::Relapses => "one member holds its chain up again and again, or hears nothing any more",
            Self::Orders => "members change places under load, and nobody is to notice",
            Self::Shuffles => "members change places beside everything else that changes a configuration",
            Self::Drains => "members leave under load, one after the other, and start anew",
            Self::Walks => "walks through all keys in hash order, from member to member, while keys come and go",
            Self::Lags => "several chains, which hear late and each in its own time what their node is told",
            Self::Rolling => {
                "nodes restart one after the other, each when the one before is ready, beside all other faults"
            }
            Self::Succession => {
                "another cluster is founded wherever no member is heard, and this one goes on as it was"
            }
            Self::Dawn => "a cluster forms beside all faults, and goes on through others with failover",
            Self::Power => {
                "nodes with disks end, one by one and all at once, and start again with what their disks hold"
            }
            Self::Losses => "all disks of those that serve a chain are lost for good, and an operator accepts it",
            Self::Recovery => {
                "most of those that keep the log are lost for good, and what is left goes on when an operator says so"
            }
            Self::Leaves => "members leave until one or two are left, who go on and take one in again",
            Self::Scripts => "scripts that read and write many keys, some of whose groups fail, retried and repeated",
        }
    }

    /// The scenario called `name`. One that shows faults of what isn't switched on (docs/ROADMAP.md) is found, though it isn't one of
    /// [`ALL`](Self::ALL).
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().chain([Self::Losses]).find(|scenario| scenario.name() == name)
    }
}
