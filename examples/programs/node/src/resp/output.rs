//! Answers on their way to one client: gathered, written at once, and of large ones no more at all connections together than
//! there is room for.

use std::{
    io::{self, Error, ErrorKind},
    sync::Arc,
    time::Duration,
};

use bytes::{Buf, BytesMut};
use tokio::{io::AsyncWriteExt, net::tcp::OwnedWriteHalf, time::timeout};

use super::{
    connection::{CHUNK, FREE, STALLED},
    reply::{Protocol, Reply},
    room::{Room, Taken},
};

/// Answers are written once this many bytes are gathered, though more commands wait.
const GATHERED: usize = 64 << 10;
/// Between two looks at the progress of a client that is written to.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// A client that holds room for large answers and takes fewer bytes than this between two looks is cut off if other
/// clients wait for the room.
const SLOW: usize = 1 << 20;

/// The KiB of room that are lacking.
#[derive(Debug)]
pub(super) struct Lacking(usize);

/// Answers that one client has not taken yet.
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

    /// Gathers answers. If they are large together, they have to find room first, and are written before this returns.
    /// Those that find none are dropped; `applied`: they belong to commands that have taken effect.
    pub(super) async fn tell(&mut self, replies: Vec<Reply>, protocol: Protocol, applied: bool) {
        let kib = room_for(&replies);
        if kib == 0 {
            return replies.iter().for_each(|reply| self.say(reply, protocol));
        }
        // Answers that need no room don't wait for it.
        self.write(false).await;
        match self.room.take_for_kept(kib).await {
            Some(room) => self.tell_within(room, replies, protocol).await,
            None => replies.into_iter().for_each(|reply| self.say(&reply.lost(applied), protocol)),
        }
    }

    /// Gathers an answer if there is room for it now, or in `room`. If there is none, drops the answer and returns what
    /// room is lacking.
    pub(super) async fn tell_now(
        &mut self,
        room: Option<Taken>,
        reply: Reply,
        protocol: Protocol,
    ) -> Result<(), Lacking> {
        let replies = vec![reply];
        let kib = room_for(&replies);
        let room = self.room.try_take_with(room, kib).ok_or(Lacking(kib))?;
        self.tell_within(room, replies, protocol).await;
        Ok(())
    }

    /// Waits for room. `None`: that took too long.
    pub(super) async fn wait(&mut self, Lacking(kib): Lacking) -> Option<Taken> {
        self.write(false).await;
        self.room.take(kib).await
    }

    /// Takes room for answers, if there is any now.
    pub(super) fn try_room(&self, replies: &[Reply]) -> Option<Taken> {
        self.room.try_take(room_for(replies))
    }

    /// Gathers answers that have room, if they need any.
    pub(super) async fn tell_within(&mut self, room: Taken, replies: Vec<Reply>, protocol: Protocol) {
        for reply in replies {
            self.tell_one(&room, reply, protocol).await;
        }
        self.give_back(room).await;
    }

    /// Gathers one of the answers that have room.
    pub(super) async fn tell_one(&mut self, room: &Taken, reply: Reply, protocol: Protocol) {
        self.say(&reply, protocol);
        // Its bytes are in memory twice now.
        drop(reply);
        if self.bytes.len() >= GATHERED {
            self.write(room.num_permits() > 0).await;
        }
    }

    /// Writes all answers that have room, and gives the room back.
    pub(super) async fn give_back(&mut self, room: Taken) {
        if room.num_permits() > 0 {
            self.write(true).await;
        }
    }

    /// Whether the gathered answers are to be written before more are gathered.
    pub(super) fn is_much(&self) -> bool {
        self.bytes.len() >= GATHERED
    }

    /// Writes what was gathered, if that is much.
    pub(super) async fn write_much(&mut self) -> io::Result<()> {
        if self.is_much() {
            self.write(false).await;
        }
        self.check()
    }

    /// Writes what was gathered.
    pub(super) async fn write_all(&mut self) -> io::Result<()> {
        self.write(false).await;
        self.check()
    }

    /// Tells the client that no more answers follow.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        self.socket.shutdown().await
    }

    /// Whether the connection is broken, so that gathered answers go nowhere.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    fn check(&mut self) -> io::Result<()> {
        self.broken.take().map_or(Ok(()), Err)
    }

    /// Writes what was gathered. A client with room is cut off if it is slow and others wait for the room.
    async fn write(&mut self, has_room: bool) {
        let much = self.bytes.len() > CHUNK;
        // Nearly always the socket takes all of it at once, and no clock is needed. An error comes again below.
        if !self.bytes.is_empty()
            && self.broken.is_none()
            && let Ok(written) = self.socket.try_write(&self.bytes)
        {
            self.bytes.advance(written);
        }
        let mut stalled = Duration::ZERO;
        while !self.bytes.is_empty() && self.broken.is_none() {
            let before = self.bytes.len();
            let done = timeout(PROGRESS_INTERVAL, self.socket.write_all_buf(&mut self.bytes)).await;
            let written = before - self.bytes.len();
            stalled = if written == 0 { stalled + PROGRESS_INTERVAL } else { Duration::ZERO };
            let is_in_the_way = has_room && written < SLOW && self.room.is_wanted();
            self.broken = match done {
                Ok(done) => done.err(),
                Err(_) if stalled >= STALLED || is_in_the_way => Some(self.cut_off()),
                Err(_) => None,
            };
        }
        // Memory of many answers is freed, and memory of few is used again.
        if much || self.broken.is_some() {
            self.bytes = BytesMut::new();
        }
    }

    /// Ends the connection at once: the system drops the bytes that the client hasn't taken.
    fn cut_off(&self) -> Error {
        if let Err(error) = self.socket.as_ref().set_zero_linger() {
            tracing::debug!(%error, "what a client hasn't taken stays for a while");
        }
        ErrorKind::TimedOut.into()
    }
}

/// The room that answers need, in KiB: none if they aren't large together.
fn room_for(replies: &[Reply]) -> usize {
    let bytes: usize = replies.iter().map(Reply::bytes).sum();
    if bytes > FREE { bytes >> 10 } else { 0 }
}
