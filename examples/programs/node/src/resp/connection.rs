//! Bytes of one connection: in, through its client's commands, and out.

use std::{
    io::{Error, ErrorKind, Result},
    sync::Arc,
    time::Duration,
};

use bytes::{Buf, BufMut, BytesMut};
use tokio::{
    io::AsyncReadExt,
    net::{TcpStream, tcp::OwnedReadHalf},
    sync::OwnedSemaphorePermit,
    task::coop,
    time::{Instant, sleep_until, timeout},
};

use super::{
    Shared,
    client::{Client, Then},
    frame::{Frames, Next},
    plain,
    reply::Reply,
};

/// Bytes that are read at a time.
pub(super) const CHUNK: usize = 16 << 10;
/// Bytes of a command, of a transaction, or of answers that every connection may hold.
pub(super) const FREE: usize = 64 << 10;
/// Whoever sends a large command, or takes in answers, so slowly that nothing moves for so long, is cut off.
pub(super) const STALLED: Duration = Duration::from_secs(30);
/// How often somebody who waits for members is looked after.
const LOOK: Duration = Duration::from_millis(100);
/// Plain commands that count as one step of a connection: after 128 steps (tokio's budget) other connections have their turn.
const PLAIN_RUN: usize = 16;

/// A connection.
pub(super) struct Connection {
    socket: OwnedReadHalf,
    shared: Arc<Shared>,
    client: Client,
    input: BytesMut,
    frames: Frames,
    /// Room for what is large, and for how many KiB.
    room: Option<OwnedSemaphorePermit>,
}

/// Why there is no more to do for now.
enum Idle {
    /// Until more bytes come; so many belong to the command that isn't whole.
    Wants(usize),
    /// For good.
    Over,
}

impl Connection {
    pub(super) fn new(socket: TcpStream, shared: Arc<Shared>, id: u64) -> Self {
        let (socket, output) = socket.into_split();
        let client = Client::new(shared.clone(), id, output);
        Self { socket, shared, client, input: BytesMut::new(), frames: Frames::default(), room: None }
    }

    /// Serves it until one side ends it.
    pub(super) async fn run(mut self) -> Result<()> {
        // An answer that waits for the next one would wait for a timer.
        self.socket.as_ref().set_nodelay(true)?;
        loop {
            let idle = self.commands().await?;
            self.client.flush().await;
            self.client.output.write_all().await?;
            let known = match idle {
                Idle::Wants(known) => known,
                Idle::Over => return self.client.output.shutdown().await,
            };
            if !self.read(known).await? {
                return Ok(());
            }
        }
    }

    /// Makes all commands that are there.
    async fn commands(&mut self) -> Result<Idle> {
        loop {
            while self.plain() {
                // Plain commands that come without end would starve other connections without this.
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

    /// Does plain commands that stand first, a few at a time. Whether there were any.
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

    /// Sees to it that there is room for a command of which so many bytes are known, and for what its client has queued.
    /// Whether there is: else it has been told.
    async fn hold(&mut self, known: usize) -> bool {
        let wanted = known + self.client.queued_bytes();
        let Some(more) = wanted.checked_sub(FREE) else {
            if self.room.take().is_some() {
                // What large commands came in goes with them.
                self.input = BytesMut::from(&self.input[..]);
            }
            return true;
        };
        let held = self.room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let Some(lacking) = (more >> 10).checked_sub(held).filter(|lacking| *lacking > 0) else { return true };
        // Others wait for these answers perhaps, and free what is waited for.
        self.client.flush().await;
        if self.client.output.write_all().await.is_err() {
            return false;
        }
        let Some(taken) = self.shared.commands.take(lacking).await else {
            self.client.say(Reply::Error("BUSY too many bytes of large commands are on their way".into()));
            return false;
        };
        match &mut self.room {
            Some(room) => room.merge(taken),
            None => self.room = Some(taken),
        }
        true
    }

    /// Takes in more of what comes. Whether there may be more behind it.
    async fn read(&mut self, known: usize) -> Result<bool> {
        self.input.reserve(known.saturating_sub(self.input.len()).max(CHUNK));
        let read = if self.room.is_some() {
            let read = timeout(STALLED, self.socket.read_buf(&mut self.input)).await;
            read.map_err(|_| Error::from(ErrorKind::TimedOut))??
        } else {
            // No more than a chunk at a time, whatever room there happens to be.
            self.socket.read_buf(&mut (&mut self.input).limit(CHUNK)).await?
        };
        Ok(read > 0)
    }

    /// Waits for members. Whether the connection is still there.
    async fn wait(&mut self, copies: i64, ms: u64) -> Result<bool> {
        self.client.output.write_all().await?;
        let end = (ms > 0).then(|| Instant::now() + Duration::from_millis(ms.min(u64::from(u32::MAX))));
        loop {
            let others = self.client.copies();
            if others >= copies || end.is_some_and(|end| Instant::now() >= end) {
                self.client.say(Reply::Number(others));
                return Ok(true);
            }
            let next = Instant::now() + LOOK;
            sleep_until(end.map_or(next, |end| end.min(next))).await;
            if self.is_gone() {
                return Ok(false);
            }
        }
    }

    /// Whether the other side has closed the connection and sent nothing before.
    fn is_gone(&mut self) -> bool {
        self.input.len() < CHUNK && matches!(self.socket.try_read_buf(&mut (&mut self.input).limit(CHUNK)), Ok(0))
    }
}
