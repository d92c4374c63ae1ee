//! The reads that a client can ask for.

use std::time::Duration;

use bytes::Bytes;

use crate::Sequence;

/// How a read may be served.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum ReadMode {
    /// Linearizable, from any member: local when clean, otherwise after one version query to the tail.
    #[default]
    Strong,
    /// Linearizable, behind a barrier that passes the whole chain: trusts no clock.
    ThroughChain,
    /// The newest version that the member has. It may be uncommitted; the result says so.
    Eventual,
    /// The newest version that the member has, with at most `versions` uncommitted ones of the key. Within `age` of its
    /// own clock, the member has shown that it is not further behind. Otherwise as [`Strong`](Self::Strong).
    Bounded {
        /// Uncommitted versions of the key at most.
        versions: u32,
        /// How long ago the member may have heard from the tail.
        age: Duration,
    },
}

/// What a read asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Query {
    /// One key.
    Key(Bytes),
    /// These keys, all at one point of the history.
    Keys(Vec<Bytes>),
    /// A page of keys in order, at one point of the history.
    Scan(ScanQuery),
    /// Committed changes in the order of the history. The answer comes with the first, at the latest at the deadline.
    Changes(WatchQuery),
    /// A page of keys in hash order, at one point of the history.
    Hashed(HashedQuery),
}

/// Which changes a watch asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchQuery {
    /// Only changes of keys that begin with this.
    pub prefix: Bytes,
    /// Only changes behind this position. `None`: from now on; the answer comes at once, and is the present position.
    pub after: Option<Sequence>,
    /// How many changes of the update behind `after` were [shown](super::WatchReply::shown) already.
    pub shown: u32,
}

/// Which page of keys in key order a scan asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanQuery {
    /// Only keys that begin with this.
    pub prefix: Bytes,
    /// Only keys behind this one; `None`: from the first.
    pub after: Option<Bytes>,
    /// At most so many entries.
    pub limit: u32,
    /// The point of the history that the page shows.
    pub snapshot: Snapshot,
}

/// Which page of keys in hash order a scan asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashedQuery {
    /// Only keys at this [`position`](crate::store::position) or behind it; 0: from the first.
    pub from: u64,
    /// At most so many keys, unless those of one position are more.
    pub limit: u32,
}

/// Which point of the history the pages of a scan show.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Snapshot {
    /// Each page shows a point of its own.
    No,
    /// This page begins a snapshot: the member keeps what the following pages need, for a while.
    Begin,
    /// The snapshot that this member began under this number.
    Of(u64),
}

impl Query {
    /// The keys that the query names. A scan in either order, and a watch, name none.
    pub fn keys(&self) -> &[Bytes] {
        match self {
            Self::Key(key) => std::slice::from_ref(key),
            Self::Keys(keys) => keys,
            Self::Scan(_) | Self::Changes(_) | Self::Hashed(_) => &[],
        }
    }

    /// The bounds that a scan or a watch names instead of keys: the prefix, and the key to go on behind.
    pub fn bounds(&self) -> impl Iterator<Item = &Bytes> {
        let (prefix, after) = match self {
            Self::Scan(scan) => (Some(&scan.prefix), scan.after.as_ref()),
            Self::Changes(watch) => (Some(&watch.prefix), None),
            Self::Key(_) | Self::Keys(_) | Self::Hashed(_) => (None, None),
        };
        prefix.into_iter().chain(after)
    }
}
