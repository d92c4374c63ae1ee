//! The answers to one client: gathered, and written as the socket accepts them. The rest waits in the backlog, or
//! blocks the connection if the backlog is full. The large answers of all connections together are limited.

use std::{
    io::{self, Error, ErrorKind},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use bytes::{Buf, BytesMut};
use tokio::{
    io::AsyncWriteExt,
    net::tcp::OwnedWriteHalf,
    task::coop,
    time::{Instant, sleep_until, timeout},
};

use super::{
    backlog::Backlog,
    connection::{CHUNK, FREE, STALLED},
    reply::{Protocol, Reply},
    room::{Room, Taken},
};

/// Answers are written once this many bytes are gathered, even if more commands wait.
const GATHERED: usize = 64 << 10;
/// The interval between two checks of a client's progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes per check interval. A client that holds permits for large answers and receives less is disconnected if other
/// clients wait for permits.
const SLOW: u64 = 1 << 20;

/// How long this node has waited for a client that has answers to receive. The time in which it runs the client's
/// commands doesn't count. Reset whenever the client receives bytes.
#[derive(Debug, Default)]
struct Patience {
    spent: Duration,
}

impl Patience {
    fn left(&self) -> Duration {
        STALLED.saturating_sub(self.spent)
    }

    fn spend(&mut self, time: Duration) {
        self.spent = self.spent.saturating_add(time);
    }

    fn renew(&mut self) {
        self.spent = Duration::ZERO;
    }
}

/// The missing permits, in KiB.
#[derive(Debug)]
pub(super) struct Lacking(usize);

#[derive(Debug)]
pub(super) struct Output {
    socket: OwnedWriteHalf,
    room: Arc<Room>,
    backlog: Backlog,
    /// Answers gathered after those in the backlog.
    bytes: BytesMut,
    /// Whether answers may wait in the backlog; answers to unauthenticated clients may not.
    may_wait: bool,
    written: u64,
    patience: Patience,
    /// The error after which nothing can be written.
    broken: Option<Error>,
}

impl Output {
    pub(super) fn new(socket: OwnedWriteHalf, room: Arc<Room>, backlog: Arc<Room>) -> Self {
        let backlog = Backlog::new(backlog);
        let (bytes, patience) = (BytesMut::new(), Patience::default());
        Self { socket, room, backlog, bytes, may_wait: false, written: 0, patience, broken: None }
    }

    /// Sets whether later answers may wait in the backlog.
    pub(super) fn let_wait(&mut self, may_wait: bool) {
        self.may_wait = may_wait;
    }

    /// The remaining time to wait for this client if it receives nothing.
    pub(super) fn patience(&self) -> Duration {
        self.patience.left()
    }

    /// Records time spent waiting for this client without progress.
    pub(super) fn waited(&mut self, time: Duration) {
        self.patience.spend(time);
    }

    pub(super) fn say(&mut self, reply: &Reply, protocol: Protocol) {
        reply.encode(&mut self.bytes, protocol);
    }

    /// Gathers answers. Answers that are large together need permits, which are returned when this ends. Without
    /// permits, answers that hold values are replaced by errors; `applied`: their commands have taken effect.
    pub(super) async fn tell(&mut self, replies: Vec<Reply>, protocol: Protocol, applied: bool) {
        let kib = room_for(&replies);
        if kib == 0 {
            return replies.iter().for_each(|reply| self.say(reply, protocol));
        }
        // Earlier answers, which need no permits, are sent first.
        self.pass_on(false).await;
        match self.room.take_for_kept(kib).await {
            Some(room) => self.tell_within(room, replies, protocol).await,
            None => replies.into_iter().for_each(|reply| self.say(&reply.lost(applied), protocol)),
        }
    }

    /// Gathers an answer if it needs no permits, or if `room` or the free permits suffice. Otherwise drops the answer
    /// and returns the missing permits.
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

    /// Waits for permits. `None` after the timeout.
    pub(super) async fn wait(&mut self, Lacking(kib): Lacking) -> Option<Taken> {
        self.pass_on(false).await;
        self.room.take(kib).await
    }

    /// Acquires permits for answers if they are available now.
    pub(super) fn try_room(&self, replies: &[Reply]) -> Option<Taken> {
        self.room.try_take(room_for(replies))
    }

    /// Gathers answers whose permits are in `room`, and returns the permits.
    pub(super) async fn tell_within(&mut self, room: Taken, replies: Vec<Reply>, protocol: Protocol) {
        for reply in replies {
            self.tell_one(&room, reply, protocol).await;
        }
        self.give_back(room).await;
    }

    /// Gathers one of the answers whose permits are in `room`.
    pub(super) async fn tell_one(&mut self, room: &Taken, reply: Reply, protocol: Protocol) {
        self.say(&reply, protocol);
        // The encoded bytes are a copy: until the answer is dropped, it is in memory twice.
        drop(reply);
        if self.bytes.len() >= GATHERED {
            self.pass_on(room.num_permits() > 0).await;
        }
    }

    /// Writes the answers that hold permits, or moves them to the backlog, and returns the permits.
    pub(super) async fn give_back(&mut self, room: Taken) {
        if room.num_permits() > 0 {
            self.pass_on(true).await;
        }
    }

    /// Whether the gathered answers must be written before more are gathered.
    pub(super) fn is_much(&self) -> bool {
        self.bytes.len() >= GATHERED
    }

    /// Writes the gathered answers, or moves them to the backlog, if they reach [`GATHERED`].
    pub(super) async fn write_much(&mut self) -> io::Result<()> {
        if self.is_much() {
            self.pass_on(false).await;
        }
        self.check()
    }

    /// Writes the bytes that the socket accepts now. The rest waits in the backlog; without capacity, this waits until
    /// everything is written.
    pub(super) async fn write_ready(&mut self) -> io::Result<()> {
        self.pass_on(false).await;
        self.check()
    }

    pub(super) async fn write_all(&mut self) -> io::Result<()> {
        self.write_out(false).await;
        self.check()
    }

    /// Waits until the socket is writable, and writes. Returns whether it accepted bytes: wakeups may be spurious.
    pub(super) async fn write_some(&mut self) -> io::Result<bool> {
        let before = self.written;
        self.write_step().await;
        self.check()?;
        Ok(self.written > before)
    }

    /// Writes answers until `end`, and waits for `end` even when none are left. Fails when the client has made no
    /// progress for too long.
    pub(super) async fn write_until(&mut self, end: Instant) -> io::Result<()> {
        let mut ended = pin!(sleep_until(end));
        let mut is_over = false;
        while !is_over && !self.is_empty() {
            let began = Instant::now();
            let last = began + self.patience();
            let took = tokio::select! {
                took = self.write_some() => took?,
                () = &mut ended => {
                    is_over = true;
                    false
                }
                () = sleep_until(last) => {
                    self.cut_off();
                    return self.check();
                }
            };
            if !took {
                self.waited(began.elapsed());
            }
        }
        if !is_over {
            ended.await;
        }
        self.check()
    }

    /// Writes everything, then the end of the stream.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        self.write_all().await?;
        self.socket.shutdown().await
    }

    pub(super) fn is_empty(&self) -> bool {
        self.backlog.is_empty() && self.bytes.is_empty()
    }

    /// Whether the connection is broken, so that gathered answers are lost.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    fn check(&mut self) -> io::Result<()> {
        self.broken.take().map_or(Ok(()), Err)
    }

    /// Writes the bytes that the socket accepts now. The rest stays gathered if it is at most [`FREE`], or moves to the
    /// backlog if that has capacity. Otherwise this waits until everything is written.
    async fn pass_on(&mut self, has_room: bool) {
        self.write_now();
        if self.bytes.len() > FREE && !self.is_broken() && !(self.may_wait && self.backlog.take(&mut self.bytes)) {
            self.write_out(has_room).await;
        }
    }

    /// Writes the bytes that the socket accepts at once: nearly always all of them. Needs no timer.
    fn write_now(&mut self) {
        if self.is_broken() {
            return;
        }
        let before = self.written;
        let written = &mut self.written;
        let mut write = |bytes: &[u8]| {
            let done = self.socket.try_write(bytes)?;
            *written += done as u64;
            Ok(done)
        };
        let mut much = !self.backlog.is_empty();
        let mut done = self.backlog.write(&mut write).map(|_| ());
        if done.is_ok() && self.backlog.is_empty() && !self.bytes.is_empty() {
            much |= self.bytes.len() > CHUNK;
            done = write(&self.bytes).map(|done| self.bytes.advance(done));
        }
        if self.written > before || self.is_empty() {
            self.patience.renew();
        }
        // Frees the buffer if it held much, and reuses it otherwise.
        if much && self.is_empty() {
            self.bytes = BytesMut::new();
        }
        self.broken = done.err().filter(|error| error.kind() != ErrorKind::WouldBlock);
        self.drop_if_broken();
    }

    async fn write_step(&mut self) {
        // Without this, a client that receives answers as fast as they are written would starve other connections.
        coop::consume_budget().await;
        match self.socket.writable().await {
            Ok(()) => self.write_now(),
            Err(error) => self.broken = Some(error),
        }
    }

    /// Writes everything. Disconnects a client that stalls, or that holds permits and is slow while others wait for
    /// permits.
    async fn write_out(&mut self, has_room: bool) {
        self.write_now();
        let mut stalled = Duration::ZERO;
        while !self.is_empty() && !self.is_broken() {
            let before = self.written;
            let all = async {
                while !self.is_empty() && !self.is_broken() {
                    self.write_step().await;
                }
            };
            let in_time = timeout(PROGRESS_INTERVAL, all).await.is_ok();
            let written = self.written - before;
            stalled = if written == 0 { stalled + PROGRESS_INTERVAL } else { Duration::ZERO };
            let is_in_the_way = has_room && written < SLOW && self.room.is_wanted();
            if !in_time && (stalled >= STALLED || is_in_the_way) {
                self.cut_off();
            }
        }
    }

    fn drop_if_broken(&mut self) {
        if self.is_broken() {
            self.backlog.clear();
            self.bytes = BytesMut::new();
        }
    }

    /// Ends the connection at once: the kernel drops the bytes that the client hasn't received.
    pub(super) fn cut_off(&mut self) {
        if let Err(error) = self.socket.as_ref().set_zero_linger() {
            tracing::debug!(%error, "could not discard the unsent answers of a client");
        }
        self.broken = Some(ErrorKind::TimedOut.into());
        self.drop_if_broken();
    }
}

/// The permits that answers need, in KiB: none unless they are large together.
fn room_for(replies: &[Reply]) -> usize {
    let bytes: usize = replies.iter().map(Reply::bytes).sum();
    if bytes > FREE { bytes >> 10 } else { 0 }
}

#[cfg(test)]
mod tests;
