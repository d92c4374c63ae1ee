//! What scenarios are called, and what they are.

use super::Scenario;

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 31] = [
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
        }
    }

    /// What it is, in a few words.
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
        }
    }

    /// The scenario called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scenario| scenario.name() == name)
    }
}
