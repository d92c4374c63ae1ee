//! Writes the answers to one stream's requests.

use std::{future::poll_fn, sync::Arc, task::Poll};

use artillery_core::{
    internal::frame::PREFIX,
    transport::{CloseCode, Connection, FrameBatch, FrameWriter},
};
use bytes::Bytes;
use tokio::{sync::Semaphore, time::timeout};

use super::ready::ReadyAnswers;
use crate::{
    api::{Refusal, Reply},
    budget::Share,
    local::{
        LONGEST_WAIT,
        answering::{Answered, PendingAnswers},
        room::ConnectionRoom,
    },
    message::request::{Response, ResponseAnswer, SMALL},
    wire::request::{EncodeError, Encoded, encode_response},
};

const BATCH: usize = 256;

/// Writes responses in batches, large ones to streams of their own. Ends when all senders of `waiting` are dropped, the
/// stream is lost, or a response can't be encoded. Closes the connection of a peer that accepts no responses.
pub(super) async fn write(
    mut writer: FrameWriter,
    mut waiting: PendingAnswers,
    ready: &ReadyAnswers,
    outstanding: &Semaphore,
    room: &Arc<ConnectionRoom>,
    connection: &Connection,
) {
    let mut batch = FrameBatch::new();
    let mut answered = Vec::with_capacity(BATCH);
    // Take from `ready` and `waiting` in turn: a steady flow of ready answers would starve `waiting`.
    let mut others_first = false;
    loop {
        // Ready answers are added by this same task, so they need no wake-up.
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
                // The answers hold their shares of the budget until they are sent.
                let Some(_shares) = fill(&mut batch, &mut answered, room, connection) else { return };
                let sent = timeout(LONGEST_WAIT, writer.send_all(&mut batch)).await;
                outstanding.add_permits(count);
                sent
            }
        };
        match sent {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            // Waiting responses hold shares of the budget that others need.
            Err(_) => return connection.close(CloseCode::VIOLATION, "answers are not accepted"),
        }
    }
    writer.finish();
}

/// Encodes the answers into the batch, large ones into streams of their own. `None`: one can't be encoded.
fn fill(
    batch: &mut FrameBatch,
    answered: &mut Vec<Answered>,
    room: &Arc<ConnectionRoom>,
    connection: &Connection,
) -> Option<Vec<[Share; 2]>> {
    let mut taken = Vec::with_capacity(answered.len());
    for Answered { response, shares } in answered.drain(..) {
        let encoded = encode(&response, room.frame)?;
        if goes_apart(&response, &encoded) {
            room.send_apart(connection, response.number, encoded, shares);
        } else {
            batch.push(&encoded.header, &encoded.body);
            taken.push(shares);
        }
    }
    Some(taken)
}

/// Encodes a frame of at most `limit` bytes. A longer response, a fault of this node, becomes an error reply. `None`:
/// that can't be encoded either.
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
        // The write was applied: a refusal would deny that.
        ResponseAnswer::Reply(Reply::Committed(_) | Reply::Conflict { .. }) => Reply::Expired,
        _ => Reply::Refused(Refusal::ResultsTooLarge { len, limit: limit as u64 }),
    };
    encode_response(&Response { number, by, answer: ResponseAnswer::Reply(reply) }).ok()
}

/// Whether the response gets a stream of its own. Only large replies do: a peer that queries the routing or a status
/// may not accept streams yet.
fn goes_apart(response: &Response, encoded: &Encoded) -> bool {
    let is_reply = matches!(response.answer, ResponseAnswer::Reply(_));
    is_reply && encoded.body.iter().map(Bytes::len).sum::<usize>() > SMALL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Version,
        api::{Computed, ReadPath, ReadReply, WriteReply},
        store::Held,
        wire::request::decode_response,
    };

    fn sent(reply: Reply, limit: usize) -> Response {
        let response = Response { number: 7, by: None, answer: ResponseAnswer::Reply(reply) };
        decode_response(&encode(&response, limit).unwrap().to_frame()).unwrap()
    }

    #[test]
    fn an_answer_longer_than_a_frame_is_refused() {
        let (version, value) = (Version::new(1, 1), Bytes::from(vec![0; 1000]));
        let held = Some(Held::new(version, Some(value.clone())));
        let read =
            Reply::Read(ReadReply { held, clean: true, way: ReadPath::Local, as_of: version.sequence, chain_time: 0 });
        assert_eq!(sent(read.clone(), 2000).answer, ResponseAnswer::Reply(read.clone()));
        let refused = sent(read, 1000);
        let is_refused = |answer: &ResponseAnswer| {
            matches!(answer, ResponseAnswer::Reply(Reply::Refused(Refusal::ResultsTooLarge { limit: 1000, .. })))
        };
        assert!(refused.number == 7 && is_refused(&refused.answer), "{refused:?}");
        let result = Computed::Took(Some((version, value)));
        let done = Reply::Committed(WriteReply { version, copies: 1, replayed: false, result });
        assert_eq!(sent(done, 1000).answer, ResponseAnswer::Reply(Reply::Expired), "the write was applied");
    }
}
