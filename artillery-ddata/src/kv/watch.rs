//! Watches: changes as they are committed.

mod open;
mod previous;
mod target;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_core::Stream;
use tokio::time::Instant;

pub use self::open::{FromNow, FromPosition, OpenWatch, WithPrevious};
pub(crate) use self::target::follow;
use self::{
    previous::PreviousValues,
    target::{WatchTarget, changes},
};
use super::{
    Call, Versioned,
    fetched::{Fetched, NextItem, PageSource},
};
use crate::{
    ChainId, Error, Frontier, Routing, Sequence, Session, Version,
    api::WatchReply,
    error::{Advice, NotApplied},
    rpc::router::from_now,
    store::ScanRecord,
};

/// How long one query waits for changes.
const WATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before a chain that refused a query is asked again.
const PAUSE: Duration = Duration::from_millis(20);

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
    /// The value before the change, if the watch was opened [with previous values](OpenWatch::with_previous). `None`:
    /// the key was absent, or the watch was opened without.
    pub previous: Option<Versioned<Bytes>>,
}

impl Change {
    /// Creates a change, for tests of code that takes one.
    pub fn new(key: Bytes, version: Version, value: Option<Bytes>) -> Self {
        Self { key, version, value, expired: false, previous: None }
    }
}

/// The committed changes of the keys that begin with a prefix. Once opened ([`OpenWatch`]), a watch returns each change
/// once, in the order of its chain's history. The order doesn't depend on the members that serve the watch. A change of
/// the expiry alone isn't reported. If the prefix has a whole `{…}`, only the chain of these keys is asked.
///
/// The watch sends a query when it is polled for the next change. Members queue nothing for it, but keep a number of
/// committed updates (`limits.backlog_bytes`). A watch that falls further behind fails with
/// [`Compacted`](crate::Refusal::Compacted). After a recovery the watch fails with
/// [`OtherHistory`](crate::Refusal::OtherHistory), since changes that it returned may be missing from the new history.
///
/// # A copy without gaps
/// To copy the keys and keep the copy current, also after [`Compacted`](crate::Refusal::Compacted):
/// 1. Open a watch.
/// 2. Scan the prefix in a session that has the watch's [position](Self::position) as its frontier. In every mode, each
///    page then shows a state at or after this position.
/// 3. Follow the watch, and skip each change whose version isn't newer than that of the key's entry in the copy.
///
/// A key that was deleted before its page was read has no entry. The watch may return its earlier changes, followed by
/// the deletion. During a long scan the watch may fall behind: then keep the changes that it returns during the scan.
///
/// ```no_run
/// # async fn example(kv: artillery_ddata::Kv) -> Result<(), artillery_ddata::Error> {
/// # use std::collections::BTreeMap;
/// # use artillery_ddata::{ReadMode, Session};
/// let mut watch = kv.watch("stock/").await?;
/// let session = Session::resume(watch.position());
/// let mut scan = kv.scan("stock/").mode(ReadMode::Eventual).session(&session);
/// let mut copy = BTreeMap::new();
/// while let Some(entry) = scan.next().await {
///     let entry = entry?;
///     copy.insert(entry.key, (entry.version, entry.value));
/// }
/// while let Some(change) = watch.next().await {
///     let change = change?;
///     if copy.get(&change.key).is_some_and(|&(version, _)| change.version <= version) {
///         continue;
///     }
///     match change.value {
///         Some(value) => copy.insert(change.key, (change.version, value)),
///         None => copy.remove(&change.key),
///     };
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a watch returns nothing until its changes are asked for"]
pub struct Watch {
    changes: Fetched<WatchState>,
    reached: Session,
}

struct WatchState {
    target: WatchTarget,
    /// The position reached. A session can hold it, and shares it with [`Watch::position`] during a fetch.
    reached: Session,
    /// The chain whose answer was taken last: the others are looked at first.
    turn: ChainId,
    /// The query of each chain that waits for its answer. A chain is asked for as long as it takes: an idle one doesn't
    /// delay the others, nor does a slow network.
    asked: BTreeMap<ChainId, AskedChain>,
    ready: VecDeque<(ChainId, ScanRecord)>,
    /// Per chain, the update whose changes didn't fit one answer: the next query asks for the rest.
    parts: BTreeMap<ChainId, ShownPart>,
    /// Per chain, the start of the current streak of refusals.
    refusing: BTreeMap<ChainId, Instant>,
    /// `None`: previous values aren't reported.
    previous: Option<PreviousValues>,
}

/// A query that waits for its answer.
struct AskedChain {
    since: Instant,
    answer: Call<Result<WatchReply, Error>>,
}

/// An update whose changes have been returned in part.
#[derive(Clone, Copy)]
struct ShownPart {
    after: Sequence,
    shown: u32,
}

impl Watch {
    /// The watch of the changes after this position, which belongs to a history.
    fn after(target: WatchTarget, position: Frontier, previous: Option<PreviousValues>) -> Self {
        let reached = Session::resume(position);
        let state = WatchState {
            target,
            reached: reached.clone(),
            turn: ChainId(0),
            asked: BTreeMap::new(),
            ready: VecDeque::new(),
            parts: BTreeMap::new(),
            refusing: BTreeMap::new(),
            previous,
        };
        Self { changes: Fetched::new(state), reached }
    }

    /// The position up to which all changes were returned, for another watch of the same prefix to continue
    /// [from](OpenWatch::from). It may also rise while the watch waits for the next change. A position lies between
    /// updates: after part of a batch was returned, another watch returns the whole batch.
    pub fn position(&self) -> Frontier {
        self.reached.frontier()
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
        self.changes.poll_next(context)
    }
}

impl PageSource for WatchState {
    type Item = Change;

    fn take(&mut self) -> NextItem<Change> {
        let Some((chain, ScanRecord { key, held })) = self.ready.pop_front() else { return NextItem::Unknown };
        let is_last = self.ready.front().is_none_or(|(_, next)| next.held.version != held.version);
        if is_last
            && self.parts.get(&chain).is_none_or(|part| part.after.next() != held.version.sequence)
            && let Some(history) = self.reached.history_id()
        {
            self.reached.raise(history, chain, held.version.sequence);
        }
        let expired = held.value.is_none() && held.expires.is_some();
        let mut change = Change { expired, ..Change::new(key, held.version, held.value) };
        if let Some(previous) = &mut self.previous {
            previous.complete(&mut change);
        }
        NextItem::Item(change)
    }

    async fn fetch(&mut self) -> Result<(), Error> {
        let router = &self.target.kv.router;
        router.begin_call().await?;
        // A position is valid in one history only: in another the watch would skip changes (trap 59). Each query names
        // the history too, since the node that answers may be in another one.
        let routing = router.routing_of(self.reached.history_id(), from_now(self.target.how.timeout)).await?;
        let watched = self.target.chains(&routing);
        while self.ready.is_empty() {
            for &chain in &watched {
                if !self.asked.contains_key(&chain) {
                    self.ask(&routing, chain, Duration::ZERO);
                }
            }
            let (chain, since, answer) = poll_fn(|context| self.poll_asked(context)).await;
            let changes = match answer {
                Ok(changes) => changes,
                // No answer in time is treated as no change.
                Err(Error::NotApplied { reason: NotApplied::TimedOut }) => continue,
                // A refusal within such a short time may be temporary: the other chains are asked in the meantime.
                Err(error) if error.way_on() == Advice::Retry && self.is_excused(chain, since) => {
                    self.ask(&routing, chain, PAUSE);
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
                self.reached.raise(routing.history_id(), chain, upto);
            }
            self.ready.extend(changes.records.into_iter().map(|record| (chain, record)));
        }
        Ok(())
    }
}

impl WatchState {
    /// Asks a chain for its changes, after a pause.
    fn ask(&mut self, routing: &Arc<Routing>, chain: ChainId, pause: Duration) {
        let part = self.parts.get(&chain).copied();
        let position = || (self.reached.frontier().floor(chain), 0);
        let (after, shown) = part.map_or_else(position, |part| (part.after, part.shown));
        let (target, routing) = (self.target.clone(), routing.clone());
        let answer = Box::pin(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let answer = target.ask(&routing, chain, (Some(after), shown), from_now(WATCH_TIMEOUT)).await;
            answer.and_then(changes)
        });
        self.asked.insert(chain, AskedChain { since: Instant::now(), answer });
    }

    /// The answer of some chain.
    fn poll_asked(&mut self, context: &mut Context<'_>) -> Poll<(ChainId, Instant, Result<WatchReply, Error>)> {
        let turn = self.turn;
        let mut others = self.asked.iter_mut().filter(|(chain, _)| **chain > turn);
        let mut ready = |(&chain, asked): (&ChainId, &mut AskedChain)| match asked.answer.as_mut().poll(context) {
            Poll::Ready(answer) => Some((chain, asked.since, answer)),
            Poll::Pending => None,
        };
        let mut found = others.find_map(&mut ready);
        if found.is_none() {
            found = self.asked.range_mut(..=turn).find_map(&mut ready);
        }
        let Some((chain, since, answer)) = found else { return Poll::Pending };
        self.asked.remove(&chain);
        self.turn = chain;
        Poll::Ready((chain, since, answer))
    }

    /// Whether a chain's refusal is tolerated: the chain has answered only with refusals for less than a call's
    /// timeout.
    fn is_excused(&mut self, chain: ChainId, asked: Instant) -> bool {
        let since = *self.refusing.entry(chain).or_insert(asked);
        let is_excused = since.elapsed() < self.target.how.timeout;
        if !is_excused {
            // The caller gets the error. If it keeps polling, the time starts again.
            self.refusing.remove(&chain);
        }
        is_excused
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("reached", &self.reached)
            .field("fetching", &self.changes.is_fetching())
            .finish_non_exhaustive()
    }
}
