//! The checks of an isolated member: it must refuse strong reads once its lease has expired, and keep serving eventual
//! reads.

use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{
    book::{Book, Family, Key},
    cluster::{Cluster, DRIFT_PPM, LEASE},
    door::{Ask, Reply, Resp},
    fault::name,
};

/// Tolerance for a busy machine.
const SLACK: Duration = Duration::from_millis(250);
const BETWEEN: Duration = Duration::from_millis(50);
/// The timeout of a strong read: a node searches for a member with a lease for less than this.
const STRONG: Duration = Duration::from_secs(7);
const EVENTUAL_MS: &str = "500";

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Isolation {
    pub(super) nolease: u64,
    /// Strong reads that were answered despite the expired lease.
    pub(super) served: u64,
    pub(super) other: Vec<String>,
    pub(super) eventual: u64,
}

impl Isolation {
    /// Whether the member refused every strong read with `NOLEASE`, and served eventual reads.
    pub(super) fn is_right(&self) -> bool {
        self.nolease > 0 && self.served == 0 && self.other.is_empty() && self.eventual > 0
    }

    /// Whether every answer reports that no member was reached, as the answers of a node outside the chain do.
    pub(super) fn is_of_a_stranger(&self) -> bool {
        (self.nolease, self.served, self.eventual) == (0, 0, 0)
            && self.other.iter().all(|what| what.starts_with("Refused(\"NOCHAIN "))
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.nolease += other.nolease;
        self.served += other.served;
        self.other.extend(other.other.iter().cloned());
        self.eventual += other.eventual;
    }
}

/// Queries a member that has been isolated since `since`, until `end`.
pub(super) async fn watch(cluster: &Cluster, book: &Book, member: usize, since: Instant, end: Instant) -> Isolation {
    let mut keys = book.keys().filter(|key| key.family() == Family::Plain);
    let (Some(one), Some(other)) = (keys.next(), keys.next()) else { return Isolation::default() };
    let ask = |key| strong(book, key, member, since, end);
    let (mut seen, more, eventual) = tokio::join!(ask(one), ask(other), eventual(cluster, book, one, member, end));
    seen.add(&more);
    seen.eventual = eventual;
    seen
}

async fn strong(book: &Book, key: Key, member: usize, since: Instant, end: Instant) -> Isolation {
    let mut seen = Isolation::default();
    // The lease may have been granted just before the cut, and lasts longest by the slowest permitted clock.
    sleep_until(since + LEASE + LEASE * DRIFT_PPM / 1_000_000 + SLACK).await;
    let client = book.client();
    let mut door = Resp::new(Cluster::resp(member)).patience(STRONG);
    // An answer after `end` may stem from a member that is no longer isolated.
    while let Ok(reply) = timeout_at(end, book.ask(client, &mut door, key, Ask::Get)).await {
        match reply {
            Reply::Refused(why) if why.starts_with("NOLEASE") => seen.nolease += 1,
            Reply::Found(_) => seen.served += 1,
            other => seen.other.push(format!("{other:?}")),
        }
        sleep(BETWEEN).await;
    }
    seen
}

/// Counts eventual reads by `ctl get --read eventual` that the member itself served. A client seeded with this member
/// alone receives the chain from it, and spreads its reads over the members.
async fn eventual(cluster: &Cluster, book: &Book, key: Key, member: usize, end: Instant) -> u64 {
    let (name, key) = (name(member), book.name(key));
    let mut served = 0;
    let reads = async {
        loop {
            let said =
                cluster.ctl(member, &["--timeout", EVENTUAL_MS, "--json", "get", &key, "--read", "eventual"]).await;
            served += u64::from(said.is_some_and(|said| said["read"] == "eventual" && said["node"] == *name));
            sleep(BETWEEN).await;
        }
    };
    let _: Result<(), _> = timeout_at(end, reads).await;
    served
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_s_answer_rules_out_a_stranger() {
        let chainless = || vec![format!("{:?}", Reply::Refused("NOCHAIN nothing was applied".into()))];
        let alone = || Isolation { other: chainless(), ..Isolation::default() };
        assert!(alone().is_of_a_stranger() && !alone().is_right());
        assert!(!Isolation { nolease: 1, ..alone() }.is_of_a_stranger());
        assert!(!Isolation { served: 1, ..alone() }.is_of_a_stranger());
        assert!(!Isolation { eventual: 1, ..alone() }.is_of_a_stranger());
        assert!(!Isolation { other: vec!["Unknown".into()], ..Isolation::default() }.is_of_a_stranger());
        assert!(Isolation { nolease: 1, eventual: 1, ..Isolation::default() }.is_right());
    }
}
