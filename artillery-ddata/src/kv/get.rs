//! Reads of one key.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;

use super::{
    Read, ReadState, Served, Versioned,
    handle::{LocalRead, how_to_read},
};
use crate::{
    Error, Kv, MemberId, Place,
    api::{self, Query, ReadMode, ReadPath, Reply},
    error::NotApplied,
    local::Here,
    rpc::router::{CallAnswer, HowToRead, SentRead, poll_budget},
};

/// A read of one key. Set the options that differ from the handle's defaults, and await it.
#[derive(Debug, Clone)]
#[must_use = "a call does nothing until it is awaited"]
pub struct Get<'a> {
    kv: &'a Kv,
    key: &'a [u8],
    how: HowToRead,
}

impl<'a> Get<'a> {
    pub(super) fn new(kv: &'a Kv, key: &'a [u8]) -> Self {
        Self { kv, key, how: how_to_read(kv) }
    }

    read_options! {
        /// Sets the mode: where the read may be served, and how fresh its result is.
    }

    /// The result of a look-up in this node's own state. `None`: the mode isn't strong, so the read takes another path.
    fn local(&self) -> Option<LocalRead<Option<Here>>> {
        let session = self.how.session.as_ref();
        // A session's floor needs the general path.
        let dirty = |here: &Here| session.is_none().then(|| here.clone());
        (self.how.mode == ReadMode::Strong).then(|| self.kv.local(self.key, session, dirty))
    }

    fn query(&self) -> Query {
        Query::Key(Bytes::copy_from_slice(self.key))
    }

    /// Sends the read to this node's own chain, where the key is dirty.
    fn ask_here(&self, here: Here) -> AskedRead {
        let (router, query, timeout) = (self.kv.router.clone(), self.query(), self.how.timeout);
        Box::pin(async move { router.read_here(here, query, timeout).await.and_then(read) })
    }

    fn ask(&self) -> AskedRead {
        let (router, query, how) = (self.kv.router.clone(), self.query(), self.how.clone());
        Box::pin(async move { router.read(query, &how).await.and_then(read) })
    }

    fn ask_on(&self, sent: SentRead) -> AskedRead {
        let (router, query, mode) = (self.kv.router.clone(), self.query(), self.how.mode);
        Box::pin(async move { router.read_on(query, mode, sent).await.and_then(read) })
    }
}

impl<'a> IntoFuture for Get<'a> {
    type Output = Result<Read, Error>;
    type IntoFuture = GetFuture<'a>;

    fn into_future(self) -> GetFuture<'a> {
        GetFuture { get: self, state: GetState::New }
    }
}

type AskedRead = Pin<Box<dyn Future<Output = Result<Read, Error>> + Send>>;

/// A read in progress.
#[must_use = "futures do nothing unless polled"]
pub struct GetFuture<'a> {
    get: Get<'a>,
    state: GetState,
}

#[expect(clippy::large_enum_variant, reason = "most calls are over before they need an allocation")]
enum GetState {
    New,
    /// The first attempt is in flight. Its answer may complete the read.
    Sent(SentRead),
    /// All else: the read waits, retries and looks up routing as needed.
    Asked(AskedRead),
    Over,
}

impl Future for GetFuture<'_> {
    type Output = Result<Read, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { get, state } = &mut *self;
        loop {
            *state = match state {
                GetState::New => {
                    ready!(poll_budget(context));
                    let looked = get.local();
                    if let Some(LocalRead::Clean { found, expires_in, node, place }) = looked {
                        let served = Served::new(node, place, ReadPath::Local);
                        let read = Read::new(found, ReadState::Clean, served);
                        return Poll::Ready(Ok(read.expiring_in(expires_in)));
                    }
                    if let Err(error) = get.kv.router.may_begin() {
                        *state = GetState::Over;
                        return Poll::Ready(Err(error));
                    }
                    match looked {
                        Some(LocalRead::Dirty(Some(here))) => GetState::Asked(get.ask_here(here)),
                        _ => match get.kv.router.send_read(get.key, &get.how) {
                            Some(sent) => GetState::Sent(sent),
                            None => GetState::Asked(get.ask()),
                        },
                    }
                }
                GetState::Sent(sent) => {
                    let answer = ready!(get.kv.router.poll_read(sent, context));
                    match (answer, std::mem::replace(state, GetState::Over)) {
                        (Some(answer), _) => return Poll::Ready(read(answer)),
                        (None, GetState::Sent(sent)) => GetState::Asked(get.ask_on(sent)),
                        (None, other) => other,
                    }
                }
                GetState::Over => panic!("a read was polled after completion"),
                GetState::Asked(asked) => return asked.as_mut().poll(context),
            }
        }
    }
}

pub(super) fn served(clean: bool, node: MemberId, place: Place, way: ReadPath) -> (ReadState, Served) {
    let state = if clean { ReadState::Clean } else { ReadState::Dirty };
    (state, Served::new(node.node, place, way))
}

pub(crate) fn no_read(reply: &Reply, node: MemberId) -> Error {
    match reply {
        Reply::Refused(reason) => Error::refused(*reason, Some(node.node)),
        _ => Error::not_applied(NotApplied::TimedOut),
    }
}

fn read(answer: CallAnswer) -> Result<Read, Error> {
    let CallAnswer { reply, node, place } = answer;
    match reply {
        Reply::Read(api::ReadReply { held, clean, way, chain_time, .. }) => {
            let (state, served) = served(clean, node, place, way);
            let expires_in = held.as_ref().and_then(|held| held.expiry()).map(|expiry| expiry.left(chain_time));
            Ok(Read::new(held.and_then(Versioned::visible), state, served).expiring_in(expires_in))
        }
        other => Err(no_read(&other, node)),
    }
}
