//! Reads of clients.

use std::time::Duration;

use bytes::Bytes;

use super::{CopyStep, DigestQuery, DigestStep};
use crate::Sequence;

/// How a read may be served.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum ReadMode {
    /// Linearizable, from any serving member; in classic mode, only from the tail. Local if the member holds a lease
    /// and its version is clean. Otherwise after a version query to the tail, or once the watermark of a member with a
    /// lease covers the version. A tail without a lease uses a barrier.
    #[default]
    Strong,
    /// Linearizable through a barrier that passes the whole chain; depends on no clock.
    ThroughChain,
    /// The newest version that the member holds. A read of one key outside of a session may return an uncommitted
    /// version, and states so; other reads return committed versions. A read of a session waits until the member has
    /// reached the session's floor.
    Eventual,
    /// Returns the same versions as [`Eventual`](Self::Eventual), if at most `versions` versions of a key are
    /// uncommitted at the member, and the member is the tail with a lease, or has shown within `age`, by its own clock,
    /// that it isn't further behind. Otherwise, or if the member hasn't reached the session's floor, the read is served
    /// as [`Strong`](Self::Strong).
    Bounded {
        /// The most uncommitted versions of a key; for scans, the most uncommitted updates of the chain.
        versions: u32,
        /// The maximum age of the member's last proof that it isn't further behind: a version query or a lease renewal.
        age: Duration,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Query {
    Key(Bytes),
    /// These keys, all at one point of the history.
    Keys(Vec<Bytes>),
    /// A page of keys in order, at one point of the history.
    Scan(ScanQuery),
    /// Committed changes in the order of the history. The reply is sent with the first change, at the latest with the
    /// member's first heartbeat after the deadline. It may contain no change, only a position.
    Changes(WatchQuery),
    /// A page of keys in hash order, at one point of the history.
    Hashed(HashedQuery),
    /// A step of a digest.
    Digest(Box<DigestQuery>),
    /// A step of a copy for a backup.
    Copy(CopyStep),
}

/// The range of a watch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WatchQuery {
    /// Only changes of keys with this prefix.
    pub prefix: Bytes,
    /// Only changes after this position. `None`: only future changes; the reply follows at once and states the current
    /// position.
    pub after: Option<Sequence>,
    /// The number of changes of the update after `after` that were already [shown](super::WatchReply::shown).
    pub shown: u32,
}

impl WatchQuery {
    /// The mode in which a watch or a copy asks. A member that has not joined yet answers eventual reads, from an old state
    /// or from none: it must not give the position at which a watch or a copy begins. Later queries are bound to that
    /// position.
    pub fn mode(&self) -> ReadMode {
        if self.after.is_none() { ReadMode::Strong } else { ReadMode::Eventual }
    }

    /// Whether the query wants a position at or above this floor, with or without a change: its position is below.
    pub(crate) fn asks_position(&self, floor: Option<Sequence>) -> bool {
        self.after.is_some_and(|after| floor.is_some_and(|floor| after < floor))
    }
}

/// The range of one page of a scan in key order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ScanQuery {
    /// Only keys with this prefix.
    pub prefix: Bytes,
    /// Only keys after this one; `None`: from the first.
    pub after: Option<Bytes>,
    /// The most records in the page; a number outside of 1 to 1,024 is replaced by the nearer of these two. A page also
    /// ends at a limit of bytes ([`ReplicaSettings::answer`](crate::replica::ReplicaSettings::answer)).
    pub limit: u32,
    pub snapshot: Snapshot,
}

/// The range of one page of a scan in hash order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HashedQuery {
    /// Only keys from this [`position`](crate::store::position) up; 0: from the first.
    pub from: u64,
    /// The most keys in the page; a number outside of 1 to 1,024 is replaced by the nearer of these two. A page also
    /// ends at a limit of bytes. Keys of one position are never split between pages, so a page may exceed both limits.
    pub limit: u32,
}

/// The point of the history that the pages of a scan show.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Snapshot {
    /// Each page shows its own point.
    No,
    /// This page begins a snapshot: the member keeps the versions that the next pages need, until the last page, or
    /// until a limit of time or of written bytes is exceeded.
    Begin,
    /// The snapshot that this member began under this number.
    Of(u64),
}

impl Query {
    /// The keys that the query names; none for scans and watches.
    pub fn keys(&self) -> &[Bytes] {
        match self {
            Self::Key(key) => std::slice::from_ref(key),
            Self::Keys(keys) => keys,
            Self::Scan(_) | Self::Changes(_) | Self::Hashed(_) | Self::Digest(_) | Self::Copy(_) => &[],
        }
    }

    /// The prefix of a scan, watch or digest, and the key at which a scan, digest or copy continues.
    pub fn bounds(&self) -> impl Iterator<Item = &Bytes> {
        let (prefix, after) = match self {
            Self::Digest(digest) => match &digest.step {
                DigestStep::Begin => (Some(&digest.prefix), None),
                DigestStep::Part { from, .. } => (Some(&digest.prefix), Some(&from.key)),
            },
            Self::Scan(scan) => (Some(&scan.prefix), scan.after.as_ref()),
            Self::Changes(watch) => (Some(&watch.prefix), None),
            Self::Copy(CopyStep::Records { behind, .. }) => (None, behind.as_ref()),
            Self::Key(_) | Self::Keys(_) | Self::Hashed(_) | Self::Copy(_) => (None, None),
        };
        prefix.into_iter().chain(after)
    }
}
