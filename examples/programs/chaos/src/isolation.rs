//! An isolated member hears no other node: it refuses strong reads once its lease is out, and goes on with eventual
//! ones.

use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{
    book::{Book, Family, Key},
    cluster::{Cluster, DRIFT_PPM, LEASE},
    door::{Ask, Reply, Resp},
    fault::name,
};

/// For a machine that is busy with other things.
const SLACK: Duration = Duration::from_millis(250);
const BETWEEN: Duration = Duration::from_millis(50);
/// Longer than a node tries to find a member with a lease.
const STRONG: Duration = Duration::from_secs(7);
const EVENTUAL_MS: &str = "500";

/// What members without a lease answered.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Isolation {
    /// Strong reads that were refused with `NOLEASE`.
    pub(super) nolease: u64,
    /// Strong reads that were answered all the same.
    pub(super) served: u64,
    /// Other answers to strong reads.
    pub(super) other: Vec<String>,
    /// Eventual reads that the member itself served.
    pub(super) eventual: u64,
}

impl Isolation {
    /// Whether the member did what it must.
    pub(super) fn is_right(&self) -> bool {
        self.nolease > 0 && self.served == 0 && self.other.is_empty() && self.eventual > 0
    }

    /// Whether all its answers say that it reaches no member, as those of a node in no chain do.
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

/// Asks a member that has been alone since `since`, until `end`.
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
    // A lease that was granted at the last moment, by the slowest clock.
    sleep_until(since + LEASE + LEASE * DRIFT_PPM / 1_000_000 + SLACK).await;
    let client = book.client();
    let mut door = Resp::new(Cluster::resp(member)).patience(STRONG);
    // An answer after the end may be given when the member wasn't alone any more.
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

/// Eventual reads by `ctl get --read eventual` that the member served and that were marked as such. A client that
/// begins its search at this member believes what the member reports of the chain, and each client asks another of the
/// members.
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
