//! What one connection's requests and answers may take up here.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use artillery_core::{
    config::TransportConfig,
    transport::{Connection, StreamKind},
};

use crate::{
    budget::{Budget, Share},
    driver::local::Local,
    wire::{
        request::{Encoded, encode_answer_to},
        streams::{ANSWERS, APART_PRIORITY},
    },
};

/// Bytes that one connection may take up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Small answers that wait to be written, small requests that are handed on, small writes that wait for their chain, and
    /// large requests: each.
    queue: usize,
    /// Large answers: two of the largest.
    large: usize,
    /// The longest frame that is sent.
    frame: usize,
    /// Large answers handed to QUIC and not received yet: what is small must find room in the connection's window.
    sent: usize,
}

impl Sizes {
    pub(crate) fn new(queue_bytes: usize, transport: &TransportConfig) -> Self {
        Self {
            queue: queue_bytes,
            large: transport.max_frame_bytes.saturating_mul(2),
            frame: transport.max_frame_bytes,
            sent: unreceived_bytes(transport),
        }
    }
}

/// Bytes of one kind of requests, or of answers, that may be under way on a connection at a time, so that what one kind
/// leaves unread has not the whole of the connection's window: small reads, small writes and large requests are three.
pub(crate) const fn unreceived_bytes(transport: &TransportConfig) -> usize {
    transport.connection_window_bytes as usize / 4
}

/// The rooms of all connections from which there are requests.
pub(super) struct Rooms {
    sizes: Sizes,
    local: Arc<Local>,
    by_connection: Mutex<BTreeMap<usize, Weak<Room>>>,
}

impl Rooms {
    pub(super) fn new(sizes: Sizes, local: Arc<Local>) -> Self {
        Self { sizes, local, by_connection: Mutex::default() }
    }

    /// The room that all streams of a connection share. It is kept while one of them, which keep the connection too, has it.
    pub(super) fn of(&self, connection: &Connection) -> Arc<Room> {
        // A panic leaves nothing half done in there.
        let mut rooms = self.by_connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = rooms.get(&connection.id()).and_then(Weak::upgrade) {
            return room;
        }
        rooms.retain(|_, room| room.strong_count() > 0);
        let room = Arc::new(Room::new(self.sizes, self.local.clone()));
        rooms.insert(connection.id(), Arc::downgrade(&room));
        room
    }

    /// What all connections together have taken.
    pub(super) fn taken_bytes(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let rooms = self.by_connection.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sums = [0; ROOMS.len()];
        for room in rooms.values().filter_map(Weak::upgrade) {
            sums.iter_mut().zip(room.taken_bytes()).for_each(|(sum, taken)| *sum += taken);
        }
        ROOMS.into_iter().zip(sums)
    }
}

/// What the room of a connection is for, in words, as [`Room::taken_bytes`] has them.
const ROOMS: [&str; 6] =
    ["forwards", "small_writes", "answers", "large_requests", "large_answers", "unreceived_answers"];

/// The room of one connection.
pub(crate) struct Room {
    pub(super) forwards: Budget,
    pub(super) writes: Budget,
    pub(super) answers: Budget,
    pub(super) large_requests: Budget,
    pub(super) large_answers: Budget,
    sent: Budget,
    /// The longest frame that is sent, in bytes.
    pub(super) frame: usize,
    /// Where its requests are counted.
    pub(super) local: Arc<Local>,
}

impl Room {
    pub(super) fn new(sizes: Sizes, local: Arc<Local>) -> Self {
        Self {
            forwards: Budget::new(sizes.queue),
            writes: Budget::new(sizes.queue),
            answers: Budget::new(sizes.queue),
            large_requests: Budget::new(sizes.queue),
            large_answers: Budget::new(sizes.large),
            sent: Budget::new(sizes.sent),
            frame: sizes.frame,
            local,
        }
    }

    /// In the order of [`ROOMS`].
    fn taken_bytes(&self) -> [usize; ROOMS.len()] {
        [&self.forwards, &self.writes, &self.answers, &self.large_requests, &self.large_answers, &self.sent]
            .map(Budget::taken)
    }

    /// Sends an answer on a stream of its own, in a task of its own: there are no more of them than their bytes have room.
    pub(super) fn send_apart(self: &Arc<Self>, connection: &Connection, number: u64, answer: Encoded, share: Share) {
        let (room, connection) = (self.clone(), connection.clone());
        tokio::spawn(async move {
            let bytes = answer.body.iter().map(bytes::Bytes::len).sum();
            let _sent = room.sent.take(bytes).await;
            let sent = async {
                let mut writer = connection.open_uni(StreamKind(ANSWERS), APART_PRIORITY).await?;
                // Whoever doesn't want it any more can say so before the rest comes.
                writer.send(&encode_answer_to(number), &[]).await?;
                writer.send(&answer.header, &answer.body).await?;
                writer.finish();
                writer.stopped().await;
                Ok::<_, artillery_core::error::WriteError>(())
            };
            if let Err(error) = sent.await {
                tracing::debug!(%error, number, "a large answer was not wanted any more");
            }
            drop(share);
        });
    }
}
