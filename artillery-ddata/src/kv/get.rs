//! Reads.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::task::coop;

use super::{Kv, Read, ReadState, Served, Versioned};
use crate::{
    Error,
    client::router::Answer,
    error::NotApplied,
    replica::{self, ReadMode, Reply, Way},
};

/// A read that is about to be made: set what differs from the handle's defaults, and await it.
#[derive(Debug, Clone, Copy)]
#[must_use = "a call does nothing until it is awaited"]
pub struct Get<'a> {
    kv: &'a Kv,
    key: &'a [u8],
    mode: ReadMode,
    timeout: Duration,
}

impl<'a> Get<'a> {
    pub(super) fn new(kv: &'a Kv, key: &'a [u8]) -> Self {
        Self { kv, key, mode: kv.mode, timeout: kv.timeout }
    }

    /// How it may be served.
    pub fn mode(mut self, mode: ReadMode) -> Self {
        self.mode = mode;
        self
    }

    /// How long it may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn local(&self) -> Option<Read> {
        let (found, place) = self.kv.local(self.key).ok()?;
        let node = self.kv.router.local()?.me.node;
        Some(Read::new(found, ReadState::Clean, Served::new(node, place, Way::Local)))
    }

    fn ask(self) -> Asked {
        let router = self.kv.router.clone();
        let (key, mode, timeout) = (Bytes::copy_from_slice(self.key), self.mode, self.timeout);
        Box::pin(async move { router.read(key, mode, timeout).await.and_then(read) })
    }
}

impl<'a> IntoFuture for Get<'a> {
    type Output = Result<Read, Error>;
    type IntoFuture = GetFuture<'a>;

    fn into_future(self) -> GetFuture<'a> {
        GetFuture(State::First(self))
    }
}

type Asked = Pin<Box<dyn Future<Output = Result<Read, Error>> + Send>>;

/// A read under way.
#[must_use = "futures do nothing unless polled"]
pub struct GetFuture<'a>(State<'a>);

enum State<'a> {
    First(Get<'a>),
    Asked(Asked),
}

impl Future for GetFuture<'_> {
    type Output = Result<Read, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match &mut self.0 {
                State::First(get) => {
                    let get = *get;
                    if get.mode == ReadMode::Strong {
                        // A loop of reads that are all ready at once would starve its runtime without this.
                        let budget = ready!(coop::poll_proceed(context));
                        if let Some(read) = get.local() {
                            budget.made_progress();
                            return Poll::Ready(Ok(read));
                        }
                    }
                    self.0 = State::Asked(get.ask());
                }
                State::Asked(asked) => return asked.as_mut().poll(context),
            }
        }
    }
}

fn read(answer: Answer) -> Result<Read, Error> {
    match answer.reply {
        Reply::Read(replica::Read { held, clean, way }) => {
            let state = if clean { ReadState::Clean } else { ReadState::Dirty };
            let served = Served::new(answer.node.node, answer.place, way);
            Ok(Read::new(held.and_then(Versioned::visible), state, served))
        }
        Reply::Refused(reason) => Err(Error::refused(reason, Some(answer.node.node))),
        _ => Err(Error::not_applied(NotApplied::TimedOut)),
    }
}
