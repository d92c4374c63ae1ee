//! The calls that open watches.

use std::{fmt, marker::PhantomData, time::Duration};

use bytes::Bytes;

use super::{PreviousValues, Watch, WatchTarget};
use crate::{Error, Frontier, Kv, Refusal, kv::Call, rpc::router::from_now};

/// A call that opens a [`Watch`]. Set the options that differ from the defaults, and await it: then the watch has begun.
///
/// By default the watch begins at the present position. It returns every change that is committed after the call has
/// returned, whenever it is first polled. It may also return changes that were committed shortly before.
///
/// `S` states where the watch begins: [`FromNow`], also [`WithPrevious`] values, or [`FromPosition`].
#[must_use = "a call does nothing until it is awaited"]
pub struct OpenWatch<S = FromNow> {
    target: WatchTarget,
    /// Without a history: the present position.
    from: Frontier,
    has_previous: bool,
    start: PhantomData<fn() -> S>,
}

/// A watch that begins at the present position.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum FromNow {}

/// A watch that begins at the present position, and reports previous values.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum WithPrevious {}

/// A watch that begins at a given position.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum FromPosition {}

impl OpenWatch {
    pub(in crate::kv) fn new(kv: &Kv, prefix: Bytes) -> Self {
        Self {
            target: WatchTarget::new(kv, prefix),
            from: Frontier::default(),
            has_previous: false,
            start: PhantomData,
        }
    }
}

impl OpenWatch<FromNow> {
    /// Begins after this position, which another watch ([`Watch::position`]) or a session
    /// ([`Session::frontier`](crate::Session::frontier)) reported. Then opening the watch queries no member, except that
    /// the position of a session that has seen nothing means the present position.
    pub fn from(self, position: Frontier) -> OpenWatch<FromPosition> {
        OpenWatch { from: position, ..self.starting() }
    }

    /// Reports the [previous value](super::Change::previous) of each change. Opening the watch then reads all watched
    /// keys, and the watch keeps a copy of them in memory. A [view](crate::view) has a bound on its memory, and survives
    /// what ends a watch.
    pub fn with_previous(self) -> OpenWatch<WithPrevious> {
        OpenWatch { has_previous: true, ..self.starting() }
    }

    fn starting<S>(self) -> OpenWatch<S> {
        let Self { target, from, has_previous, .. } = self;
        OpenWatch { target, from, has_previous, start: PhantomData }
    }
}

impl<S> OpenWatch<S> {
    /// Sets how long opening the watch may take. Later, the watch fails if a chain refuses all queries for this length of
    /// time, or for ten seconds if that is longer.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.target.how.timeout = timeout;
        self
    }
}

impl<S> IntoFuture for OpenWatch<S> {
    type Output = Result<Watch, Error>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { target, from, has_previous, .. } = self;
        Box::pin(async move { if has_previous { open_with_previous(target).await } else { open(target, from).await } })
    }
}

async fn open(target: WatchTarget, from: Frontier) -> Result<Watch, Error> {
    let router = &target.kv.router;
    router.begin_call().await?;
    let deadline = from_now(target.how.timeout);
    let routing = router.routing_of(from.cluster().or(target.how.history_id()), deadline).await?;
    if from.cluster().is_some() {
        return Ok(Watch::after(target, from, None));
    }
    let now = match target.present(&routing, deadline).await {
        // The watch belongs to no history yet, so only the routing is outdated: fetch a newer one.
        Err(Error::Refused { reason: Refusal::OtherHistory, .. }) => {
            let routing = router.routing(deadline).await?;
            target.present(&routing, deadline).await?
        }
        now => now?,
    };
    Ok(Watch::after(target, now, None))
}

async fn open_with_previous(target: WatchTarget) -> Result<Watch, Error> {
    target.kv.router.begin_call().await?;
    let (previous, position) = PreviousValues::read(&target, from_now(target.how.timeout)).await?;
    Ok(Watch::after(target, position, Some(previous)))
}

impl<S> Clone for OpenWatch<S> {
    fn clone(&self) -> Self {
        let Self { target, from, has_previous, .. } = self;
        Self { target: target.clone(), from: from.clone(), has_previous: *has_previous, start: PhantomData }
    }
}

impl<S> fmt::Debug for OpenWatch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenWatch").field("target", &self.target).field("from", &self.from).finish_non_exhaustive()
    }
}
