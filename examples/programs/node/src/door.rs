//! A listener for a port with a limited number of connections, which sends a refusal to clients above the limit.

use std::{collections::VecDeque, io, sync::Arc, time::Duration};

use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep},
};

use crate::seldom::Seldom;

/// The pause before accepting again after a failure, which is usually a shortage of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of refused clients whose sockets stay open: a client that has already sent something would lose the refusal
/// if its socket were closed at once.
const TURNED_AWAY: usize = 16;

/// A listener that accepts a limited number of connections at a time.
#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    places: Arc<Places>,
    /// The text sent to a client above the limit.
    refusal: &'static str,
    /// The most recently refused clients, oldest first.
    turned_away: VecDeque<TcpStream>,
    failures: Seldom,
}

/// The permits of a door, one per connection.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    all: usize,
}

impl Places {
    pub(super) fn taken(&self) -> usize {
        self.all - self.free.available_permits()
    }

    pub(super) fn all(&self) -> usize {
        self.all
    }
}

impl Door {
    pub(super) fn new(listener: TcpListener, places: usize, refusal: &'static str) -> Self {
        let places = Arc::new(Places { free: Arc::new(Semaphore::new(places)), all: places });
        Self { listener, places, refusal, turned_away: VecDeque::new(), failures: Seldom::default() }
    }

    pub(super) fn places(&self) -> &Arc<Places> {
        &self.places
    }

    pub(super) fn local_addr(&self) -> io::Result<std::net::SocketAddr> {
        self.listener.local_addr()
    }

    /// Waits for the next connection within the limit, and refuses the others. The connection counts towards the limit
    /// until the returned permit is dropped.
    pub(super) async fn next(&mut self) -> (TcpStream, OwnedSemaphorePermit) {
        loop {
            let socket = match self.listener.accept().await {
                Ok((socket, _)) => socket,
                Err(error) => {
                    self.failed(&error);
                    sleep(PAUSE).await;
                    continue;
                }
            };
            match self.places.free.clone().try_acquire_owned() {
                Ok(place) => return (socket, place),
                Err(_) => self.turn_away(socket).await,
            }
        }
    }

    /// Warns at most once a minute: clients that exhaust the descriptors can cause any number of failures.
    fn failed(&mut self, error: &io::Error) {
        if self.failures.is_due(Instant::now()) {
            tracing::warn!(%error, addr = ?self.local_addr().ok(), "could not accept a connection; retrying");
        }
    }

    /// Sends the refusal and ends the stream. The last [`TURNED_AWAY`] sockets to which it was sent stay open.
    async fn turn_away(&mut self, mut socket: TcpStream) {
        // The send buffer of a new socket has space for this text. If the write fails, the client is gone.
        if socket.try_write(self.refusal.as_bytes()).is_ok() && socket.shutdown().await.is_ok() {
            self.turned_away.push_back(socket);
        }
        if self.turned_away.len() > TURNED_AWAY {
            self.turned_away.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn read(socket: &mut TcpStream) -> String {
        let mut text = String::new();
        socket.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn one_client_too_many_is_told_so_and_the_place_is_free_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut door = Door::new(listener, 1, "full\n");
        let addr = door.local_addr().unwrap();
        let places = door.places().clone();
        let _first = TcpStream::connect(addr).await.unwrap();
        let (_, place) = door.next().await;
        assert_eq!((places.taken(), places.all()), (1, 1));
        let (ended, mut end) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            let next = door.next().await;
            ended.send(next).unwrap();
        });
        // Each client has already sent a request.
        let mut refused = Vec::new();
        for _ in 0..TURNED_AWAY {
            let mut socket = TcpStream::connect(addr).await.unwrap();
            socket.write_all(b"a request").await.unwrap();
            refused.push(socket);
        }
        for socket in &mut refused {
            assert_eq!(read(socket).await, "full\n");
        }
        let mut silent = TcpStream::connect(addr).await.unwrap();
        assert_eq!(read(&mut silent).await, "full\n");
        drop(place);
        let _second = TcpStream::connect(addr).await.unwrap();
        assert!(end.recv().await.is_some());
    }
}
