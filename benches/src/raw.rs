//! The limits of bare sockets: requests and responses of fixed sizes on one TCP connection or one QUIC stream.
//!
//! Each server has its own thread and runtime, serves one connection, and ends with it.

mod blocking;
pub(crate) mod quic;

use std::{io, net::SocketAddr, thread};

pub use blocking::BlockingTcp;
pub(crate) use blocking::answer_all as answer_blocking;
use bytes::{Buf, BytesMut};
pub use quic::Quic;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{
        TcpListener, TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Builder,
};

/// The sizes of a request and its response, in bytes. Both begin with a number of eight bytes.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Bytes of a request.
    pub request: usize,
    /// Bytes of a response.
    pub response: usize,
}

impl Shape {
    /// The sizes of a read: a small request and a value.
    pub const READ: Self = Self { request: 64, response: 1000 };
    /// The sizes of a write: a value and a small acknowledgement.
    pub const WRITE: Self = Self { request: 1000, response: 64 };
}

/// Bytes of the number at the start.
const TAG: usize = 8;
/// Bytes that are read at once.
const READ_SIZE: usize = 256 << 10;
/// More than a client ever has in flight in small requests, so that its writes don't wait for its reads.
const TCP_BUFFER: u32 = 1 << 20;

/// Runs a server on its own thread and runtime.
fn on_own_thread<F: Future<Output = io::Result<()>>>(serve: impl FnOnce() -> F + Send + 'static) -> io::Result<()> {
    let run = move || {
        let served = Builder::new_current_thread().enable_all().build().and_then(|runtime| runtime.block_on(serve()));
        if let Err(error) = served {
            eprintln!("a raw server failed: {error}");
        }
    };
    thread::Builder::new().name("raw server".into()).spawn(run).map(drop)
}

/// Answers requests until the stream ends.
async fn serve(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    shape: Shape,
) -> io::Result<()> {
    let mut received = BytesMut::with_capacity(READ_SIZE);
    let mut answers = Vec::new();
    loop {
        received.reserve(READ_SIZE / 2);
        if reader.read_buf(&mut received).await? == 0 {
            return Ok(());
        }
        answers.clear();
        while received.len() >= shape.request {
            answer(&received, shape, &mut answers);
            received.advance(shape.request);
        }
        writer.write_all(&answers).await?;
        writer.flush().await?;
    }
}

fn answer(request: &[u8], shape: Shape, answers: &mut Vec<u8>) {
    answers.extend_from_slice(&request[..TAG]);
    answers.resize(answers.len() + shape.response - TAG, b'.');
}

/// The client's end of one connection.
#[derive(Debug)]
pub struct Pipe<R, W> {
    reader: R,
    writer: W,
    shape: Shape,
    requests: Vec<u8>,
    received: BytesMut,
    sent: u64,
    answered: u64,
}

/// A pipe over TCP.
pub type Tcp = Pipe<OwnedReadHalf, OwnedWriteHalf>;

impl Tcp {
    /// Starts a server, and connects to it.
    pub async fn connect(shape: Shape) -> io::Result<Self> {
        let (found, addr) = std::sync::mpsc::sync_channel(1);
        on_own_thread(move || async move {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            found.send(listener.local_addr()?).map_err(io::Error::other)?;
            let (reader, writer) = prepare(listener.accept().await?.0)?;
            serve(reader, writer, shape).await
        })?;
        Self::connect_to(addr.recv().map_err(io::Error::other)?, shape).await
    }

    /// Connects to a running server.
    pub async fn connect_to(addr: SocketAddr, shape: Shape) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_send_buffer_size(TCP_BUFFER)?;
        let (reader, writer) = prepare(socket.connect(addr).await?)?;
        Ok(Self::new(reader, writer, shape))
    }
}

fn prepare(stream: TcpStream) -> io::Result<(OwnedReadHalf, OwnedWriteHalf)> {
    stream.set_nodelay(true)?;
    Ok(stream.into_split())
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Pipe<R, W> {
    fn new(reader: R, writer: W, shape: Shape) -> Self {
        let received = BytesMut::with_capacity(READ_SIZE);
        Self { reader, writer, shape, requests: Vec::new(), received, sent: 0, answered: 0 }
    }

    /// Makes `operations` requests, at most `in_flight` at a time. All requests that may be in flight are sent in one
    /// write.
    pub async fn run(&mut self, operations: u64, in_flight: u64) -> io::Result<()> {
        let end = self.sent + operations;
        while self.answered < end {
            self.requests.clear();
            while self.sent < end && self.sent - self.answered < in_flight {
                self.requests.extend_from_slice(&self.sent.to_le_bytes());
                self.requests.resize(self.requests.len() + self.shape.request - TAG, b'.');
                self.sent += 1;
            }
            if !self.requests.is_empty() {
                self.writer.write_all(&self.requests).await?;
                self.writer.flush().await?;
            }
            self.receive().await?;
        }
        Ok(())
    }

    async fn receive(&mut self) -> io::Result<()> {
        self.received.reserve(READ_SIZE / 2);
        if self.reader.read_buf(&mut self.received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while self.received.len() >= self.shape.response {
            check(&self.received, self.answered)?;
            self.received.advance(self.shape.response);
            self.answered += 1;
        }
        Ok(())
    }
}

fn check(response: &[u8], number: u64) -> io::Result<()> {
    if response[..TAG] == number.to_le_bytes() { Ok(()) } else { Err(io::Error::other("a wrong answer")) }
}
