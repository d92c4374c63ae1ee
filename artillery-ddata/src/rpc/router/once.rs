//! One attempt: asks a member, in this process or over the network.

use std::{pin::Pin, time::Duration};

use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::{Attempts, CallAnswer, Router, repeat};
use crate::{
    ChainId, Epoch, Error, MemberId, Place,
    api::{Query, Refusal, retry::Repeat},
    error::{NotApplied, Unknown},
    local::{
        Here, answer_by,
        handle::{ReadRequest, Responder, WriteRequest},
    },
    message::request::{Operation, ResponseAnswer},
    rpc::channel::{CallOutcome, Doubts, Question},
};

/// After this time without the head's answer to a write, the call also ends when another head is known.
pub(super) const WRITE_DOUBT_AFTER: Duration = Duration::from_millis(250);
/// After this time without an answer, a read goes to another member.
const READ_ATTEMPT_TIMEOUT: Duration = Duration::from_millis(250);
/// [`READ_ATTEMPT_TIMEOUT`] doubles with each attempt, up to this limit: all members may be busy.
const MAX_READ_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) enum Tried {
    Answered(CallAnswer),
    /// Certainly nothing was applied: the request may be retried.
    Nothing(Error),
    Unanswered(Unknown),
}

impl Router {
    pub(super) async fn ask_there(
        &self,
        (member, place): (MemberId, Place),
        (epoch, answers): (Epoch, MemberId),
        question: &Question,
        patience: Option<Duration>,
        deadline: Instant,
    ) -> Tried {
        let now = self.channel(member.node).ok().filter(|channel| channel.is_connected());
        let reached = match now {
            Some(channel) => Ok(channel),
            None => Box::pin(self.reached(member.node, deadline)).await,
        };
        let channel = match reached {
            Ok(channel) => channel,
            // A refusal may name a node that isn't in the routing yet. The call then continues with newer routing.
            Err(Error::NotApplied { reason: NotApplied::UnknownNode(node) }) => {
                return Tried::Nothing(Error::not_applied(NotApplied::Unreachable { node, reason: None }));
            }
            Err(error) => return Tried::Nothing(error),
        };
        let until = patience.map_or(deadline, |patience| deadline.min(Instant::now() + patience));
        let doubts = may_doubt(question).then_some((WRITE_DOUBT_AFTER, self.doubts(question.chain, epoch, answers)));
        let outcome = channel.ask(question, until, doubts).await;
        self.tried(outcome, question.chain, member, place)
    }

    /// The future for a call whose head hasn't answered for long. It ends when the chain has another head.
    pub(super) fn doubts<'a>(&'a self, chain: ChainId, epoch: Epoch, member: MemberId) -> impl FnOnce() -> Doubts<'a> {
        move || Box::pin(self.deposed(chain, epoch, member))
    }

    /// Converts the outcome of one call to a member into that of an attempt.
    pub(super) fn tried(&self, outcome: CallOutcome, chain: ChainId, member: MemberId, place: Place) -> Tried {
        match outcome {
            CallOutcome::Answered(response) => match response.answer {
                ResponseAnswer::Reply(reply) => {
                    let node = response.by.unwrap_or(member);
                    let place = if node == member { place } else { self.place(chain, node) };
                    Tried::Answered(CallAnswer { reply, node, place })
                }
                _ => Tried::Unanswered(Unknown::NoAnswer),
            },
            CallOutcome::NotSent(reason) => Tried::Nothing(reason.error(member.node)),
            CallOutcome::Unanswered(reason) => Tried::Unanswered(reason),
        }
    }

    fn place(&self, chain: ChainId, member: MemberId) -> Place {
        self.known().and_then(|routing| Some(routing.chain(chain)?.place(member))).unwrap_or(Place::Spare)
    }
}

/// Whether the request is a write with a request id. After [`WRITE_DOUBT_AFTER`], such a write also ends when another
/// head is known.
pub(super) fn may_doubt(question: &Question) -> bool {
    repeat(&question.operation) == Repeat::Recorded
}

/// How long a request waits for one member if another may be asked. `None`, so no limit: for a watch, which is meant to
/// wait, and for a write, which only the head accepts.
pub(super) fn patience(question: &Question, attempts: &Attempts) -> Option<Duration> {
    let waits = matches!(question.operation, Operation::Read { query: Query::Changes(_), .. });
    let patience = (READ_ATTEMPT_TIMEOUT * (1 << attempts.count().min(8))).min(MAX_READ_ATTEMPT_TIMEOUT);
    (!question.operation.is_write() && !waits).then_some(patience)
}

/// The wait until a request can be passed to the chain's task. Boxed, since few requests wait.
type PendingHandover<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

pub(super) async fn ask_here(Here { handle, me, place }: &Here, question: &Question, deadline: Instant) -> Tried {
    let (responder, reply) = oneshot::channel();
    let responder = Responder::Caller(responder);
    let is_write = question.operation.is_write();
    let waiting: Option<PendingHandover<'_>> = match &question.operation {
        Operation::Read { query, mode, floor, history } => {
            let (query, mode, floor, history) = (query.clone(), *mode, *floor, *history);
            let until = handle.deadline(answer_by(&query, deadline));
            let read = ReadRequest { query, mode, floor, history, deadline: until, caller: responder };
            handle.try_read(read).map(|read| -> PendingHandover<'_> { Box::pin(handle.read(read)) })
        }
        Operation::Write { request, history, write } => {
            let (request, history, write) = (*request, *history, write.clone());
            let until = handle.deadline(deadline);
            let write = WriteRequest { request, history, write, deadline: until, caller: responder };
            handle.try_write(write).map(|write| -> PendingHandover<'_> { Box::pin(handle.write(write)) })
        }
        // Chains answer only reads and writes.
        _ => {
            drop(responder);
            None
        }
    };
    if let Some(waiting) = waiting
        && timeout_at(deadline, waiting).await.is_err()
    {
        return Tried::Nothing(Error::refused(Refusal::Busy, Some(me.node)));
    }
    match timeout_at(deadline, reply).await {
        Ok(Ok(reply)) => Tried::Answered(CallAnswer { reply, node: *me, place: *place }),
        Ok(Err(_)) if is_write => Tried::Unanswered(Unknown::NoAnswer),
        Ok(Err(_)) => Tried::Nothing(Error::not_applied(NotApplied::Stopped)),
        Err(_) => Tried::Unanswered(Unknown::TimedOut),
    }
}
