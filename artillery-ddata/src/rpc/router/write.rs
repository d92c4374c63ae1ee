//! Writes, with their request ids and sessions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

use super::{
    CallAnswer, RequestError, Router, Start,
    account::Account,
    first::First,
    from_now,
    placing::{as_of, chain_of_write, refused},
};
use crate::{
    ChainId, ClusterId, Error, RequestId, Routing, Session,
    api::{Refusal, Reply, Write, retry::RetryState},
    control::chain_of,
    error::{NotApplied, Unknown},
    local::Here,
    message::request::Operation,
    rpc::{channel::Question, requests::Numbered},
    types::update::RequestKey,
};

#[derive(Clone, Debug)]
pub(crate) struct HowToWrite {
    pub(crate) timeout: Duration,
    pub(crate) session: Option<Session>,
    /// `None`: the router creates a new id.
    pub(crate) request_id: Option<RequestId>,
}

/// A write whose chain is known.
#[derive(Clone)]
pub(crate) struct PlacedWrite {
    cluster: ClusterId,
    chain: ChainId,
    /// If set, the write may be applied only in this history.
    history: Option<ClusterId>,
    write: Write,
}

impl PlacedWrite {
    fn under(self, key: RequestKey) -> Question {
        self.question(Some(key))
    }

    fn question(self, request: Option<RequestKey>) -> Question {
        let Self { chain, history, write, .. } = self;
        let operation = Operation::Write { request, history, write };
        Question { chain, forwarded: false, only: None, operation }
    }
}

/// Where a write is sent first.
pub(crate) enum WriteTarget {
    /// This node, as the head of the chain. Continue with [`Router::write_here`].
    Here(PlacedWrite, Here),
    /// Another node: the first attempt is in flight. Continue with [`Router::poll_write`].
    There(SentWrite),
    /// Not decided yet. Continue with [`Router::write`], which waits and checks as needed.
    Open(Write),
}

/// A write whose first attempt is in flight.
pub(crate) struct SentWrite {
    first: First,
    placed: PlacedWrite,
    numbered: Numbered,
    account: Account,
    #[cfg(feature = "testing")]
    is_lost: bool,
}

impl SentWrite {
    fn id(&self) -> RequestId {
        let RequestKey { session, number, .. } = self.numbered.key;
        RequestId { cluster: self.placed.cluster, chain: self.placed.chain, session, number }
    }
}

impl Router {
    pub(crate) async fn write(&self, write: Write, how: HowToWrite) -> Result<(CallAnswer, RequestId), Error> {
        let given = how.request_id;
        self.begin_call().await.map_err(|error| error.of_retry(given))?;
        let mut account = self.account_of_write(&write, given);
        let outcome = self.write_once(write, how).await.map_err(|error| error.of_retry(given));
        self.write_ended(&mut account, outcome.as_ref().map(|(answer, id)| (answer, *id)));
        outcome
    }

    /// Decides where a write is sent first. If that is another node to which it can be sent at once, sends it.
    pub(crate) fn target(&self, write: Write, how: &HowToWrite) -> WriteTarget {
        let is_in_session = how.session.is_some() || how.request_id.is_some();
        if is_in_session || self.check(&write).is_err() {
            return WriteTarget::Open(write);
        }
        let Some(routing) = self.known() else { return WriteTarget::Open(write) };
        let Ok(chain) = chain_of_write(&routing, &write) else { return WriteTarget::Open(write) };
        let placed = PlacedWrite { cluster: routing.cluster, chain, history: None, write };
        match self.local().and_then(|local| local.head(chain)) {
            Some(here) => WriteTarget::Here(placed, here),
            None => self.send_write(&routing, placed, how.timeout).map_or_else(WriteTarget::Open, WriteTarget::There),
        }
    }

    /// Sends the first attempt of a write under a new id, for a caller that polls it in place. Returns the write if it
    /// would have to wait.
    fn send_write(&self, routing: &Routing, placed: PlacedWrite, timeout: Duration) -> Result<SentWrite, Write> {
        if !self.carrier.keeps_time() {
            return Err(placed.write);
        }
        let mut question = placed.clone().question(None);
        // Take the number last: an unused number would be treated as an answered request.
        let Some(way) = self.way(routing, &question) else { return Err(placed.write) };
        #[cfg(feature = "testing")]
        if self.is_held_up() {
            return Err(placed.write);
        }
        let Some(numbered) = self.number_now(placed.chain) else { return Err(placed.write) };
        if let Operation::Write { request, .. } = &mut question.operation {
            *request = Some(numbered.key);
        }
        match self.begin(way, question, timeout) {
            Some(first) => {
                let account = self.account_of_write(&placed.write, None);
                Ok(SentWrite {
                    first,
                    placed,
                    numbered,
                    account,
                    #[cfg(feature = "testing")]
                    is_lost: false,
                })
            }
            None => Err(placed.write),
        }
    }

    /// The answer and the request id, if the first attempt returned them. `None`: the write continues in
    /// [`write_on`](Self::write_on).
    pub(crate) fn poll_write(
        &self,
        sent: &mut SentWrite,
        context: &mut Context<'_>,
    ) -> Poll<Option<(CallAnswer, RequestId)>> {
        let answer = ready!(self.poll_first(&mut sent.first, context));
        #[cfg(feature = "testing")]
        let answer = answer.filter(|answer| {
            let question = || sent.placed.clone().under(sent.numbered.key);
            sent.is_lost = self.takes_away(question, &answer.reply);
            !sent.is_lost
        });
        Poll::Ready(answer.map(|answer| {
            let id = sent.id();
            self.write_ended(&mut sent.account, Ok((&answer, id)));
            (answer, id)
        }))
    }

    pub(crate) async fn write_on(&self, sent: SentWrite) -> Result<(CallAnswer, RequestId), Error> {
        let SentWrite { first, placed, numbered, mut account, .. } = sent;
        let deadline = first.deadline();
        #[cfg(feature = "testing")]
        if sent.is_lost {
            tokio::time::sleep_until(deadline).await;
        }
        let outcome = self.write_anew(placed, deadline, Some(numbered), Start::InFlight(Box::new(first))).await;
        self.write_ended(&mut account, outcome.as_ref().map(|(answer, id)| (answer, *id)));
        outcome
    }

    pub(crate) async fn write_here(
        &self,
        placed: PlacedWrite,
        here: Here,
        timeout: Duration,
    ) -> Result<(CallAnswer, RequestId), Error> {
        let mut account = self.account_of_write(&placed.write, None);
        let outcome = self.write_anew(placed, from_now(timeout), None, Start::Here(here)).await;
        self.write_ended(&mut account, outcome.as_ref().map(|(answer, id)| (answer, *id)));
        outcome
    }

    async fn write_once(&self, write: Write, how: HowToWrite) -> Result<(CallAnswer, RequestId), Error> {
        let deadline = from_now(how.timeout);
        self.check(&write)?;
        let session = how.session.as_ref();
        let routing = self.routing_of(session.and_then(Session::history_id), deadline).await?;
        let new = session.filter(|session| session.history_id().is_none());
        let again = new.map(|session| (session, write.clone()));
        let outcome = self.write_in(&routing, write, &how, deadline).await;
        // A retry under the same request id is safe, since the write is applied once.
        let may_repeat = |error: &Error| how.request_id.is_some() || error.is_not_applied();
        if let (Err(error), Some((session, write))) = (&outcome, again)
            && may_repeat(error)
            && let Some(newer) = self.newer(session, &routing, deadline)
        {
            return Box::pin(self.write_in(&newer, write, &how, deadline)).await;
        }
        outcome
    }

    async fn write_in(
        &self,
        routing: &Routing,
        write: Write,
        how: &HowToWrite,
        deadline: Instant,
    ) -> Result<(CallAnswer, RequestId), Error> {
        let chain = chain_of_write(routing, &write)?;
        // The answering node may be in another history than this routing (trap 58).
        let history = how.session.as_ref().map(|_| routing.history_id());
        let placed = PlacedWrite { cluster: routing.cluster, chain, history, write };
        let outcome = match how.request_id {
            Some(id) => self.write_under(placed, id, deadline).await.map(|answer| (answer, id)),
            None => self.write_anew(placed, deadline, None, Start::Anew).await,
        };
        let (answer, id) = outcome?;
        if let (Some(session), Some(sequence)) = (&how.session, as_of(&answer.reply)) {
            session.raise(routing.history_id(), chain, sequence);
        }
        Ok((answer, id))
    }

    /// Writes under an id that may have been used before.
    async fn write_under(&self, placed: PlacedWrite, id: RequestId, deadline: Instant) -> Result<CallAnswer, Error> {
        if id.cluster != placed.cluster {
            return Err(refused(Refusal::OtherHistory));
        }
        if id.chain != placed.chain {
            return Err(refused(Refusal::ManyChains));
        }
        // Renew the lowest open number for each attempt in a full session: the session admits a request that frees
        // records.
        let key = || id.key(self.requests.lowest(id.chain, id.session).min(id.number));
        let renews = |question: &mut Question, _: &RetryState| {
            if let Operation::Write { request, .. } = &mut question.operation {
                *request = Some(key());
            }
            false
        };
        let outcome = match self.call_from(Start::Unremembered, placed.under(key()), deadline, renews).await {
            Ok(answer) => Ok(answer),
            Err(RequestError::Certainly(error)) => Err(error),
            Err(RequestError::Perhaps(reason)) => return Err(Error::unknown(reason, id)),
        };
        self.requests.settled(id.chain, id.session, id.number);
        outcome
    }

    /// Writes under a new id of this client's session; under `numbered`, if a first attempt was made. If that session
    /// was evicted or left, uses another one, provided that certainly nothing was applied.
    async fn write_anew(
        &self,
        placed: PlacedWrite,
        deadline: Instant,
        mut numbered: Option<Numbered>,
        mut start: Start,
    ) -> Result<(CallAnswer, RequestId), Error> {
        let PlacedWrite { cluster, chain, .. } = placed;
        loop {
            let numbered = match numbered.take() {
                Some(numbered) => numbered,
                None => self.number(chain, deadline).await?,
            };
            let start = std::mem::replace(&mut start, Start::Anew);
            let RequestKey { session, number, .. } = numbered.key;
            let id = RequestId { cluster, chain, session, number };
            let question = placed.clone().under(numbered.key);
            let left = AtomicBool::new(false);
            let leaves = |question: &mut Question, tries: &RetryState| {
                let leaves = !tries.is_open() && self.requests.leave(chain, session);
                if let Operation::Write { request: Some(key), .. } = &mut question.operation {
                    // Renew the lowest open number: a full session admits a request that frees records.
                    *key = numbered.renewed();
                }
                left.store(leaves, Ordering::Relaxed);
                leaves
            };
            match self.call_from(start, question, deadline, leaves).await {
                Ok(answer) => return Ok((answer, id)),
                Err(RequestError::Certainly(Error::Refused {
                    reason: Refusal::SessionExpired | Refusal::Forgotten,
                    ..
                })) => {
                    self.requests.forget(chain, session);
                }
                Err(RequestError::Certainly(Error::Refused { reason: Refusal::SessionFull, .. }))
                    if left.load(Ordering::Relaxed) => {}
                Err(RequestError::Certainly(error)) => return Err(error),
                Err(RequestError::Perhaps(reason)) => {
                    if reason == Unknown::SessionExpired {
                        self.requests.forget(chain, session);
                    }
                    numbered.keep();
                    return Err(Error::unknown(reason, id));
                }
            }
        }
    }

    /// The next number, if a session is open and has a free slot now.
    fn number_now(&self, chain: ChainId) -> Option<Numbered> {
        let session = self.requests.session(chain);
        let (id, place) = (*session.id.get()?, session.try_place()?);
        Some(session.begin(id, place))
    }

    async fn number(&self, chain: ChainId, deadline: Instant) -> Result<Numbered, Error> {
        loop {
            let session = self.requests.session(chain);
            let id = *session.id.get_or_try_init(|| self.open_session(chain, deadline)).await?;
            if let Some(place) = session.try_place() {
                return Ok(session.begin(id, place));
            }
            let Ok(Some(place)) = Box::pin(timeout_at(deadline, session.place())).await else {
                return Err(refused(Refusal::Busy));
            };
            // The session may have been replaced during the wait.
            if Arc::ptr_eq(&session, &self.requests.session(chain)) {
                return Ok(session.begin(id, place));
            }
        }
    }

    async fn open_session(&self, chain: ChainId, deadline: Instant) -> Result<crate::Version, Error> {
        let operation = Operation::Write { request: None, history: None, write: Write::OpenSession };
        let question = Question { chain, forwarded: false, only: None, operation };
        match self.call(question, deadline).await {
            Ok(CallAnswer { reply: Reply::Committed(done), .. }) => Ok(done.version),
            Ok(_) | Err(RequestError::Perhaps(_)) => Err(Error::not_applied(NotApplied::TimedOut)),
            Err(RequestError::Certainly(error)) => Err(error),
        }
    }

    /// A request id for a later write of `key`, in a session of its own, so that it delays no other request.
    pub(crate) async fn new_request_id(&self, key: &[u8], timeout: Duration) -> Result<RequestId, Error> {
        self.begin_call().await?;
        let deadline = from_now(timeout);
        let routing = self.routing(deadline).await?;
        let chain = chain_of(key, routing.chains.len() as u32);
        let session = self.open_session(chain, deadline).await?;
        Ok(RequestId { cluster: routing.cluster, chain, session, number: 1 })
    }

    /// Queries the outcome of a request, and settles it permanently.
    pub(crate) async fn resolve(&self, id: RequestId, timeout: Duration) -> Result<CallAnswer, Error> {
        let of_retry = |error: Error| error.of_retry(Some(id));
        self.begin_call().await.map_err(of_retry)?;
        let deadline = from_now(timeout);
        let routing = self.routing(deadline).await.map_err(of_retry)?;
        let mut account = self.account_of_write(&Write::Resolve, Some(id));
        let placed = PlacedWrite { cluster: routing.cluster, chain: id.chain, history: None, write: Write::Resolve };
        let outcome = self.write_under(placed, id, deadline).await.map_err(of_retry);
        self.write_ended(&mut account, outcome.as_ref().map(|answer| (answer, id)));
        outcome
    }

    fn check(&self, write: &Write) -> Result<(), Error> {
        write.check_lengths(self.max_value_bytes.unwrap_or(u64::MAX)).map_err(refused)
    }
}
