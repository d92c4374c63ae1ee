//! The way back of one stream's requests.

use std::{future::poll_fn, sync::Arc, task::Poll};

use artillery_core::{
    internal::frame::PREFIX,
    transport::{CloseCode, Connection, FrameBatch, FrameWriter},
};
use bytes::Bytes;
use tokio::{
    sync::{Semaphore, mpsc},
    time::timeout,
};

use super::{
    LONGEST_WAIT,
    ready::Ready,
    room::{Kind, Room},
};
use crate::{
    MemberId,
    budget::{self, Share, UNIT},
    metrics::Timing,
    replica::{Query, Refusal, Reply, Write},
    wire::request::{
        EncodeError, Encoded, MAX_OUTSTANDING, Operation, Request, Response, ResponseAnswer, SMALL, encode_response,
    },
};

/// Responses that are written together at most.
const BATCH: usize = 256;

/// What is reserved for the answer of a read that has to wait, or of a write that has something to tell, in bytes: more than most of
/// them need.
const RESERVED: usize = 8 << 10;

/// Where the answers to one stream's requests go. There is room for as many as are let in.
#[derive(Clone)]
pub(super) struct Answers {
    queue: mpsc::Sender<Answered>,
    room: Arc<Room>,
}

/// An answer on its way to the stream, and the room that it takes.
struct Answered {
    response: Response,
    shares: [Share; 2],
}

/// The answers that wait to be written.
pub(super) struct Waiting(mpsc::Receiver<Answered>);

/// Gives the answer to one request, or is dropped if there will be none.
pub(crate) struct Answering {
    number: u64,
    is_write: bool,
    /// `None`: it is counted elsewhere.
    pub(super) timing: Option<Timing>,
    answers: Answers,
    /// What is reserved for the answer.
    share: Share,
    /// The room of the request, for as long as it waits.
    request: Share,
}

impl Answers {
    pub(super) fn new(room: Arc<Room>) -> (Self, Waiting) {
        let (queue, waiting) = mpsc::channel(MAX_OUTSTANDING);
        (Self { queue, room }, Waiting(waiting))
    }

    /// Waits for room for the answer of a request.
    pub(super) async fn expect(&self, request: &Request) -> Answering {
        let Request { number, operation, forwarded, .. } = request;
        let timing = if *forwarded { None } else { Timing::of(operation) };
        let is_write = operation.is_write();
        let bytes = reserved(operation);
        let share = match is_write {
            // A few words say what came of it, in any case.
            true => self.room.of(Kind::WriteAnswers).reserve_with_unit(bytes).await,
            false => self.room.of(Kind::Answers).reserve(bytes).await,
        };
        Answering { number: *number, is_write, timing, answers: self.clone(), share, request: Share::none() }
    }

    /// Answers at once what was read here, as soon as there is room. What is large waits for none: it would hold up
    /// whatever comes behind it.
    pub(super) async fn local(&self, number: u64, reply: Reply) {
        let bytes = budget::of_reply(&reply);
        if bytes <= SMALL {
            let share = self.room.of(Kind::Answers).take(bytes).await;
            return self
                .send(Response { number, by: None, answer: ResponseAnswer::Reply(reply) }, [share, Share::none()]);
        }
        let (share, request) = (Share::none(), Share::none());
        Answering { number, is_write: false, timing: None, answers: self.clone(), share, request }.reply(reply);
    }

    /// Answers with a few words, for which there always is room.
    pub(super) fn brief(&self, number: u64, timing: Option<Timing>, reply: Reply) {
        self.count(timing, &reply);
        self.send(Response { number, by: None, answer: ResponseAnswer::Reply(reply) }, [Share::none(), Share::none()]);
    }

    /// Until the stream is gone, so that nobody can be answered any more.
    pub(super) async fn gone(&self) {
        self.queue.closed().await;
    }

    fn count(&self, timing: Option<Timing>, reply: &Reply) {
        if let Some(timing) = timing {
            self.room.local.tally.replied(timing, reply);
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
    pub(super) fn holding(self, request: Share) -> Self {
        Self { request, ..self }
    }

    /// Never waits.
    pub(crate) fn reply(self, reply: Reply) {
        self.reply_by(None, reply);
    }

    /// The same for what another member has answered.
    pub(super) fn reply_by(mut self, by: Option<MemberId>, reply: Reply) {
        let bytes = budget::of_reply(&reply);
        let kind = match self.is_write {
            _ if bytes > SMALL => Kind::LargeAnswers,
            true => Kind::WriteAnswers,
            false => Kind::Answers,
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
    pub(super) fn respond(self, answer: ResponseAnswer) {
        self.answers.send(Response { number: self.number, by: None, answer }, [self.share, self.request]);
    }
}

/// Writes what has been answered, many responses at a time, until nobody answers any more or the stream is lost. What is
/// large goes another way.
pub(super) async fn write(
    mut writer: FrameWriter,
    mut waiting: Waiting,
    ready: &Ready,
    outstanding: &Semaphore,
    room: &Arc<Room>,
    connection: &Connection,
) {
    let mut batch = FrameBatch::new();
    let mut answered = Vec::with_capacity(BATCH);
    // They take turns: what is ready could go on for ever.
    let mut others_first = false;
    loop {
        // What is ready comes from this very task, which needs no waking for it.
        let next = poll_fn(|context| {
            let ready = || ready.take().map(|ready| Poll::Ready(Ok(ready)));
            if !others_first && let Some(ready) = ready() {
                return ready;
            }
            match waiting.0.poll_recv_many(context, &mut answered, BATCH).map(Err) {
                Poll::Ready(Err(0)) | Poll::Pending if others_first => match ready() {
                    Some(ready) => ready,
                    None => waiting.0.poll_recv_many(context, &mut answered, BATCH).map(Err),
                },
                polled => polled,
            }
        });
        let next = next.await;
        others_first = next.is_ok();
        let sent = match next {
            Ok(mut now) => {
                let sent = timeout(LONGEST_WAIT, writer.send_all(&mut now.batch)).await;
                ready.give_back(now.batch);
                sent
            }
            Err(0) => break,
            Err(count) => {
                let mut taken = Vec::with_capacity(count);
                for Answered { response, shares } in answered.drain(..) {
                    match encode(&response, room.frame) {
                        Some(encoded) if goes_apart(&response, &encoded) => {
                            room.send_apart(connection, response.number, encoded, shares);
                        }
                        Some(encoded) => {
                            batch.push(&encoded.header, &encoded.body);
                            taken.push(shares);
                        }
                        None => return,
                    }
                }
                let sent = timeout(LONGEST_WAIT, writer.send_all(&mut batch)).await;
                outstanding.add_permits(count);
                sent
            }
        };
        match sent {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            // What waits for it has room that others want.
            Err(_) => return connection.close(CloseCode::VIOLATION, "answers are not taken in"),
        }
    }
    writer.finish();
}

/// As a frame of at most `limit` bytes. What is longer than any answer should be is a fault of this node's; it must not end the stream
/// of all others.
fn encode(response: &Response, limit: usize) -> Option<Encoded> {
    let len = match encode_response(response) {
        Ok(encoded) => {
            let len = encoded.body.iter().fold(PREFIX + encoded.header.len(), |sum, piece| sum + piece.len());
            if len <= limit {
                return Some(encoded);
            }
            len as u64
        }
        Err(EncodeError::TooLong(len)) => len,
        Err(_) => u64::MAX,
    };
    let &Response { number, by, ref answer } = response;
    tracing::error!(len, number, "a response can't be sent");
    let reply = match answer {
        // It was applied, which isn't to be denied.
        ResponseAnswer::Reply(Reply::Committed(_) | Reply::Conflict { .. }) => Reply::Expired,
        _ => Reply::Refused(Refusal::ResultsTooLarge { len, limit: limit as u64 }),
    };
    encode_response(&Response { number, by, answer: ResponseAnswer::Reply(reply) }).ok()
}

/// Whoever asks for the routing or the status may not take in streams yet.
fn goes_apart(response: &Response, encoded: &Encoded) -> bool {
    let is_reply = matches!(response.answer, ResponseAnswer::Reply(_));
    is_reply && encoded.body.iter().map(Bytes::len).sum::<usize>() > SMALL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Version,
        replica::{Committed, Computed, Read, Way},
        store::Held,
        wire::request::decode_response,
    };

    fn sent(reply: Reply, limit: usize) -> Response {
        let response = Response { number: 7, by: None, answer: ResponseAnswer::Reply(reply) };
        decode_response(&encode(&response, limit).unwrap().to_frame()).unwrap()
    }

    #[test]
    fn an_answer_that_no_frame_holds_is_refused_and_ends_no_stream() {
        let (version, value) = (Version::new(1, 1), Bytes::from(vec![0; 1000]));
        let held = Some(Held { version, value: Some(value.clone()) });
        let read = Reply::Read(Read { held, clean: true, way: Way::Local, as_of: version.sequence });
        assert_eq!(sent(read.clone(), 2000).answer, ResponseAnswer::Reply(read.clone()));
        let refused = sent(read, 1000);
        let is_refused = |answer: &ResponseAnswer| {
            matches!(answer, ResponseAnswer::Reply(Reply::Refused(Refusal::ResultsTooLarge { limit: 1000, .. })))
        };
        assert!(refused.number == 7 && is_refused(&refused.answer), "{refused:?}");
        let result = Computed::Took(Some((version, value)));
        let done = Reply::Committed(Committed { version, copies: 1, replayed: false, result });
        assert_eq!(sent(done, 1000).answer, ResponseAnswer::Reply(Reply::Expired), "it was applied");
    }
}
