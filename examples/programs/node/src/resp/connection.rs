//! Serves one connection: reads commands, executes them, and writes the answers.

use std::{
    io::{ErrorKind, Result},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use bytes::{Buf, BufMut, BytesMut};
use tokio::{
    io::AsyncReadExt,
    net::{TcpStream, tcp::OwnedReadHalf},
    sync::OwnedSemaphorePermit,
    task::coop,
    time::{Instant, sleep_until},
};

use super::{
    PortShared,
    client::{Client, Then},
    frame::{Frames, Next},
    plain,
    reply::Reply,
};

/// Maximum bytes per read without permits.
pub(super) const CHUNK: usize = 16 << 10;
/// Bytes that every connection may hold without permits: of its command and its queued commands together, and as many
/// of answers.
pub(super) const FREE: usize = 64 << 10;
/// A client is disconnected if this node waits for it this long without receiving a byte of its large command, or
/// without sending it a byte of its answers.
pub(super) const STALLED: Duration = Duration::from_secs(30);
/// How often WAIT counts the serving members.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of plain commands per step. After 128 steps (tokio's budget) other connections have their turn.
const PLAIN_RUN: usize = 16;

pub(super) struct Connection {
    socket: OwnedReadHalf,
    shared: Arc<PortShared>,
    client: Client,
    input: BytesMut,
    frames: Frames,
    /// Permits for a large command and for the queued commands of a transaction, one per KiB.
    room: Option<OwnedSemaphorePermit>,
}

enum Idle {
    /// More bytes are needed: the incomplete command will have at least this many.
    Wants(usize),
    Over,
}

impl Connection {
    pub(super) fn new(socket: TcpStream, shared: Arc<PortShared>, id: u64) -> Self {
        let (socket, output) = socket.into_split();
        let client = Client::new(shared.clone(), id, output);
        Self { socket, shared, client, input: BytesMut::new(), frames: Frames::default(), room: None }
    }

    /// Serves the connection until one side ends it.
    pub(super) async fn run(mut self) -> Result<()> {
        // Without this, Nagle's algorithm could delay an answer in the kernel.
        self.socket.as_ref().set_nodelay(true)?;
        loop {
            let idle = self.commands().await?;
            self.client.flush().await;
            self.client.output.write_ready().await?;
            let known = match idle {
                Idle::Wants(known) => known,
                Idle::Over => {
                    self.take_no_more();
                    return self.client.output.shutdown().await;
                }
            };
            if !self.read(known).await? {
                self.take_no_more();
                // The client may have closed only its sending side, and still read answers.
                return self.client.output.write_all().await;
            }
        }
    }

    /// Frees the input buffer and its permits, since the client may take a long time to receive its last answers.
    fn take_no_more(&mut self) {
        self.input = BytesMut::new();
        self.room = None;
    }

    async fn commands(&mut self) -> Result<Idle> {
        loop {
            while self.plain() {
                // Without this, an endless stream of plain commands would starve other connections.
                coop::consume_budget().await;
                self.client.output.write_much().await?;
            }
            let bounds = self.client.bounds();
            let words = match self.frames.next(&mut self.input, &bounds) {
                Next::Command(words) => words,
                Next::Part(known) => {
                    return Ok(if self.hold(known).await { Idle::Wants(known) } else { Idle::Over });
                }
                Next::Bad(text) => {
                    self.client.say(Reply::error(format_args!("Protocol error: {text}")));
                    return Ok(Idle::Over);
                }
            };
            match self.client.execute(&words).await {
                Then::Next => {}
                Then::Leave => return Ok(Idle::Over),
                Then::Wait { copies, ms } => {
                    if !self.wait(copies, ms).await? {
                        return Ok(Idle::Over);
                    }
                }
            }
            drop(words);
            if !self.hold(0).await {
                return Ok(Idle::Over);
            }
            self.client.output.write_much().await?;
        }
    }

    /// Runs plain commands at the front of the input, at most [`PLAIN_RUN`], up to the first that can't run at once.
    /// Returns whether any ran.
    fn plain(&mut self) -> bool {
        if self.room.is_some() || !self.frames.is_new() {
            return false;
        }
        let bounds = self.client.bounds();
        let mut done = 0;
        for _ in 0..PLAIN_RUN {
            let Some((command, len)) = plain::first(&self.input[done..], &bounds) else { break };
            if !self.client.try_plain(command) {
                break;
            }
            done += len;
        }
        self.input.advance(done);
        done > 0
    }

    /// Acquires permits for a command of `known` bytes and for the queued commands. Returns false if the connection
    /// must end: it got no permits in time, or it is broken.
    async fn hold(&mut self, known: usize) -> bool {
        let wanted = known + self.client.queued_bytes();
        let Some(more) = wanted.checked_sub(FREE) else {
            if self.room.take().is_some() {
                // Frees the buffer that has grown for large commands.
                self.input = BytesMut::from(&self.input[..]);
            }
            return true;
        };
        let held = self.room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let Some(lacking) = (more >> 10).checked_sub(held).filter(|lacking| *lacking > 0) else { return true };
        // Send the answers of earlier commands before waiting: the holders of the permits may depend on these answers,
        // for example as other connections of the same application.
        self.client.flush().await;
        if self.client.output.write_ready().await.is_err() {
            return false;
        }
        let Some(taken) = self.shared.commands.take(lacking).await else {
            self.client.say(Reply::Error("BUSY too many bytes of large commands are in flight".into()));
            return false;
        };
        match &mut self.room {
            Some(room) => room.merge(taken),
            None => self.room = Some(taken),
        }
        true
    }

    /// Reads more bytes. Returns false at the end of the stream.
    async fn read(&mut self, known: usize) -> Result<bool> {
        self.input.reserve(known.saturating_sub(self.input.len()).max(CHUNK));
        // Without permits, read at most a chunk at a time, however large the buffer is.
        let most = if self.room.is_some() { usize::MAX } else { CHUNK };
        let mut input = (&mut self.input).limit(most);
        let mut reading = pin!(self.socket.read_buf(&mut input));
        let output = &mut self.client.output;
        let last = self.room.as_ref().map(|_| Instant::now() + STALLED);
        loop {
            if last.is_none() && output.is_empty() {
                return Ok(reading.await? > 0);
            }
            let began = Instant::now();
            let patience = (!output.is_empty()).then(|| began + output.patience());
            let end = last.into_iter().chain(patience).min().unwrap_or(began + STALLED);
            tokio::select! {
                read = &mut reading => {
                    output.waited(began.elapsed());
                    return Ok(read? > 0);
                }
                took = output.write_some(), if !output.is_empty() => {
                    if !took? {
                        output.waited(began.elapsed());
                    }
                }
                () = sleep_until(end) => {
                    output.cut_off();
                    return Err(ErrorKind::TimedOut.into());
                }
            }
        }
    }

    /// Executes WAIT. Returns whether the connection is still open.
    async fn wait(&mut self, copies: i64, ms: u64) -> Result<bool> {
        self.client.output.write_ready().await?;
        let end = (ms > 0).then(|| Instant::now() + Duration::from_millis(ms.min(u64::from(u32::MAX))));
        loop {
            let others = self.client.copies();
            if others >= copies || end.is_some_and(|end| Instant::now() >= end) {
                self.client.say(Reply::Number(others));
                return Ok(true);
            }
            let next = Instant::now() + POLL_INTERVAL;
            self.client.output.write_until(end.map_or(next, |end| end.min(next))).await?;
            if self.is_gone() {
                return Ok(false);
            }
        }
    }

    /// Whether the end of the stream was received. Checks only while the input is small, and adds received bytes to it.
    fn is_gone(&mut self) -> bool {
        self.input.len() < CHUNK && matches!(self.socket.try_read_buf(&mut (&mut self.input).limit(CHUNK)), Ok(0))
    }
}
