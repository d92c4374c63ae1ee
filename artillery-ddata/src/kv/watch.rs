//! Watches: changes as they are committed.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_core::Stream;
use tokio::time::Instant;

use super::{
    fetched::{Fetched, NextItem, PageSource},
    get::no_read,
    handle::how_to_read,
};
use crate::{
    ChainId, Error, Frontier, Kv, Refusal, Routing, Sequence, Version,
    api::{self, Query, ReadMode, Reply, WatchReply},
    control::chain_of_prefix,
    error::{Advice, NotApplied},
    rpc::router::{CallAnswer, HowToRead, from_now},
    store::ScanRecord,
};

/// How long one query waits for changes if the cluster has a single chain.
const WATCH_TIMEOUT: Duration = Duration::from_secs(10);

/// A committed change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The key.
    pub key: Bytes,
    /// The version of the update. Changes of one batch or script share it.
    pub version: Version,
    /// The new value. `None`: the key was deleted.
    pub value: Option<Bytes>,
    /// Whether the key was deleted because it was due.
    pub expired: bool,
}

impl Change {
    /// Creates a change, for tests of code that takes one.
    pub fn new(key: Bytes, version: Version, value: Option<Bytes>) -> Self {
        Self { key, version, value, expired: false }
    }
}

/// Every committed change of the keys that begin with a prefix: once, and in the order of their chain's history. The
/// order doesn't depend on the members that serve the watch. A change of the expiry alone isn't reported. If the prefix
/// has a whole `{…}`, only the chain of these keys is asked.
///
/// The watch sends a query when it is polled for the next change. Members queue nothing for it, but keep a number of
/// committed updates (`limits.backlog_bytes`). A watch that falls further behind fails with
/// [`Compacted`](crate::Refusal::Compacted). Then start over: take the [frontier](crate::Session::frontier) of a
/// session that has read from every chain, read the keys in that session, and watch from this frontier. After a
/// recovery the watch fails with [`OtherHistory`](crate::Refusal::OtherHistory), since changes that it returned may be
/// missing from the new history.
#[must_use = "a watch does nothing until its changes are asked for"]
pub struct Watch(Fetched<WatchState>);

struct WatchState {
    kv: Kv,
    how: HowToRead,
    prefix: Bytes,
    from: Frontier,
    /// The position reached; `None` before the watch has begun.
    position: Option<Frontier>,
    turn: usize,
    ready: VecDeque<(ChainId, ScanRecord)>,
    /// Per chain, the update whose changes didn't fit one answer: the next query asks for the rest.
    parts: BTreeMap<ChainId, ShownPart>,
    /// Per chain, the start of the current streak of refusals.
    refusing: BTreeMap<ChainId, Instant>,
}

/// An update whose changes have been returned in part.
#[derive(Clone, Copy)]
struct ShownPart {
    after: Sequence,
    shown: u32,
}

impl Watch {
    pub(super) fn new(kv: &Kv, prefix: Bytes) -> Self {
        let how = HowToRead { mode: ReadMode::Eventual, ..how_to_read(kv) };
        let state = WatchState {
            kv: kv.clone(),
            how,
            prefix,
            from: Frontier::default(),
            position: None,
            turn: 0,
            ready: VecDeque::new(),
            parts: BTreeMap::new(),
            refusing: BTreeMap::new(),
        };
        Self(Fetched::new(state))
    }

    /// Returns the changes after this position, which another watch ([`position`](Self::position)) or a session
    /// reported. By default a watch begins with the changes after its first poll.
    pub fn from(self, from: Frontier) -> Self {
        Self(self.0.set(|state| state.from = from))
    }

    /// The position up to which all changes were returned, for another watch of the same prefix to continue
    /// [from](Self::from). A position
    /// lies between updates: after part of a batch was returned, another watch returns the whole batch. `None` before
    /// the watch has begun, or while it waits for the next change.
    pub fn position(&self) -> Option<Frontier> {
        self.0.source()?.position.clone()
    }

    /// The next change. `None` after an error. Dropping the future loses no change.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::NotApplied`]; the reason is [`Compacted`](crate::Refusal::Compacted) if the watch
    /// fell behind, [`OtherHistory`](crate::Refusal::OtherHistory) if the cluster was recovered.
    pub async fn next(&mut self) -> Option<Result<Change, Error>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl Stream for Watch {
    type Item = Result<Change, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next(context)
    }
}

impl PageSource for WatchState {
    type Item = Change;

    fn take(&mut self) -> NextItem<Change> {
        let Some((chain, ScanRecord { key, held })) = self.ready.pop_front() else { return NextItem::Unknown };
        let is_last = self.ready.front().is_none_or(|(_, next)| next.held.version != held.version);
        if is_last
            && self.parts.get(&chain).is_none_or(|part| part.after.next() != held.version.sequence)
            && let Some(position) = &mut self.position
            && let Some(cluster) = position.cluster()
        {
            position.raise(cluster, chain, held.version.sequence);
        }
        let expired = held.value.is_none() && held.expires.is_some();
        NextItem::Item(Change { key, version: held.version, value: held.value, expired })
    }

    async fn fetch(&mut self) -> Result<(), Error> {
        self.kv.router.begin_call().await?;
        let position = self.position.as_ref().unwrap_or(&self.from);
        // A position is valid in one history only: in another the watch would skip changes (trap 59). Each query names
        // the history too, since the node that answers may be in another one.
        let mut routing = self.kv.router.routing_of(position.cluster(), from_now(self.how.timeout)).await?;
        if self.position.is_none() {
            match self.begin(&routing).await {
                // A watch without a given position belongs to no history yet, so only the routing is outdated: fetch a
                // newer one.
                Err(Error::Refused { reason: Refusal::OtherHistory, .. }) if self.from.cluster().is_none() => {
                    routing = self.kv.router.routing(from_now(self.how.timeout)).await?;
                    self.begin(&routing).await?;
                }
                begun => begun?,
            }
        }
        while self.ready.is_empty() {
            // With several chains, wait only briefly for each, so that an idle chain doesn't delay the others.
            let watched = watched(&routing, &self.prefix);
            let chains = watched.len().max(1);
            let patience = if chains == 1 { WATCH_TIMEOUT } else { Duration::from_millis(20) };
            self.turn = (self.turn + 1) % chains;
            let chain = watched[self.turn];
            let position = || self.position.as_ref().map(|position| position.floor(chain));
            let part = self.parts.get(&chain).copied();
            let (after, shown) = part.map_or_else(|| (position(), 0), |part| (Some(part.after), part.shown));
            let changes = match self.ask_chain(&routing, chain, after, shown, patience).await {
                Ok(Some(changes)) => changes,
                Ok(None) => continue,
                // A refusal within such a short time may be temporary: query the other chains in the meantime.
                Err(error) if chains > 1 && error.way_on() == Advice::Retry && self.is_excused(chain) => {
                    tokio::time::sleep(patience).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.refusing.remove(&chain);
            let WatchReply { upto, shown, .. } = changes;
            match shown {
                0 => drop(self.parts.remove(&chain)),
                _ => drop(self.parts.insert(chain, ShownPart { after: upto, shown })),
            }
            if changes.records.is_empty() {
                self.reach(&routing, chain, upto);
            }
            self.ready.extend(changes.records.into_iter().map(|record| (chain, record)));
        }
        Ok(())
    }
}

/// The chains that keys with this prefix belong to.
fn watched(routing: &Routing, prefix: &[u8]) -> Vec<ChainId> {
    let only = chain_of_prefix(prefix, routing.chains.len() as u32);
    let chains = routing.chains.iter().map(|config| config.chain);
    chains.filter(|&chain| only.is_none_or(|only| only == chain)).collect()
}

impl WatchState {
    fn reach(&mut self, routing: &Routing, chain: ChainId, upto: Sequence) {
        self.position.get_or_insert_default().raise(routing.history_id(), chain, upto);
    }

    /// Sets the position. By default each chain is watched from its current watermark on.
    async fn begin(&mut self, routing: &Routing) -> Result<(), Error> {
        let mut position = self.from.clone();
        for chain in watched(routing, &self.prefix) {
            if self.from.cluster().is_none() {
                let now = self.ask_chain(routing, chain, None, 0, self.how.timeout).await?;
                let now = now.ok_or(Error::not_applied(NotApplied::TimedOut))?;
                position.raise(routing.history_id(), chain, now.upto);
            }
        }
        self.position = Some(position);
        Ok(())
    }

    /// Whether a chain's refusal is tolerated: the chain has answered only with refusals for less than a call's
    /// timeout.
    fn is_excused(&mut self, chain: ChainId) -> bool {
        let since = *self.refusing.entry(chain).or_insert_with(Instant::now);
        let is_excused = since.elapsed() < self.how.timeout;
        if !is_excused {
            // The caller gets the error. If it keeps polling, the time starts again.
            self.refusing.remove(&chain);
        }
        is_excused
    }

    /// Queries one chain for the changes after `after`; without `after`, for its current watermark. `None`: no answer
    /// to a query with `after` arrived in time, which is treated as no change.
    async fn ask_chain(
        &self,
        routing: &Routing,
        chain: ChainId,
        after: Option<Sequence>,
        shown: u32,
        patience: Duration,
    ) -> Result<Option<WatchReply>, Error> {
        let query = Query::Changes(api::WatchQuery { prefix: self.prefix.clone(), after, shown });
        let deadline = from_now(patience);
        let asked = self.kv.router.read_in(routing, chain, query, &self.how, None, deadline).await;
        let CallAnswer { reply, node, .. } = match asked {
            Ok(answer) => answer,
            Err(Error::NotApplied { reason: NotApplied::TimedOut }) if after.is_some() => return Ok(None),
            Err(error) => return Err(error),
        };
        match reply {
            Reply::Changes(changes) => Ok(Some(changes)),
            other => Err(no_read(&other, node)),
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("fetching", &self.0.is_fetching()).finish_non_exhaustive()
    }
}
