//! An order for the writes of a key whose versions nobody tells.
//!
//! Every write has a value of its own, so each read names its write, and for such histories an order is easily found (Gibbons &
//! Korach 1997). A write and its reads are a cluster. Be `f` the first return and `s` the last call in it. If `f < s`, the
//! value must stand from `f` to `s`, a zone in which no other may stand; else everything in the cluster can happen at one
//! moment between `s` and `f`, which only has to lie outside of others' zones. If any order is a linearization, then
//! that of these moments is. So the judge, who wants versions, gets these, and what it finds wrong with them
//! is wrong with all.

use std::collections::BTreeMap;

use artillery_ddata::Version;

use super::{
    book::Line,
    door::{Ask, Reply},
};

/// What is known of one value.
struct Cluster {
    /// The first return.
    first: u64,
    /// The last call.
    last: u64,
    /// Whether it certainly was written.
    known: bool,
}

impl Cluster {
    /// Whether the value must stand for a while.
    fn stands(&self) -> bool {
        self.first < self.last
    }
}

/// A version for each value that was certainly written. The lines are those of one plain key.
pub(super) fn versions<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeMap<u64, Version> {
    let clusters = clusters(lines);
    let mut zones: Vec<(u64, u64)> =
        clusters.values().filter(|cluster| cluster.stands()).map(|cluster| (cluster.first, cluster.last)).collect();
    zones.sort_unstable();
    let mut moments: Vec<(u64, bool, u64)> = clusters
        .iter()
        .map(|(value, cluster)| match (cluster.stands(), hidden(&zones, cluster.last)) {
            (true, _) => (cluster.first, false, *value),
            // Right behind the zone.
            (false, Some(end)) => (end, true, *value),
            (false, None) => (cluster.last, false, *value),
        })
        .collect();
    moments.sort_unstable();
    (1..).zip(moments).map(|(place, (.., value))| (value, Version::new(1, place))).collect()
}

/// The same in the order in which it was first told of each value.
pub(super) fn in_order<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeMap<u64, Version> {
    let mut moments: Vec<_> = clusters(lines).into_iter().map(|(value, cluster)| (cluster.first, value)).collect();
    moments.sort_unstable();
    (1..).zip(moments).map(|(place, (_, value))| (value, Version::new(1, place))).collect()
}

/// The end of the zone around a moment. Zones that overlap have no order anyway.
fn hidden(zones: &[(u64, u64)], moment: u64) -> Option<u64> {
    let before = zones.partition_point(|(begin, _)| *begin < moment);
    zones.get(before.checked_sub(1)?).map(|(_, end)| *end).filter(|end| *end > moment)
}

fn clusters<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeMap<u64, Cluster> {
    let mut clusters: BTreeMap<u64, Cluster> = BTreeMap::new();
    let new = || Cluster { first: u64::MAX, last: 0, known: false };
    for line in lines {
        let (value, returned) = match (line.ask, &line.reply) {
            (Ask::Set(value), Reply::Written(_)) => (value, line.returned),
            // Nobody knows when it ended, or whether it ever began.
            (Ask::Set(value), Reply::Unknown | Reply::Odd(_)) => (value, u64::MAX),
            (_, Reply::Found(Some((_, value)))) => (*value, line.returned),
            _ => continue,
        };
        let cluster = clusters.entry(value).or_insert_with(new);
        cluster.first = cluster.first.min(returned);
        cluster.last = cluster.last.max(line.called);
        cluster.known |= returned != u64::MAX;
    }
    clusters.retain(|_, cluster| cluster.known);
    clusters
}
