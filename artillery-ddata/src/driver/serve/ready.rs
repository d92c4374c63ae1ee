//! Answers that are known when their requests are read. They are encoded at once, and written together.

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

/// The most bytes that wait here. Further answers use the ordinary queue.
const MAX_READY_BYTES: usize = SMALL;

pub(super) struct ReadyAnswers {
    waiting: Mutex<ReadyBatch>,
    room: Arc<ConnectionRoom>,
}

/// Encoded answers and their share of the budget.
#[derive(Default)]
pub(super) struct ReadyBatch {
    pub(super) batch: FrameBatch,
    pub(super) share: Option<Share>,
}

impl ReadyAnswers {
    pub(super) fn new(room: Arc<ConnectionRoom>) -> Self {
        Self { waiting: Mutex::default(), room }
    }

    /// Adds a known answer to the batch. If this isn't possible, sends the answer through the ordinary queue.
    pub(super) async fn answer(&self, number: u64, reply: Reply, answers: &Answers, outstanding: &Semaphore) {
        let Err(reply) = self.push(number, reply) else { return };
        // Yield, so that the batch may be written.
        tokio::task::yield_now().await;
        let Err(reply) = self.push(number, reply) else { return };
        let Ok(permit) = outstanding.acquire().await else { return };
        permit.forget();
        answers.local(number, reply).await;
    }

    /// Adds an answer to the batch. Returns the answer if the batch is full, has no budget, or the answer can't be
    /// encoded.
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

    pub(super) fn take(&self) -> Option<ReadyBatch> {
        let waiting = &mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        (!waiting.batch.is_empty()).then(|| {
            let mut taken = std::mem::take(waiting);
            // Keep only the share that the batch needs while it waits to be written.
            taken.share.iter_mut().for_each(|share| share.shrink(taken.batch.bytes()));
            taken
        })
    }

    /// Returns the memory of a written batch for reuse.
    pub(super) fn give_back(&self, batch: FrameBatch) {
        let waiting = &mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.batch.is_empty() {
            waiting.batch = batch;
        }
    }
}
