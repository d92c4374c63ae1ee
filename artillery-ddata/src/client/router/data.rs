//! Reads and writes: which chain, under which request id, in which session.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use artillery_core::clock;
use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::{Answer, Failed, LEAST_TRY, Router, check_key, check_value, from_now};
use crate::{
    ChainId, ClusterId, Error, MemberId, RequestId, Routing, Sequence, Session,
    client::{channel::Question, requests::Numbered},
    control::chain_of,
    driver::handle::ChainHandle,
    error::{NotApplied, Unknown},
    metrics::Timing,
    replica::{Query, ReadMode, Refusal, Reply, Write},
    tries::Tries,
    update::RequestKey,
    wire::request::Operation,
};

/// What a read is asked for with.
#[derive(Clone, Debug)]
pub(crate) struct HowToRead {
    pub(crate) mode: ReadMode,
    pub(crate) timeout: Duration,
    pub(crate) session: Option<Session>,
}

impl HowToRead {
    /// The history that its session belongs to, if it is in one that has seen something.
    pub(crate) fn life(&self) -> Option<ClusterId> {
        self.session.as_ref().and_then(Session::life)
    }
}

/// What a write is asked for with.
#[derive(Clone, Debug)]
pub(crate) struct HowToWrite {
    pub(crate) timeout: Duration,
    pub(crate) session: Option<Session>,
    /// `None`: a new one.
    pub(crate) request_id: Option<RequestId>,
}

/// A write, and where it belongs.
#[derive(Clone)]
struct Placed {
    cluster: ClusterId,
    chain: ChainId,
    /// The history in which alone it is to be applied, if there is one.
    history: Option<ClusterId>,
    write: Write,
}

impl Placed {
    fn under(self, key: RequestKey) -> Question {
        let Self { chain, history, write, .. } = self;
        let operation = Operation::Write { request: Some(key), history, write };
        Question { chain, forwarded: false, only: None, operation }
    }
}

impl Router {
    /// Waits for the cluster to be formed, since until then no key belongs anywhere.
    pub(crate) async fn routing(&self, deadline: Instant) -> Result<Arc<Routing>, Error> {
        match self.known() {
            Some(routing) => Ok(routing),
            None => Box::pin(self.routes.formed(deadline)).await.ok_or(Error::not_applied(NotApplied::NotFormed)),
        }
    }

    /// The routing of this history, if one is named.
    ///
    /// What is known here may lag behind a recovery of which the session or watch has heard elsewhere; so it is asked for anew
    /// before the history is refused.
    pub(crate) async fn routing_of(
        &self,
        history: Option<ClusterId>,
        deadline: Instant,
    ) -> Result<Arc<Routing>, Error> {
        let is_of = |routing: &Routing| history.is_none_or(|history| history == routing.life());
        let routing = self.routing(deadline).await?;
        if is_of(&routing) {
            return Ok(routing);
        }
        Box::pin(self.refresh_routing(deadline)).await;
        let routing = Box::pin(self.routing(deadline)).await?;
        if is_of(&routing) { Ok(routing) } else { Err(refused(Refusal::OtherHistory)) }
    }

    /// Reads keys of one chain.
    pub(crate) async fn read(&self, query: Query, how: &HowToRead) -> Result<Answer, Error> {
        let deadline = from_now(how.timeout);
        query.keys().iter().try_for_each(check_key).map_err(refused)?;
        let routing = self.routing_of(how.life(), deadline).await?;
        let chain = one_chain(&routing, query.keys())?;
        let new = how.session.as_ref().filter(|session| session.life().is_none());
        let again = new.map(|session| (session, query.clone()));
        let answer = self.read_in(&routing, chain, query, how, None, deadline).await;
        if let (Err(_), Some((session, query))) = (&answer, again)
            && let Some(newer) = self.newer(session, &routing, deadline)
        {
            return Box::pin(self.read_in(&newer, chain, query, how, None, deadline)).await;
        }
        answer
    }

    /// The routing by which to ask again what was asked by `routing` in a session that had seen nothing. Such a session belongs
    /// to no history, so only the routing here lagged behind a recovery. `None`: nothing newer is known, the session belongs to a
    /// history by now, or no time is left.
    fn newer(&self, session: &Session, routing: &Routing, deadline: Instant) -> Option<Arc<Routing>> {
        let newer = self.known().filter(|newer| newer.life() != routing.life())?;
        let is_of = session.life().is_none_or(|history| history == newer.life());
        (is_of && Instant::now() + LEAST_TRY < deadline).then_some(newer)
    }

    /// Reads in a chain, at `only` that member if one is named.
    pub(crate) async fn read_in(
        &self,
        routing: &Routing,
        chain: ChainId,
        query: Query,
        how: &HowToRead,
        only: Option<MemberId>,
        deadline: Instant,
    ) -> Result<Answer, Error> {
        let floor = match &how.session {
            None => None,
            Some(session) => Some(session.floor(routing.life(), chain).ok_or(refused(Refusal::OtherHistory))?),
        };
        let timing = Some(Timing::of_query(&query));
        // Floors and positions count in one history alone, and the answering node may be in another (traps 58, 59).
        let is_bound = how.session.is_some() || matches!(query, Query::Changes(_));
        let history = is_bound.then(|| routing.life());
        let operation = Operation::Read { query, mode: how.mode, floor, history };
        #[cfg(feature = "testing")]
        let noted = self.note(|| crate::testing::Ask::of(&operation), None);
        let question = Question { chain, forwarded: false, only, operation };
        let answer = self.call(question, deadline).await.map_err(Failed::of_read);
        self.count(timing, answer.as_ref().map(|answer| &answer.reply));
        #[cfg(feature = "testing")]
        super::observed::noted_read(noted, chain, &answer);
        let answer = answer.map_err(|error| self.unserved(chain, how.mode, error))?;
        if let (Some(session), Some(as_of)) = (&how.session, as_of(&answer.reply)) {
            session.raise(routing.life(), chain, as_of);
        }
        Ok(answer)
    }

    /// Why nobody served a read. A member without a lease may ask those who have one; where none of them was found,
    /// that it has none says more than that it waited.
    fn unserved(&self, chain: ChainId, mode: ReadMode, error: Error) -> Error {
        let is_silence =
            matches!(error, Error::NotApplied { reason: NotApplied::TimedOut | NotApplied::Unreachable { .. } });
        let leaseless = |handle: &ChainHandle| handle.gate.lease_until() <= clock::now();
        match self.local() {
            Some(local)
                if is_silence && mode == ReadMode::Strong && local.with_chain(chain, leaseless) == Some(true) =>
            {
                Error::refused(Refusal::NoLease, Some(local.me.node))
            }
            _ => error,
        }
    }

    /// Writes, and says under which id.
    pub(crate) async fn write(&self, write: Write, how: HowToWrite) -> Result<(Answer, RequestId), Error> {
        #[cfg(feature = "testing")]
        let noted = self.note(|| crate::testing::Ask::Write(write.clone()), how.request_id);
        let timing = Timing::of_write(&write);
        let outcome = self.write_once(write, how).await;
        self.count(timing, outcome.as_ref().map(|(answer, _)| &answer.reply));
        #[cfg(feature = "testing")]
        super::observed::noted_write(noted, outcome.as_ref().map(|(answer, id)| (&answer.reply, *id)));
        outcome
    }

    async fn write_once(&self, write: Write, how: HowToWrite) -> Result<(Answer, RequestId), Error> {
        let deadline = from_now(how.timeout);
        self.check(&write)?;
        let session = how.session.as_ref();
        let routing = self.routing_of(session.and_then(Session::life), deadline).await?;
        let new = session.filter(|session| session.life().is_none());
        let again = new.map(|session| (session, write.clone()));
        let outcome = self.write_in(&routing, write, &how, deadline).await;
        // Under the same id nothing is done twice.
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
    ) -> Result<(Answer, RequestId), Error> {
        let chain = one_chain(routing, write.keys())?;
        // The node that answers may be in another history than the one that is known here (trap 58).
        let history = how.session.as_ref().map(|_| routing.life());
        let placed = Placed { cluster: routing.cluster, chain, history, write };
        let outcome = match how.request_id {
            Some(id) => self.write_under(placed, id, deadline).await.map(|answer| (answer, id)),
            None => self.write_anew(placed, deadline).await,
        };
        let (answer, id) = outcome?;
        if let (Some(session), Some(sequence)) = (&how.session, as_of(&answer.reply)) {
            session.raise(routing.life(), chain, sequence);
        }
        Ok((answer, id))
    }

    /// Under an id that may have been used before.
    async fn write_under(&self, placed: Placed, id: RequestId, deadline: Instant) -> Result<Answer, Error> {
        if id.cluster != placed.cluster {
            return Err(refused(Refusal::OtherHistory));
        }
        if id.chain != placed.chain {
            return Err(refused(Refusal::ManyChains));
        }
        // What is unanswered by now: a full session has room for the lowest.
        let key = || id.key(self.requests.lowest(id.chain, id.session).min(id.number));
        let renews = |question: &mut Question, _: &Tries| {
            if let Operation::Write { request, .. } = &mut question.operation {
                *request = Some(key());
            }
            false
        };
        let outcome = match self.call_again(placed.under(key()), deadline, Some(Tries::settling()), renews).await {
            Ok(answer) => Ok(answer),
            Err(Failed::Certainly(error)) => Err(error),
            Err(Failed::Perhaps(reason)) => return Err(Error::unknown(reason, id)),
        };
        self.requests.settled(id.chain, id.session, id.number);
        outcome
    }

    /// Under a new id of this client's session. A session that was evicted meanwhile is replaced, as long as it is certain
    /// that nothing was applied.
    async fn write_anew(&self, placed: Placed, deadline: Instant) -> Result<(Answer, RequestId), Error> {
        let Placed { cluster, chain, .. } = placed;
        loop {
            let numbered = self.number(chain, deadline).await?;
            let RequestKey { session, number, .. } = numbered.key;
            let id = RequestId { cluster, chain, session, number };
            let question = placed.clone().under(numbered.key);
            let left = AtomicBool::new(false);
            let leaves = |question: &mut Question, tries: &Tries| {
                let leaves = !tries.is_open() && self.requests.leave(chain, session);
                if let Operation::Write { request: Some(key), .. } = &mut question.operation {
                    // The one that is waited for before all others is let in.
                    *key = numbered.renewed();
                }
                left.store(leaves, Ordering::Relaxed);
                leaves
            };
            match self.call_again(question, deadline, None, leaves).await {
                Ok(answer) => return Ok((answer, id)),
                Err(Failed::Certainly(Error::Refused {
                    reason: Refusal::SessionExpired | Refusal::Forgotten, ..
                })) => {
                    self.requests.forget(chain, session);
                }
                Err(Failed::Certainly(Error::Refused { reason: Refusal::SessionFull, .. }))
                    if left.load(Ordering::Relaxed) => {}
                Err(Failed::Certainly(error)) => return Err(error),
                Err(Failed::Perhaps(reason)) => {
                    if reason == Unknown::SessionExpired {
                        self.requests.forget(chain, session);
                    }
                    numbered.keep();
                    return Err(Error::unknown(reason, id));
                }
            }
        }
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
            // Meanwhile the session may have been left for another one.
            if Arc::ptr_eq(&session, &self.requests.session(chain)) {
                return Ok(session.begin(id, place));
            }
        }
    }

    async fn open_session(&self, chain: ChainId, deadline: Instant) -> Result<crate::Version, Error> {
        let operation = Operation::Write { request: None, history: None, write: Write::OpenSession };
        let question = Question { chain, forwarded: false, only: None, operation };
        match self.call(question, deadline).await {
            Ok(Answer { reply: Reply::Committed(done), .. }) => Ok(done.version),
            Ok(_) | Err(Failed::Perhaps(_)) => Err(Error::not_applied(NotApplied::TimedOut)),
            Err(Failed::Certainly(error)) => Err(error),
        }
    }

    /// An id for a write of `key` that is to be made later, in a session of its own: it holds nothing back.
    pub(crate) async fn new_request_id(&self, key: &[u8], timeout: Duration) -> Result<RequestId, Error> {
        let deadline = from_now(timeout);
        let routing = self.routing(deadline).await?;
        let chain = chain_of(key, routing.chains.len() as u32);
        let session = self.open_session(chain, deadline).await?;
        Ok(RequestId { cluster: routing.cluster, chain, session, number: 1 })
    }

    /// Asks what became of a request, and settles that for ever.
    pub(crate) async fn resolve(&self, id: RequestId, timeout: Duration) -> Result<Answer, Error> {
        let deadline = from_now(timeout);
        let routing = self.routing(deadline).await?;
        #[cfg(feature = "testing")]
        let noted = self.note(|| crate::testing::Ask::Write(Write::Resolve), Some(id));
        let timing = Timing::of_write(&Write::Resolve);
        let placed = Placed { cluster: routing.cluster, chain: id.chain, history: None, write: Write::Resolve };
        let outcome = self.write_under(placed, id, deadline).await;
        self.count(timing, outcome.as_ref().map(|answer| &answer.reply));
        #[cfg(feature = "testing")]
        super::observed::noted_write(noted, outcome.as_ref().map(|answer| (&answer.reply, id)));
        outcome
    }

    /// Counts what a handle of this node asked; clients beside the cluster count nothing.
    fn count(&self, timing: Option<Timing>, result: Result<&Reply, &Error>) {
        if let (Some(timing), Some(local)) = (timing, self.local()) {
            local.tally.returned(timing, result);
        }
    }

    fn check(&self, write: &Write) -> Result<(), Error> {
        write.keys().try_for_each(check_key).map_err(refused)?;
        let Some(limit) = self.max_value_bytes else { return Ok(()) };
        write.values().try_for_each(|value| check_value(value, limit)).map_err(refused)
    }
}

fn refused(reason: Refusal) -> Error {
    Error::refused(reason, None)
}

/// The chain that all of these keys belong to.
fn one_chain<'a>(routing: &Routing, keys: impl IntoIterator<Item = &'a Bytes>) -> Result<ChainId, Error> {
    let mut chain = None;
    for key in keys {
        let of_key = chain_of(key, routing.chains.len() as u32);
        if *chain.get_or_insert(of_key) != of_key {
            return Err(refused(Refusal::ManyChains));
        }
    }
    Ok(chain.unwrap_or_default())
}

/// How far the history was certainly committed when this was said.
fn as_of(reply: &Reply) -> Option<Sequence> {
    match reply {
        Reply::Committed(done) => Some(done.version.sequence),
        Reply::Conflict { at, .. } => Some(at.sequence),
        Reply::Read(read) => Some(read.as_of),
        Reply::Cut(cut) => Some(cut.as_of),
        Reply::Page(page) => Some(page.as_of),
        Reply::Changes(changes) => Some(changes.upto),
        Reply::Hashed(page) => Some(page.as_of),
        Reply::Refused(_) | Reply::Expired => None,
    }
}
