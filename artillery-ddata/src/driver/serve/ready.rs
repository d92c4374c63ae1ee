//! Answers that are there as soon as their requests are read: they are encoded at once, and written together by the same task.

use std::sync::{Arc, Mutex, PoisonError};

use artillery_core::transport::FrameBatch;
use tokio::sync::Semaphore;

use crate::{
    api::Reply,
    budget::{self, Share},
    local::{
        answering::Answers,
        room::{ConnectionRoom, RoomKind},
    },
    message::request::{Response, ResponseAnswer, SMALL},
    wire::request::encode_response,
};

/// So many bytes of them wait at most; beyond that the others wait for their turn, as all that isn't ready does.
const MAX_READY_BYTES: usize = SMALL;

/// The answers of one stream that are ready.
pub(super) struct ReadyAnswers {
    waiting: Mutex<ReadyBatch>,
    room: Arc<ConnectionRoom>,
}

/// What is to be written, and the room that it takes.
#[derive(Default)]
pub(super) struct ReadyBatch {
    pub(super) batch: FrameBatch,
    pub(super) share: Option<Share>,
}

impl ReadyAnswers {
    pub(super) fn new(room: Arc<ConnectionRoom>) -> Self {
        Self { waiting: Mutex::default(), room }
    }

    /// Answers what is known, with others that are if there is room, and by the way of all others if there isn't.
    pub(super) async fn answer(&self, number: u64, reply: Reply, answers: &Answers, outstanding: &Semaphore) {
        let Err(reply) = self.push(number, reply) else { return };
        // What is ready is written now, if it can be, which makes room.
        tokio::task::yield_now().await;
        let Err(reply) = self.push(number, reply) else { return };
        let Ok(permit) = outstanding.acquire().await else { return };
        permit.forget();
        answers.local(number, reply).await;
    }

    /// Takes in the answer of a read; gives it back if there is no room for it now.
    fn push(&self, number: u64, reply: Reply) -> Result<(), Reply> {
        let bytes = budget::of_reply(&reply);
        let waiting = &mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.batch.bytes() + bytes > MAX_READY_BYTES {
            return Err(reply);
        }
        if waiting.share.is_none() {
            waiting.share = self.room.of(RoomKind::Answers).try_take(MAX_READY_BYTES);
            if waiting.share.is_none() {
                return Err(reply);
            }
        }
        let response = Response { number, by: None, answer: ResponseAnswer::Reply(reply) };
        match (encode_response(&response), response.answer) {
            (Err(_), ResponseAnswer::Reply(reply)) => Err(reply),
            (encoded, _) => {
                encoded.into_iter().for_each(|encoded| waiting.batch.push(&encoded.header, &encoded.body));
                Ok(())
            }
        }
    }

    /// All that is ready, if anything is.
    pub(super) fn take(&self) -> Option<ReadyBatch> {
        let waiting = &mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        (!waiting.batch.is_empty()).then(|| {
            let mut taken = std::mem::take(waiting);
            // No more than it needs, while it waits to be written.
            taken.share.iter_mut().for_each(|share| share.shrink(taken.batch.bytes()));
            taken
        })
    }

    /// Gives the memory of what was written back, to be used again.
    pub(super) fn give_back(&self, batch: FrameBatch) {
        let waiting = &mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.batch.is_empty() {
            waiting.batch = batch;
        }
    }
}
