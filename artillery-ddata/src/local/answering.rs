//! The way back of one stream's requests.

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

/// What is reserved for the answer of a read that has to wait, or of a write that has something to tell, in bytes: more than most of
/// them need.
const RESERVED: usize = 8 << 10;

/// Where the answers to one stream's requests go. There is room for as many as are let in.
#[derive(Clone)]
pub(crate) struct Answers {
    queue: mpsc::Sender<Answered>,
    room: Arc<ConnectionRoom>,
}

/// An answer on its way to the stream, and the room that it takes.
pub(crate) struct Answered {
    pub(crate) response: Response,
    pub(crate) shares: [Share; 2],
}

/// The answers that wait to be written.
pub(crate) struct PendingAnswers(pub(crate) mpsc::Receiver<Answered>);

/// Gives the answer to one request, or is dropped if there will be none.
pub(crate) struct Answering {
    number: u64,
    is_write: bool,
    /// `None`: it is counted elsewhere.
    pub(crate) timing: Option<OperationTimer>,
    answers: Answers,
    /// What is reserved for the answer.
    share: Share,
    /// The room of the request, for as long as it waits.
    request: Share,
}

impl Answers {
    pub(crate) fn new(room: Arc<ConnectionRoom>) -> (Self, PendingAnswers) {
        let (queue, waiting) = mpsc::channel(MAX_OUTSTANDING);
        (Self { queue, room }, PendingAnswers(waiting))
    }

    /// Waits for room for the answer of a request.
    pub(crate) async fn expect(&self, request: &Request) -> Answering {
        let Request { number, operation, forwarded, .. } = request;
        let timing = if *forwarded { None } else { OperationTimer::of(operation) };
        let is_write = operation.is_write();
        let bytes = reserved(operation);
        let share = match is_write {
            // A few words say what came of it, in any case.
            true => self.room.of(RoomKind::WriteAnswers).reserve_with_unit(bytes).await,
            false => self.room.of(RoomKind::Answers).reserve(bytes).await,
        };
        Answering { number: *number, is_write, timing, answers: self.clone(), share, request: Share::none() }
    }

    /// Answers at once what was read here, as soon as there is room. What is large waits for none: it would hold up
    /// whatever comes behind it.
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

    /// Answers with a few words, for which there always is room.
    pub(crate) fn brief(&self, number: u64, timing: Option<OperationTimer>, reply: Reply) {
        self.count(timing, &reply);
        self.send(Response { number, by: None, answer: ResponseAnswer::Reply(reply) }, [Share::none(), Share::none()]);
    }

    /// Until the stream is gone, so that nobody can be answered any more.
    pub(crate) async fn gone(&self) {
        self.queue.closed().await;
    }

    fn count(&self, timing: Option<OperationTimer>, reply: &Reply) {
        if let Some(timing) = timing {
            self.room.tally.replied(timing, reply);
        }
    }

    fn send(&self, response: Response, shares: [Share; 2]) {
        // Nobody is there to read it: the stream is gone.
        drop(self.queue.try_send(Answered { response, shares }));
    }
}

/// What the answer of an operation may take while it is small. Most of those that change something have nothing to show,
/// and a watch may wait for long.
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
        Operation::Routing
        | Operation::RoutingAnyway
        | Operation::Status
        | Operation::Arrange(_)
        | Operation::Survey
        | Operation::Recover { .. }
        | Operation::Found { .. } => 1,
    }
}

impl Answering {
    /// Keeps the room of the request until it is answered.
    pub(crate) fn holding(self, request: Share) -> Self {
        Self { request, ..self }
    }

    /// Never waits.
    pub(crate) fn reply(self, reply: Reply) {
        self.reply_by(None, reply);
    }

    /// The same for what another member has answered.
    pub(crate) fn reply_by(mut self, by: Option<MemberId>, reply: Reply) {
        let bytes = budget::of_reply(&reply);
        let kind = match self.is_write {
            _ if bytes > SMALL => RoomKind::LargeAnswers,
            true => RoomKind::WriteAnswers,
            false => RoomKind::Answers,
        };
        let room = self.answers.room.of(kind);
        // What was reserved is for a small answer.
        let mut large = Share::none();
        let is_large = bytes > SMALL;
        let fits = room.try_fill(if is_large { &mut large } else { &mut self.share }, bytes);
        // A few words keep the room that was reserved, and that of the request.
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

    /// What is said instead of an answer for which there is no room. It is asked for again: a write finds what it did on record.
    fn without_room(&self) -> Reply {
        if self.is_write { Reply::Expired } else { Reply::Refused(Refusal::Busy) }
    }

    /// Answers what is no read and no write.
    pub(crate) fn respond(self, answer: ResponseAnswer) {
        self.answers.send(Response { number: self.number, by: None, answer }, [self.share, self.request]);
    }
}
