//! Changes as they are committed.

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
    error::{Advice, NotApplied},
    rpc::router::{CallAnswer, HowToRead, from_now},
    store::ScanRecord,
};

/// So long one question waits for changes before it is asked again.
const WATCH_TIMEOUT: Duration = Duration::from_secs(10);

/// A committed change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The key.
    pub key: Bytes,
    /// The update that made it. The changes of one batch have the same one.
    pub version: Version,
    /// The new value; `None`: the key was deleted.
    pub value: Option<Bytes>,
}

impl Change {
    /// A value: for tests of code that takes one.
    pub fn new(key: Bytes, version: Version, value: Option<Bytes>) -> Self {
        Self { key, version, value }
    }
}

/// Every committed change of the keys that begin with a prefix: once, and in the order of the history of their chain,
/// whichever members serve it.
///
/// It asks when the next change is wanted, and members queue nothing for it; they keep what was committed for a while
/// (`limits.backlog_bytes`). Who falls further behind is told so by [`Compacted`](crate::Refusal::Compacted), and begins
/// anew: read what is there, and watch from then on. So does a watch that meets a recovered history
/// ([`OtherHistory`](crate::Refusal::OtherHistory)): what it was shown may be missing there.
#[must_use = "a watch does nothing until its changes are asked for"]
pub struct Watch(Fetched<WatchState>);

struct WatchState {
    kv: Kv,
    how: HowToRead,
    prefix: Bytes,
    from: Frontier,
    /// Where it stands, once it has begun.
    position: Option<Frontier>,
    /// Which chain is asked next, where there are several.
    turn: usize,
    ready: VecDeque<(ChainId, ScanRecord)>,
    /// Of each chain, an update of which only some changes came, since all of them are too much for one answer: the rest is asked
    /// for next.
    parts: BTreeMap<ChainId, ShownPart>,
    /// Since when each chain has refused, of those that answered by nothing else meanwhile.
    refusing: BTreeMap<ChainId, Instant>,
}

/// What was shown of an update.
#[derive(Clone, Copy)]
struct ShownPart {
    /// All that stands in front of the update.
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

    /// Behind this position, of another watch ([`position`](Self::position)) or of a session, rather than from now on.
    pub fn from(self, from: Frontier) -> Self {
        Self(self.0.set(|state| state.from = from))
    }

    /// Up to where all changes have been handed out: to go on there later. It stands between updates: of a batch that was handed
    /// out in part all changes come again. `None` before it has begun, or while the next
    /// change is being waited for.
    pub fn position(&self) -> Option<Frontier> {
        self.0.source()?.position.clone()
    }

    /// The next change; `None` behind an error. May be cancelled: nothing is lost.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::NotApplied`]; [`Compacted`](crate::Refusal::Compacted) if it fell behind,
    /// [`OtherHistory`](crate::Refusal::OtherHistory) if the cluster was recovered.
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
        NextItem::Item(Change { key, version: held.version, value: held.value })
    }

    /// Asks until there is something.
    async fn fetch(&mut self) -> Result<(), Error> {
        let position = self.position.as_ref().unwrap_or(&self.from);
        // A position counts in one history alone: in another one changes behind it would be passed over (trap 59). Each
        // question names the history too, since the answering node may be in another.
        let mut routing = self.kv.router.routing_of(position.cluster(), from_now(self.how.timeout)).await?;
        if self.position.is_none() {
            match self.begin(&routing).await {
                // One from now on belongs to no history yet: the routing here lagged behind.
                Err(Error::Refused { reason: Refusal::OtherHistory, .. }) if self.from.cluster().is_none() => {
                    routing = self.kv.router.routing(from_now(self.how.timeout)).await?;
                    self.begin(&routing).await?;
                }
                begun => begun?,
            }
        }
        while self.ready.is_empty() {
            // With several chains none of them is waited for so long that another one would have to wait for it.
            let chains = routing.chains.len().max(1);
            let patience = if chains == 1 { WATCH_TIMEOUT } else { Duration::from_millis(20) };
            self.turn = (self.turn + 1) % chains;
            let chain = routing.chains[self.turn].chain;
            let position = || self.position.as_ref().map(|position| position.floor(chain));
            let part = self.parts.get(&chain).copied();
            let (after, shown) = part.map_or_else(|| (position(), 0), |part| (Some(part.after), part.shown));
            let changes = match self.ask_chain(&routing, chain, after, shown, patience).await {
                Ok(Some(changes)) => changes,
                Ok(None) => continue,
                // In so short a time that says nothing yet: other chains are asked meanwhile.
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

impl WatchState {
    fn reach(&mut self, routing: &Routing, chain: ChainId, upto: Sequence) {
        self.position.get_or_insert_default().raise(routing.history_id(), chain, upto);
    }

    /// Where nothing else was said, each chain is watched from what it has committed by now.
    async fn begin(&mut self, routing: &Routing) -> Result<(), Error> {
        let mut position = self.from.clone();
        for config in &routing.chains {
            if self.from.cluster().is_none() {
                let now = self.ask_chain(routing, config.chain, None, 0, self.how.timeout).await?;
                let now = now.ok_or(Error::not_applied(NotApplied::TimedOut))?;
                position.raise(routing.history_id(), config.chain, now.upto);
            }
        }
        self.position = Some(position);
        Ok(())
    }

    /// Whether a chain that refuses now hasn't done so, and nothing else, for longer than a call may take.
    fn is_excused(&mut self, chain: ChainId) -> bool {
        let since = *self.refusing.entry(chain).or_insert_with(Instant::now);
        let is_excused = since.elapsed() < self.how.timeout;
        if !is_excused {
            // The caller is told, and may ask on.
            self.refusing.remove(&chain);
        }
        is_excused
    }

    /// `None`: there was no answer, which says as little as there being no change.
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
            // Nobody said so in time that there was nothing.
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
