//! Makes a [`Door`] a listener of axum: a connection keeps its permit until it is closed or exceeds [`PATIENCE`].

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::serve::Listener;
use rustix::net::sockopt;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    time::{Instant, Sleep, sleep},
};

use crate::door::Door;

/// How long a connection may wait without receiving a byte of an answer. The limit frees the permits of clients that
/// are idle or send their request byte by byte.
const PATIENCE: Duration = Duration::from_secs(30);
/// Messages of the page are small: with the kernel's default, those of many minutes would fit into the buffer of a client
/// that no longer reads.
const SEND_BUFFER: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct PlacedListener(pub(super) Door);

#[derive(Debug)]
pub(super) struct Placed {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Placed {
    fn new(stream: TcpStream, place: OwnedSemaphorePermit) -> Self {
        Self { stream, end: Box::pin(sleep(PATIENCE)), _place: place }
    }

    /// Replaces `Pending` by an error if the connection has exceeded its time.
    fn in_time<T>(&mut self, context: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match done {
            Poll::Pending if self.end.as_mut().poll(context).is_ready() => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            done => done,
        }
    }

    fn wrote(&mut self, context: &mut Context<'_>, done: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(1..)) = done {
            self.end.as_mut().reset(Instant::now() + PATIENCE);
        }
        self.in_time(context, done)
    }
}

/// Lets the kernel end a connection whose peer acknowledges nothing or doesn't read for [`PATIENCE`].
fn limit(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(stream, PATIENCE.as_millis() as u32)?;
    Ok(())
}

impl Listener for PlacedListener {
    type Io = Placed;
    type Addr = Option<SocketAddr>;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, place) = self.0.next().await;
        // It fails only if the connection has ended.
        let _ = limit(&stream);
        let addr = stream.peer_addr().ok();
        (Placed::new(stream, place), addr)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr().map(Some)
    }
}

impl AsyncRead for Placed {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, read: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_read(context, read);
        this.in_time(context, done)
    }
}

impl AsyncWrite for Placed {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.wrote(context, done)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        all: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_write_vectored(context, all);
        this.wrote(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        time::timeout,
    };

    use super::*;

    async fn connected(door: Door) -> (PlacedListener, TcpStream, Placed) {
        let mut listener = PlacedListener(door);
        let client = TcpStream::connect(listener.local_addr().unwrap().unwrap()).await.unwrap();
        let (placed, _) = listener.accept().await;
        (listener, client, placed)
    }

    async fn door() -> Door {
        Door::new(TcpListener::bind("127.0.0.1:0").await.unwrap(), 1, "full\n")
    }

    async fn is_cut_off(placed: &mut Placed) -> bool {
        placed.read_u8().await.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_loses_its_place() {
        let (listener, _client, mut placed) = connected(door().await).await;
        let places = listener.0.places().clone();
        assert_eq!(places.taken(), 1);
        assert!(is_cut_off(&mut placed).await);
        drop(placed);
        assert_eq!(places.taken(), 0);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_peer_that_stops_reading_is_limited() {
        let (_listener, _client, placed) = connected(door().await).await;
        // The kernel doubles the size, for its own records.
        assert!(sockopt::socket_send_buffer_size(&placed.stream).unwrap() <= 2 * SEND_BUFFER);
        assert_eq!(sockopt::tcp_user_timeout(&placed.stream).unwrap(), 30_000);
    }

    /// Bytes of a request don't extend the deadline: a request sent byte by byte has the same deadline as another.
    #[tokio::test(start_paused = true)]
    async fn answers_renew_a_connection_and_requests_do_not() {
        let (_listener, mut client, mut placed) = connected(door().await).await;
        let part = PATIENCE * 2 / 3;
        assert!(timeout(part, placed.read_u8()).await.is_err());
        placed.write_all(b"an answer").await.unwrap();
        assert!(timeout(part, placed.read_u8()).await.is_err());
        client.write_all(b"G").await.unwrap();
        tokio::time::resume();
        assert_eq!(placed.read_u8().await.unwrap(), b'G');
        tokio::time::pause();
        let began = Instant::now();
        assert!(is_cut_off(&mut placed).await);
        assert!(began.elapsed() <= PATIENCE - part);
    }
}
