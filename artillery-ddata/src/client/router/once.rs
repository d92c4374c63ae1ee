//! One try: somebody is picked and asked, here or there.

use std::time::Duration;

use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::{Answer, Attempts, Router, on_the_clock, pick::Pick, repeat};
use crate::{
    ChainId, Error, MemberId, NodeId, Place,
    client::channel::{NotSent, Outcome, Question},
    driver::handle::{ChainHandle, ReadRequest, Responder, WriteRequest},
    error::{NotApplied, Unknown},
    replica::{Query, Refusal},
    tries::Repeat,
    wire::request::{Operation, ResponseAnswer},
};

/// A write that its head hasn't answered for so long is reason enough to ask who is head now.
const WRITE_PATIENCE: Duration = Duration::from_millis(250);
/// And to ask again after so long, until it is known.
const DOUBT: Duration = Duration::from_millis(100);
/// A read that one member hasn't answered for so long is put to another one.
const READ_PATIENCE: Duration = Duration::from_millis(250);
/// The next one is given longer: they may all have much to do.
const LONGEST_READ_PATIENCE: Duration = Duration::from_secs(2);

/// What came of one try.
pub(super) enum Tried {
    Answered(Answer),
    /// Certainly nothing: may be tried again, if that helps.
    Nothing(Error),
    /// The read or write may have been taken in.
    Unanswered(Unknown),
}

impl Router {
    pub(super) async fn try_once(
        &self,
        question: &Question,
        attempts: &Attempts,
        deadline: Instant,
    ) -> (Tried, Option<NodeId>) {
        match self.pick(question, attempts) {
            Pick::Here(handle, me, place) => (ask_here(handle, me, place, question, deadline).await, Some(me.node)),
            Pick::There { member, place, others } => {
                if let Some(local) = self.local().filter(|_| attempts.is_first()) {
                    local.count_forwarded();
                }
                let patience = others.then(|| patience(question, attempts)).flatten();
                let tried = self.ask_there(member, place, question, patience, deadline).await;
                (tried, Some(member.node))
            }
            Pick::Nobody => (Tried::Nothing(Error::not_applied(NotApplied::NotFormed)), None),
        }
    }

    async fn ask_there(
        &self,
        member: MemberId,
        place: Place,
        question: &Question,
        patience: Option<Duration>,
        deadline: Instant,
    ) -> Tried {
        let channel = match self.reached(member.node, deadline).await {
            Ok(channel) => channel,
            // A refusal may name somebody whom the routing doesn't know yet.
            Err(Error::NotApplied { reason: NotApplied::UnknownNode(node) }) => {
                return Tried::Nothing(Error::not_applied(NotApplied::Unreachable { node, reason: None }));
            }
            Err(error) => return Tried::Nothing(error),
        };
        let until = patience.map_or(deadline, |patience| deadline.min(Instant::now() + patience));
        let asked = async {
            tokio::select! {
                biased;
                outcome = channel.ask(question.clone(), until) => outcome,
                () = self.deposed(question, member, until) => Outcome::Unanswered(Unknown::NoAnswer),
            }
        };
        match asked.await {
            Outcome::Answered(response) => match response.answer {
                ResponseAnswer::Reply(reply) => {
                    let node = response.by.unwrap_or(member);
                    let place = if node == member { place } else { self.place(question.chain, node) };
                    Tried::Answered(Answer { reply, node, place })
                }
                _ => Tried::Unanswered(Unknown::NoAnswer),
            },
            Outcome::NotSent(reason) => Tried::Nothing(not_sent(reason, member.node)),
            Outcome::Unanswered(reason) => Tried::Unanswered(reason),
        }
    }

    /// Waits until a newer configuration has another head than this one: for a write that may be asked for again.
    async fn deposed(&self, question: &Question, member: MemberId, until: Instant) {
        if repeat(&question.operation) != Repeat::Recorded {
            return std::future::pending().await;
        }
        let present = || self.known().and_then(|routing| Some((routing.chain(question.chain)?.epoch, routing)));
        let begun = present().map(|(epoch, _)| epoch);
        let mut patience = WRITE_PATIENCE;
        loop {
            let now = present();
            let head = now.as_ref().and_then(|(_, routing)| routing.chain(question.chain)?.head());
            if now.map(|(epoch, _)| epoch) > begun && head != Some(member) {
                return;
            }
            let pause = until.min(Instant::now() + patience);
            self.routes.changed_or(pause).await;
            if Instant::now() >= pause {
                self.refresh_routing(until).await;
                patience = DOUBT;
            }
            if Instant::now() >= until {
                return std::future::pending().await;
            }
        }
    }

    fn place(&self, chain: ChainId, member: MemberId) -> Place {
        self.known().and_then(|routing| Some(routing.chain(chain)?.place(member))).unwrap_or(Place::Spare)
    }
}

/// How long one member's answer is waited for where another may be asked. Who asks for changes wants to wait.
fn patience(question: &Question, attempts: &Attempts) -> Option<Duration> {
    let waits = matches!(question.operation, Operation::Read { query: Query::Changes(_), .. });
    let patience = (READ_PATIENCE * (1 << attempts.count().min(8))).min(LONGEST_READ_PATIENCE);
    (!question.operation.is_write() && !waits).then_some(patience)
}

pub(super) fn not_sent(reason: NotSent, node: NodeId) -> Error {
    match reason {
        NotSent::Busy => Error::refused(Refusal::Busy, None),
        NotSent::Lost => Error::not_applied(NotApplied::Unreachable { node, reason: None }),
        NotSent::TimedOut => Error::not_applied(NotApplied::TimedOut),
        NotSent::Stopped => Error::not_applied(NotApplied::Stopped),
        NotSent::TooLarge { len, limit } => Error::refused(Refusal::ValueTooLarge { len, limit }, None),
    }
}

/// Asks the chain of this very node.
async fn ask_here(handle: ChainHandle, me: MemberId, place: Place, question: &Question, deadline: Instant) -> Tried {
    let (responder, reply) = oneshot::channel();
    let (responder, until) = (Responder::Caller(responder), on_the_clock(deadline));
    let is_write = question.operation.is_write();
    let handed = async {
        match &question.operation {
            Operation::Read { query, mode, floor, history } => {
                let (query, mode, floor, history) = (query.clone(), *mode, *floor, *history);
                handle.read(ReadRequest { query, mode, floor, history, deadline: until, caller: responder }).await;
            }
            Operation::Write { request, history, write } => {
                let (request, history, write) = (*request, *history, write.clone());
                handle.write(WriteRequest { request, history, write, deadline: until, caller: responder }).await;
            }
            Operation::Routing
            | Operation::RoutingAnyway
            | Operation::Status
            | Operation::Arrange(_)
            | Operation::Survey
            | Operation::Recover { .. }
            | Operation::Found { .. } => {}
        }
    };
    if timeout_at(deadline, handed).await.is_err() {
        return Tried::Nothing(Error::refused(Refusal::Busy, Some(me.node)));
    }
    match timeout_at(deadline, reply).await {
        Ok(Ok(reply)) => Tried::Answered(Answer { reply, node: me, place }),
        Ok(Err(_)) if is_write => Tried::Unanswered(Unknown::NoAnswer),
        Ok(Err(_)) => Tried::Nothing(Error::not_applied(NotApplied::Stopped)),
        Err(_) => Tried::Unanswered(Unknown::TimedOut),
    }
}
