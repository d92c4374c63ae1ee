//! Answers on their way to one client: gathered, written at once, and of large ones no more at all connections together than
//! there is room for.

use std::{
    io::{Error, ErrorKind, Result},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::BytesMut;
use tokio::{
    io::AsyncWriteExt,
    net::tcp::OwnedWriteHalf,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{
    COMMAND_TIMEOUT,
    connection::{CHUNK, FREE, STALLED},
    reply::{Protocol, Reply},
};

/// Answers are written once there are so many bytes of them, though there is more to do.
const GATHERED: usize = 64 << 10;
/// How often somebody who is written to is looked after.
const LOOK: Duration = Duration::from_secs(1);
/// Who has room for large answers and takes fewer bytes between two looks is cut off if others wait for that.
const SLOW: usize = 1 << 20;

/// Room for large answers, in KiB.
#[derive(Debug)]
pub(super) struct Room {
    free: Arc<Semaphore>,
    all: usize,
    waiting: AtomicUsize,
}

impl Room {
    pub(super) fn new(bytes: usize) -> Self {
        let all = (bytes >> 10).clamp(1, u32::MAX as usize).min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(all)), all, waiting: AtomicUsize::new(0) }
    }

    /// Room for so many bytes, or all that there is. `None`: it was taken up for too long.
    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let wanted = (bytes >> 10).clamp(1, self.all) as u32;
        if let Ok(taken) = self.free.clone().try_acquire_many_owned(wanted) {
            return Some(taken);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let taken = timeout(COMMAND_TIMEOUT, self.free.clone().acquire_many_owned(wanted)).await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        taken.ok()?.ok()
    }

    fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// What one client has not taken yet.
#[derive(Debug)]
pub(super) struct Output {
    socket: OwnedWriteHalf,
    room: Arc<Room>,
    bytes: BytesMut,
    /// Why nothing can be written any more.
    broken: Option<Error>,
}

impl Output {
    pub(super) fn new(socket: OwnedWriteHalf, room: Arc<Room>) -> Self {
        Self { socket, room, bytes: BytesMut::new(), broken: None }
    }

    /// Gathers an answer that isn't large.
    pub(super) fn say(&mut self, reply: &Reply, protocol: Protocol) {
        reply.encode(&mut self.bytes, protocol);
    }

    /// Gathers answers. If they are large together they have to find room first, and are written before this ends. Those
    /// that find none are lost; `applied`: they were of commands that have left something behind.
    pub(super) async fn tell(&mut self, replies: Vec<Reply>, protocol: Protocol, applied: bool) {
        let bytes: usize = replies.iter().map(Reply::bytes).sum();
        if bytes <= FREE {
            return replies.iter().for_each(|reply| self.say(reply, protocol));
        }
        // Nobody else has to wait for what needs none.
        self.write(false).await;
        let room = self.room.take(bytes).await;
        for reply in replies {
            let reply = if room.is_some() { reply } else { reply.lost(applied) };
            self.say(&reply, protocol);
            if self.bytes.len() >= GATHERED {
                self.write(true).await;
            }
        }
        self.write(true).await;
    }

    /// Writes what was gathered, if that is much.
    pub(super) async fn write_much(&mut self) -> Result<()> {
        if self.bytes.len() >= GATHERED {
            self.write(false).await;
        }
        self.check()
    }

    /// Writes what was gathered.
    pub(super) async fn write_all(&mut self) -> Result<()> {
        self.write(false).await;
        self.check()
    }

    /// Says that there is no more.
    pub(super) async fn shutdown(&mut self) -> Result<()> {
        self.socket.shutdown().await
    }

    fn check(&mut self) -> Result<()> {
        self.broken.take().map_or(Ok(()), Err)
    }

    /// Writes what was gathered. Who has room for it makes way if others wait for that.
    async fn write(&mut self, has_room: bool) {
        let much = self.bytes.len() > CHUNK;
        let mut stalled = Duration::ZERO;
        while !self.bytes.is_empty() && self.broken.is_none() {
            let before = self.bytes.len();
            let done = timeout(LOOK, self.socket.write_all_buf(&mut self.bytes)).await;
            let written = before - self.bytes.len();
            stalled = if written == 0 { stalled + LOOK } else { Duration::ZERO };
            let is_in_the_way = has_room && written < SLOW && self.room.is_wanted();
            self.broken = match done {
                Ok(done) => done.err(),
                Err(_) if stalled >= STALLED || is_in_the_way => Some(self.cut_off()),
                Err(_) => None,
            };
        }
        // What many answers took is given back, and what few took is used again.
        if much || self.broken.is_some() {
            self.bytes = BytesMut::new();
        }
    }

    /// The end is one at once: what the system holds for who doesn't take it goes too.
    fn cut_off(&self) -> Error {
        if let Err(error) = self.socket.as_ref().set_zero_linger() {
            tracing::debug!(%error, "what a client hasn't taken stays for a while");
        }
        ErrorKind::TimedOut.into()
    }
}
