//! A test's hooks into calls, which disturb and record calls.

use tokio::time::Instant;

use super::{CallAnswer, Router, Tried};
use crate::{
    ChainId, Error, NodeId, RequestId,
    api::Reply,
    error::Unknown,
    rpc::{
        channel::Question,
        observer::{ObservedCall, Observer, book::Ask},
    },
};

impl Router {
    /// Ends an attempt without an answer before it starts, if the test demands it.
    pub(super) async fn intercept(&self, question: &Question, deadline: Instant) -> Option<Tried> {
        let observer = self.observer.get().filter(|_| !question.forwarded)?;
        observer.before(question, deadline).await.then_some(Tried::Unanswered(Unknown::TimedOut))
    }

    /// Drops the answer of an attempt, if the test demands it.
    pub(super) async fn swallow(
        &self,
        (tried, asked): (Tried, Option<NodeId>),
        question: &Question,
        deadline: Instant,
    ) -> (Tried, Option<NodeId>) {
        if let Some(observer) = self.observer.get().filter(|_| !question.forwarded)
            && let Tried::Answered(CallAnswer { reply, .. }) = &tried
            && observer.after(question, reply, deadline).await
        {
            return (Tried::Unanswered(Unknown::TimedOut), asked);
        }
        (tried, asked)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.observer.get().is_some_and(Observer::is_paused)
    }

    /// Whether the test makes a write's first attempt wait, or cancels it. Such a write takes the general path, which
    /// can wait.
    pub(super) fn is_held_up(&self) -> bool {
        self.observer.get().is_some_and(Observer::holds_up)
    }

    /// Whether the test drops the answer to a write's first attempt. Then the call ends at its deadline, as if the
    /// answer had never arrived.
    pub(super) fn takes_away(&self, question: impl FnOnce() -> Question, reply: &Reply) -> bool {
        self.observer.get().is_some_and(|observer| observer.takes_away(&question(), reply))
    }

    pub(super) fn note(&self, ask: impl FnOnce() -> Ask, id: Option<RequestId>) -> Option<ObservedCall> {
        Some(self.observer.get()?.begin(ask(), id))
    }
}

pub(super) fn noted_read(noted: Option<ObservedCall>, chain: ChainId, outcome: Result<&Reply, &Error>) {
    if let Some(noted) = noted {
        noted.end(chain, outcome, None);
    }
}

pub(super) fn noted_write(noted: Option<ObservedCall>, outcome: Result<(&Reply, RequestId), &Error>) {
    let Some(noted) = noted else { return };
    match outcome {
        Ok((reply, id)) => noted.end(id.chain, Ok(reply), Some(id)),
        Err(error) => {
            let id = if let Error::OutcomeUnknown { request_id, .. } = error { Some(*request_id) } else { None };
            noted.end(id.map_or_else(ChainId::default, |id| id.chain), Err(error), id);
        }
    }
}
