//! An order for the writes of a key whose versions no answer carries.
//!
//! Every write has a value of its own, so each read names its write, and for such histories an order is easily found
//! (Gibbons & Korach 1997). A write and its reads are a cluster. Be `f` the first return and `s` the last call in it.
//! If `f < s`, the value must stand from `f` to `s`, a zone in which no other may stand; else everything in the cluster
//! can happen at one moment between `s` and `f`, at `s` or right behind the zone in which that lies. If any order is a
//! linearization, then that of the earlier of `f` and `s` is. So the judge, which needs versions, gets these, and a
//! violation in this order is one in every order.

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

/// A version for each value that was certainly written. The lines are those of one plain key.
pub(super) fn versions<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeMap<u64, Version> {
    by(lines, |cluster| cluster.first.min(cluster.last))
}

/// Versions in the order in which answers first showed each value.
pub(super) fn in_order<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeMap<u64, Version> {
    by(lines, |cluster| cluster.first)
}

fn by<'a>(lines: impl IntoIterator<Item = &'a Line>, moment: impl Fn(&Cluster) -> u64) -> BTreeMap<u64, Version> {
    let mut moments: Vec<_> = clusters(lines).iter().map(|(value, cluster)| (moment(cluster), *value)).collect();
    moments.sort_unstable();
    (1..).zip(moments).map(|(place, (_, value))| (value, Version::new(1, place))).collect()
}

fn clusters<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeMap<u64, Cluster> {
    let mut clusters: BTreeMap<u64, Cluster> = BTreeMap::new();
    let new = || Cluster { first: u64::MAX, last: 0, known: false };
    for line in lines {
        let (value, returned) = match (line.ask, &line.reply) {
            (Ask::Set(value), Reply::Written(_)) => (value, line.returned),
            // It is unknown when the write ended, and whether it ever began.
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
