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

/// Answers are written once there are so many bytes of them, though there is more to do.
const GATHERED: usize = 64 << 10;
/// How often somebody who is written to is looked after.
const LOOK: Duration = Duration::from_secs(1);
/// Who has room for large answers and takes fewer bytes between two looks is cut off if others wait for that.
const SLOW: usize = 1 << 20;

/// So many KiB of room.
#[derive(Debug)]
pub(super) struct Lacking(usize);

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
        let kib = room_for(&replies);
        if kib == 0 {
            return replies.iter().for_each(|reply| self.say(reply, protocol));
        }
        // Nobody else has to wait for what needs none.
        self.write(false).await;
        match self.room.take_for_kept(kib).await {
            Some(room) => self.tell_within(room, replies, protocol).await,
            None => replies.into_iter().for_each(|reply| self.say(&reply.lost(applied), protocol)),
        }
    }

    /// Gathers an answer if there is room for it now, or in `room`. If not it is gone, and what room it lacks is told.
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

    /// Waits for room. `None`: for too long.
    pub(super) async fn wait(&mut self, Lacking(kib): Lacking) -> Option<Taken> {
        self.write(false).await;
        self.room.take(kib).await
    }

    /// Room for answers, if there is any now.
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
        // Its bytes are here twice now.
        drop(reply);
        if self.bytes.len() >= GATHERED {
            self.write(room.num_permits() > 0).await;
        }
    }

    /// Nothing that has room is left behind.
    pub(super) async fn give_back(&mut self, room: Taken) {
        if room.num_permits() > 0 {
            self.write(true).await;
        }
    }

    /// Whether what was gathered is to be written before there is more.
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

    /// Says that there is no more.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        self.socket.shutdown().await
    }

    /// Whether nothing that is gathered goes anywhere any more.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    fn check(&mut self) -> io::Result<()> {
        self.broken.take().map_or(Ok(()), Err)
    }

    /// Writes what was gathered. Who has room for it makes way if others wait for that.
    async fn write(&mut self, has_room: bool) {
        let much = self.bytes.len() > CHUNK;
        // Nearly always all of it is taken at once, and no clock is needed. An error comes again below.
        if !self.bytes.is_empty()
            && self.broken.is_none()
            && let Ok(written) = self.socket.try_write(&self.bytes)
        {
            self.bytes.advance(written);
        }
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

/// The room that answers need, in KiB: none if they aren't large together.
fn room_for(replies: &[Reply]) -> usize {
    let bytes: usize = replies.iter().map(Reply::bytes).sum();
    if bytes > FREE { bytes >> 10 } else { 0 }
}
