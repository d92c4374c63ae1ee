//! Assigns an order to the writes of a key whose answers carry no versions.
//!
//! Every write has a unique value, so each read names its write, and for such histories an order is easily found
//! (Gibbons & Korach 1997). A write and its reads form a cluster. Let `f` be the earliest return and `s` the latest
//! call in the cluster. If `f < s`, the key must hold the value from `f` to `s`: a zone in which it can hold no other
//! value. Otherwise the whole cluster can take effect at one point between `s` and `f`: at `s`, or directly after the
//! zone that contains `s`. If any order is a linearization, then the order by the earlier of `f` and `s` is one. The
//! checker, which needs versions, gets versions in this order; a violation in this order is a violation in every order.

use std::collections::BTreeMap;

use artillery_ddata::Version;

use super::{
    book::Line,
    door::{Ask, Reply},
};

/// The operations on one value.
struct Cluster {
    /// The earliest return.
    first: u64,
    /// The latest call.
    last: u64,
    /// Whether the value was certainly written.
    known: bool,
}

/// A version for each value that was certainly written. The lines must belong to one plain key.
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
            // The write may have taken effect at any later time, or never.
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
