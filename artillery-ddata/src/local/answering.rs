//! Answers to the requests of one stream.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::room::{ConnectionRoom, RoomKind};
use crate::{
    MemberId,
    api::{Query, Refusal, Reply, Write},
    budget::{self, Share, UNIT},
    message::request::{MAX_OUTSTANDING, Operation, Request, Response, ResponseAnswer, SMALL},
    metrics::OperationTimer,
};

/// Bytes reserved for the answer to a read other than a watch, or to a write with a result. Most answers need less.
const RESERVED: usize = 8 << 10;

/// The destination of the answers to one stream's requests. The queue has a slot for each admitted request.
#[derive(Clone)]
pub(crate) struct Answers {
    queue: mpsc::Sender<Answered>,
    room: Arc<ConnectionRoom>,
}

/// An answer that waits to be written, and the capacity that it takes.
pub(crate) struct Answered {
    pub(crate) response: Response,
    pub(crate) shares: [Share; 2],
}

pub(crate) struct PendingAnswers(pub(crate) mpsc::Receiver<Answered>);

/// Sends the answer to one request. If it is dropped, the request stays unanswered.
pub(crate) struct Answering {
    number: u64,
    is_write: bool,
    /// `None` if this node doesn't count the request.
    pub(crate) timing: Option<OperationTimer>,
    answers: Answers,
    share: Share,
    /// The request's capacity, held while it waits.
    request: Share,
}

impl Answers {
    pub(crate) fn new(room: Arc<ConnectionRoom>) -> (Self, PendingAnswers) {
        let (queue, waiting) = mpsc::channel(MAX_OUTSTANDING);
        (Self { queue, room }, PendingAnswers(waiting))
    }

    pub(crate) async fn expect(&self, request: &Request) -> Answering {
        let Request { number, operation, forwarded, .. } = request;
        let timing = if *forwarded { None } else { OperationTimer::of(operation) };
        let is_write = operation.is_write();
        let bytes = reserved(operation);
        let share = match is_write {
            // At least one unit, so that the outcome of a write can always be reported.
            true => self.room.of(RoomKind::WriteAnswers).reserve_with_unit(bytes).await,
            false => self.room.of(RoomKind::Answers).reserve(bytes).await,
        };
        Answering { number: *number, is_write, timing, answers: self.clone(), share, request: Share::none() }
    }

    /// Answers a local read. Waits for capacity if the answer is small. Refuses a large answer for which there is no
    /// capacity: waiting would delay the answers behind it.
    pub(crate) async fn local(&self, number: u64, reply: Reply) {
        let bytes = budget::of_reply(&reply);
        if bytes <= SMALL {
            let share = self.room.of(RoomKind::Answers).take(bytes).await;
            return self
                .send(Response { number, by: None, answer: ResponseAnswer::Reply(reply) }, [share, Share::none()]);
        }
        let (share, request) = (Share::none(), Share::none());
        Answering { number, is_write: false, timing: None, answers: self.clone(), share, request }.reply(reply);
    }

    /// Answers with a reply that is too short to need capacity.
    pub(crate) fn brief(&self, number: u64, timing: Option<OperationTimer>, reply: Reply) {
        self.count(timing, &reply);
        self.send(Response { number, by: None, answer: ResponseAnswer::Reply(reply) }, [Share::none(), Share::none()]);
    }

    /// Waits until the stream is lost, so that it can't carry answers.
    pub(crate) async fn gone(&self) {
        self.queue.closed().await;
    }

    fn count(&self, timing: Option<OperationTimer>, reply: &Reply) {
        if let Some(timing) = timing {
            self.room.tally.replied(timing, reply);
        }
    }

    fn send(&self, response: Response, shares: [Share; 2]) {
        // Sending fails only if the stream is gone: no peer reads the answer.
        drop(self.queue.try_send(Answered { response, shares }));
    }
}

/// The bytes to reserve for a small answer. Most writes have no result to return. A watch may wait long, so it reserves
/// little.
fn reserved(operation: &Operation) -> usize {
    match operation {
        Operation::Read { query: Query::Changes(_), .. } => 1,
        Operation::Read { .. } => RESERVED,
        Operation::Write { write, .. } => match write {
            Write::CompareAndSwap { .. }
            | Write::GetDelete { .. }
            | Write::Batch(_)
            | Write::Script(_)
            | Write::Resolve => RESERVED,
            _ => 1,
        },
        Operation::Admin(_) => 1,
    }
}

impl Answering {
    pub(crate) fn holding(self, request: Share) -> Self {
        Self { request, ..self }
    }

    pub(crate) fn reply(self, reply: Reply) {
        self.reply_by(None, reply);
    }

    /// Like [`reply`](Self::reply), for an answer from the member `by`.
    pub(crate) fn reply_by(mut self, by: Option<MemberId>, reply: Reply) {
        let bytes = budget::of_reply(&reply);
        let kind = match self.is_write {
            _ if bytes > SMALL => RoomKind::LargeAnswers,
            true => RoomKind::WriteAnswers,
            false => RoomKind::Answers,
        };
        let room = self.answers.room.of(kind);
        // The reserved share is for a small answer only.
        let mut large = Share::none();
        let is_large = bytes > SMALL;
        let fits = room.try_fill(if is_large { &mut large } else { &mut self.share }, bytes);
        // A short reply needs no more than the reserved capacity and that of the request.
        let reply = if fits || bytes <= UNIT { reply } else { self.without_room() };
        let shares = match (fits, is_large) {
            (true, true) => [large, Share::none()],
            (true, false) => [self.share, Share::none()],
            (false, _) => [self.share, self.request],
        };
        self.answers.count(self.timing, &reply);
        let response = Response { number: self.number, by, answer: ResponseAnswer::Reply(reply) };
        self.answers.send(response, shares);
    }

    /// The reply if there is no capacity for the answer. The client retries: a repeated write gets its recorded result.
    fn without_room(&self) -> Reply {
        if self.is_write { Reply::Expired } else { Reply::Refused(Refusal::Busy) }
    }

    /// Answers an operation that is neither a read nor a write.
    pub(crate) fn respond(self, answer: ResponseAnswer) {
        self.answers.send(Response { number: self.number, by: None, answer }, [self.share, self.request]);
    }
}
