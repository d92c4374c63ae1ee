//! Scans in key order.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_core::Stream;

use super::{
    fetched::{Fetched, NextItem, PageSource},
    get::no_read,
    handle::how_to_read,
    keep::copy,
};
use crate::{
    ChainId, Error, Kv, MemberId, Session, Version,
    api::{self, Query, ReadMode, Reply, ScanReply, Snapshot},
    control::chain_of_prefix,
    rpc::router::{CallAnswer, HowToRead, from_now},
    store::ScanRecord,
};

const PAGE: u32 = 256;

/// One entry of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The key.
    pub key: Bytes,
    /// The version of the update that wrote the value.
    pub version: Version,
    /// The value.
    pub value: Bytes,
}

impl Entry {
    /// Creates an entry, for tests of code that takes one.
    pub fn new(key: Bytes, version: Version, value: Bytes) -> Self {
        Self { key, version, value }
    }
}

/// The keys that begin with a prefix, in byte order, with their values. If the prefix has a whole `{…}`, only the chain
/// of these keys is asked.
///
/// A scan fetches pages, the first when the first entry is polled for. Each page shows one point of the history of a
/// chain, and the next page may show a later one. A key that exists throughout is returned once. With
/// [`snapshot`](Self::snapshot) all pages of a chain show the same point.
#[must_use = "a scan does nothing until its entries are asked for"]
pub struct Scan(Fetched<ScanState>);

struct ScanState {
    kv: Kv,
    how: HowToRead,
    prefix: Bytes,
    after: Option<Bytes>,
    left: u64,
    snapshot: bool,
    /// `None` until the first entry is polled for.
    chains: Option<Vec<ChainCursor>>,
}

struct ChainCursor {
    chain: ChainId,
    fetched: VecDeque<ScanRecord>,
    after: Option<Bytes>,
    at_end: bool,
    /// The member that keeps the snapshot, and the snapshot's number there.
    snapshot: Option<(MemberId, u64)>,
}

impl Scan {
    pub(super) fn new(kv: &Kv, prefix: Bytes) -> Self {
        let state = ScanState {
            kv: kv.clone(),
            how: how_to_read(kv),
            prefix,
            after: None,
            left: u64::MAX,
            snapshot: false,
            chains: None,
        };
        Self(Fetched::new(state))
    }

    fn set(self, set: impl FnOnce(&mut ScanState)) -> Self {
        Self(self.0.set(set))
    }

    /// Limits the number of entries that the scan returns.
    pub fn limit(self, limit: u64) -> Self {
        self.set(|state| state.left = limit)
    }

    /// Returns only keys after this one, to continue after the last key of an earlier scan with the same prefix.
    pub fn after(self, key: impl AsRef<[u8]>) -> Self {
        self.set(|state| state.after = Some(copy(key)))
    }

    /// Sets the read mode of all pages.
    pub fn mode(self, mode: ReadMode) -> Self {
        self.set(|state| state.how.mode = mode)
    }

    /// Sets how long a fetch may take. A fetch gets one page of each chain that has no fetched entry left.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.set(|state| state.how.timeout = timeout)
    }

    /// Reads the pages in a session: none shows an older state than the session has seen.
    pub fn session(self, session: &Session) -> Self {
        self.set(|state| state.how.session = Some(session.clone()))
    }

    /// Shows one point of the history of each chain: that of its first page. A member keeps the snapshot for the scan,
    /// and drops it if the next page isn't requested in time, or if too many bytes were written since the first page:
    /// writes continue. Then the scan fails with [`SnapshotGone`](crate::Refusal::SnapshotGone). The scan also fails if
    /// that member stops serving the chain or isn't reached, or, with [`Busy`](crate::Refusal::Busy), if the members
    /// that it asked until its timeout kept too many snapshots already.
    pub fn snapshot(self) -> Self {
        self.set(|state| state.snapshot = true)
    }

    /// The next entry. `None` after the last entry, or after an error. Dropping the future loses no entry.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::NotApplied`].
    pub async fn next(&mut self) -> Option<Result<Entry, Error>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl Stream for Scan {
    type Item = Result<Entry, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next(context)
    }
}

impl PageSource for ScanState {
    type Item = Entry;

    fn take(&mut self) -> NextItem<Entry> {
        if self.left == 0 {
            return NextItem::End;
        }
        if self.is_short() {
            return NextItem::Unknown;
        }
        self.first().map_or(NextItem::End, NextItem::Item)
    }

    async fn fetch(&mut self) -> Result<(), Error> {
        self.kv.router.begin_call().await?;
        let deadline = from_now(self.how.timeout);
        let routing = self.kv.router.routing_of(self.how.history_id(), deadline).await?;
        let after = self.after.clone();
        let begin = || {
            let cursor = |config: &crate::ChainConfig| ChainCursor {
                chain: config.chain,
                fetched: VecDeque::new(),
                after: after.clone(),
                at_end: false,
                snapshot: None,
            };
            let only = chain_of_prefix(&self.prefix, routing.chains.len() as u32);
            let chains = routing.chains.iter().filter(|config| only.is_none_or(|only| only == config.chain));
            chains.map(cursor).collect()
        };
        for cursor in self.chains.get_or_insert_with(begin) {
            if !cursor.fetched.is_empty() || cursor.at_end {
                continue;
            }
            let snapshot = match cursor.snapshot {
                Some((_, number)) => Snapshot::Of(number),
                None if self.snapshot => Snapshot::Begin,
                None => Snapshot::No,
            };
            let limit = u32::try_from(self.left).unwrap_or(PAGE).min(PAGE);
            let (prefix, after) = (self.prefix.clone(), cursor.after.clone());
            let query = Query::Scan(api::ScanQuery { prefix, after, limit, snapshot });
            let only = cursor.snapshot.map(|(member, _)| member);
            let router = &self.kv.router;
            let CallAnswer { reply, node, .. } =
                router.read_in(&routing, cursor.chain, query, &self.how, only, deadline).await?;
            let Reply::Page(ScanReply { records, next, snapshot, .. }) = reply else {
                return Err(no_read(&reply, node));
            };
            cursor.fetched = records.into();
            cursor.at_end = next.is_none();
            cursor.after = next;
            cursor.snapshot = snapshot.map(|number| (node, number));
        }
        Ok(())
    }
}

impl ScanState {
    /// Whether the next entry of some chain is unknown. Then the scan's next entry is unknown too.
    fn is_short(&self) -> bool {
        let is_short = |cursor: &ChainCursor| cursor.fetched.is_empty() && !cursor.at_end;
        self.chains.as_ref().is_none_or(|chains| chains.iter().any(is_short))
    }

    fn first(&mut self) -> Option<Entry> {
        let chains = self.chains.as_mut()?.iter_mut().filter(|cursor| !cursor.fetched.is_empty());
        let first = chains.min_by(|a, b| a.fetched[0].key.cmp(&b.fetched[0].key))?;
        let ScanRecord { key, held } = first.fetched.pop_front()?;
        self.left -= 1;
        Some(Entry { key, version: held.version, value: held.value.unwrap_or_default() })
    }
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("fetching", &self.0.is_fetching()).finish_non_exhaustive()
    }
}
