//! Reads, with their sessions.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    CallAnswer, RequestError, Router, Start,
    account::Account,
    check_key,
    first::First,
    from_now,
    placing::{as_of, one_chain, refused},
};
use crate::{
    ChainId, ClusterId, Error, MemberId, Place, Routing, Session,
    api::{Query, ReadMode, Refusal},
    control::chain_of,
    error::NotApplied,
    local::{Here, handle::ChainHandle},
    message::request::Operation,
    rpc::channel::Question,
};

#[derive(Clone, Debug)]
pub(crate) struct HowToRead {
    pub(crate) mode: ReadMode,
    pub(crate) timeout: Duration,
    pub(crate) session: Option<Session>,
}

impl HowToRead {
    /// The history id of the read's session, if the session has observed anything.
    pub(crate) fn history_id(&self) -> Option<ClusterId> {
        self.session.as_ref().and_then(Session::history_id)
    }
}

/// A read outside of sessions whose first attempt is in flight.
pub(crate) struct SentRead {
    first: First,
    account: Account,
}

fn outside_of_sessions(chain: ChainId, query: Query, mode: ReadMode) -> Question {
    let operation = Operation::Read { query, mode, floor: None, history: None };
    Question { chain, forwarded: false, only: None, operation }
}

impl Router {
    pub(crate) async fn read(&self, query: Query, how: &HowToRead) -> Result<CallAnswer, Error> {
        self.begin_call().await?;
        let deadline = from_now(how.timeout);
        query.keys().iter().try_for_each(check_key).map_err(refused)?;
        let routing = self.routing_of(how.history_id(), deadline).await?;
        let chain = one_chain(&routing, query.keys())?;
        let new = how.session.as_ref().filter(|session| session.history_id().is_none());
        let again = new.map(|session| (session, query.clone()));
        let answer = self.read_in(&routing, chain, query, how, None, deadline).await;
        if let (Err(_), Some((session, query))) = (&answer, again)
            && let Some(newer) = self.newer(session, &routing, deadline)
        {
            return Box::pin(self.read_in(&newer, chain, query, how, None, deadline)).await;
        }
        answer
    }

    /// Reads in a chain; at the member `only`, if one is named.
    pub(crate) async fn read_in(
        &self,
        routing: &Routing,
        chain: ChainId,
        query: Query,
        how: &HowToRead,
        only: Option<MemberId>,
        deadline: Instant,
    ) -> Result<CallAnswer, Error> {
        let floor = match &how.session {
            None => None,
            Some(session) => Some(session.floor(routing.history_id(), chain).ok_or(refused(Refusal::OtherHistory))?),
        };
        // Floors and positions are valid in one history alone, and the answering node may be in another (traps 58, 59).
        let is_bound = how.session.is_some() || matches!(query, Query::Changes(_) | Query::Copy(_) | Query::Digest(_));
        let history = is_bound.then(|| routing.history_id());
        let operation = Operation::Read { query, mode: how.mode, floor, history };
        let mut account = self.account_of_read(&operation);
        let question = Question { chain, forwarded: false, only, operation };
        let answer = self.call(question, deadline).await;
        let answer = self.answered(&mut account, chain, how.mode, answer)?;
        if let (Some(session), Some(as_of)) = (&how.session, as_of(&answer.reply)) {
            session.raise(routing.history_id(), chain, as_of);
        }
        Ok(answer)
    }

    /// Sends a read outside of sessions to another node, for a caller that polls it in place. `None`: the caller uses
    /// [`read`](Self::read) instead.
    pub(crate) fn send_read(&self, key: &[u8], how: &HowToRead) -> Option<SentRead> {
        #[cfg(feature = "testing")]
        if self.is_paused() {
            return None;
        }
        if how.session.is_some() || !self.carrier.keeps_time() {
            return None;
        }
        let routing = self.known()?;
        let chain = chain_of(key, routing.chains.len() as u32);
        // A member first asks its own chain, in the general path.
        if self.local().is_some_and(|local| local.place(chain) != Place::Spare) {
            return None;
        }
        let key = Bytes::copy_from_slice(key);
        check_key(&key).ok()?;
        let question = outside_of_sessions(chain, Query::Key(key), how.mode);
        let way = self.way(&routing, &question)?;
        let account = self.account_of_read(&question.operation);
        let first = self.begin(way, question, how.timeout)?;
        Some(SentRead { first, account })
    }

    /// The answer, if the first attempt returned it. `None`: the read continues in [`read_on`](Self::read_on).
    pub(crate) fn poll_read(&self, sent: &mut SentRead, context: &mut Context<'_>) -> Poll<Option<CallAnswer>> {
        let answer = ready!(self.poll_first(&mut sent.first, context));
        if let Some(answer) = &answer {
            self.read_ended(&mut sent.account, sent.first.chain(), Ok(answer));
        }
        Poll::Ready(answer)
    }

    pub(crate) async fn read_on(&self, query: Query, mode: ReadMode, sent: SentRead) -> Result<CallAnswer, Error> {
        let SentRead { first, mut account } = sent;
        let (chain, deadline) = (first.chain(), first.deadline());
        let question = outside_of_sessions(chain, query, mode);
        let answer = self.call_from(Start::InFlight(Box::new(first)), question, deadline, |_, _| false).await;
        self.answered(&mut account, chain, mode, answer)
    }

    /// A strong read, outside of sessions, of a key that is dirty at this node, which is a member of the chain.
    pub(crate) async fn read_here(&self, here: Here, query: Query, timeout: Duration) -> Result<CallAnswer, Error> {
        let (chain, mode) = (here.handle.chain, ReadMode::Strong);
        let question = outside_of_sessions(chain, query, mode);
        let mut account = self.account_of_read(&question.operation);
        let answer = self.call_from(Start::Here(here), question, from_now(timeout), |_, _| false).await;
        self.answered(&mut account, chain, mode, answer)
    }

    /// Records the outcome of a read and converts it into the caller's result.
    fn answered(
        &self,
        account: &mut Account,
        chain: ChainId,
        mode: ReadMode,
        answer: Result<CallAnswer, RequestError>,
    ) -> Result<CallAnswer, Error> {
        let answer = answer.map_err(RequestError::of_read);
        self.read_ended(account, chain, answer.as_ref());
        answer.map_err(|error| self.unserved(chain, mode, error))
    }

    /// The error of an unserved read. A member without a lease asks members with one. If none of them answers, the
    /// error reports the missing lease, which explains more than a timeout.
    fn unserved(&self, chain: ChainId, mode: ReadMode, error: Error) -> Error {
        let is_silence =
            matches!(error, Error::NotApplied { reason: NotApplied::TimedOut | NotApplied::Unreachable { .. } });
        let leaseless = |handle: &ChainHandle| handle.gate.lease_until() <= handle.clock.now();
        match self.local() {
            Some(local)
                if is_silence
                    && !self.is_stopped()
                    && mode == ReadMode::Strong
                    && local.with_chain(chain, leaseless) == Some(true) =>
            {
                Error::refused(Refusal::NoLease, Some(local.me.node))
            }
            _ => self.unless_stopped(error),
        }
    }
}
