//! A connection: two sides, of which the one that dialled opens the streams, the other one only a few.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{sync::mpsc, time::timeout};

use super::{
    Inlet, Inner, Outlet,
    pipe::{self, Pipe},
};
use crate::{
    error::{CloseReason, WriteError},
    id::NodeId,
    transport::{CloseCode, Connection, IncomingStream, PeerInfo, StreamKind, endpoint::Shared, waiters::Waiters},
};

#[derive(Debug)]
pub(super) struct Line {
    net: Arc<Inner>,
    /// Who dialled, and who accepted.
    nodes: [NodeId; 2],
    /// Why it is gone, as each side knows it.
    closed: Mutex<[Option<CloseReason>; 2]>,
    waiters: Waiters,
    idle_timeout: Duration,
    /// What the side that was dialled has opened, for the other one to take in.
    opened: mpsc::Sender<(StreamKind, Outlet)>,
    to_accept: tokio::sync::Mutex<mpsc::Receiver<(StreamKind, Outlet)>>,
}

/// So many streams of the side that was dialled wait to be taken in.
const OPENED: usize = 4;

impl Line {
    pub(super) fn new(net: Arc<Inner>, nodes: [NodeId; 2], idle_timeout: Duration) -> Self {
        let (opened, to_accept) = mpsc::channel(OPENED);
        Self {
            net,
            nodes,
            closed: Mutex::default(),
            waiters: Waiters::default(),
            idle_timeout,
            opened,
            to_accept: tokio::sync::Mutex::new(to_accept),
        }
    }

    fn lock(&self) -> MutexGuard<'_, [Option<CloseReason>; 2]> {
        // No code that holds it can panic halfway through a change.
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what `side` sends arrives.
    fn is_open(&self, side: usize) -> bool {
        self.net.is_open(self.nodes[side], self.nodes[1 - side])
    }

    fn set(&self, side: usize, reason: CloseReason) {
        self.lock()[side].get_or_insert(reason);
        self.waiters.wake();
    }

    /// Closed by one side; the other one learns it unless the way there is cut.
    pub(super) fn close(&self, side: usize, code: CloseCode, words: &str) {
        self.set(side, CloseReason::Here);
        if self.is_open(side) {
            let told = match code {
                CloseCode::SHUTDOWN => CloseReason::Shutdown,
                code => CloseReason::Peer { code: code.0, reason: words.to_owned() },
            };
            self.set(1 - side, told);
        }
    }

    /// Neither side hears anything any more.
    fn lose(&self) {
        self.set(0, CloseReason::TimedOut);
        self.set(1, CloseReason::TimedOut);
    }

    pub(super) fn close_reason(&self, side: usize) -> Option<CloseReason> {
        self.lock()[side].clone()
    }

    pub(super) async fn closed(&self, side: usize) -> CloseReason {
        self.waiters.until(|| self.close_reason(side)).await
    }

    /// Waits until a piece sent by `side` has arrived, and ends with its connection.
    pub(super) async fn arrival(&self, side: usize, at: tokio::time::Instant) -> Result<(), CloseReason> {
        tokio::select! {
            biased;
            reason = self.closed(1 - side) => Err(reason),
            () = async {
                tokio::time::sleep_until(at).await;
                self.net.until(|_| self.is_open(side)).await;
            } => Ok(()),
        }
    }

    /// When a piece that is sent now arrives. Its connection may break instead.
    pub(super) fn departure(&self) -> tokio::time::Instant {
        let (delay, broken) = self.net.fortune();
        if broken {
            self.lose();
        }
        tokio::time::Instant::now() + delay
    }

    /// Gives the connection up when nothing passed for too long, in either direction; tells the service of its end.
    pub(super) async fn watch(self: Arc<Self>, acceptor: Weak<Shared>, peer: Arc<PeerInfo>) {
        let is_whole = |_: &Inner| self.is_open(0) && self.is_open(1);
        let silence = async {
            loop {
                self.net.until(|net| !is_whole(net)).await;
                if timeout(self.idle_timeout, self.net.until(is_whole)).await.is_err() {
                    return self.lose();
                }
            }
        };
        let reason = tokio::select! {
            biased;
            reason = self.closed(1) => reason,
            () = silence => CloseReason::TimedOut,
        };
        // A side that had closed it could not say so.
        self.lose();
        if let Some(acceptor) = acceptor.upgrade() {
            acceptor.service.disconnected(&peer, &reason);
        }
    }
}

/// One side of a connection.
#[derive(Debug)]
pub(in crate::transport) struct End {
    line: Arc<Line>,
    side: usize,
    /// The other side, if this one dialled.
    accepted: Option<(Connection, Weak<Shared>)>,
}

impl End {
    pub(super) fn accepting(line: Arc<Line>) -> Arc<Self> {
        Arc::new(Self { line, side: 1, accepted: None })
    }

    pub(super) fn dialling(line: Arc<Line>, accepted: Connection, acceptor: Weak<Shared>) -> Arc<Self> {
        Arc::new(Self { line, side: 0, accepted: Some((accepted, acceptor)) })
    }

    /// Opens a stream, with a way back if `both`. That only the side that dialled may; on the other side it waits for ever.
    pub(in crate::transport) async fn open(
        self: &Arc<Self>,
        kind: StreamKind,
        both: bool,
    ) -> Result<(Inlet, Outlet), WriteError> {
        let Some((accepted, acceptor)) = &self.accepted else {
            return if both { std::future::pending().await } else { self.open_back(kind).await };
        };
        if let Some(reason) = self.close_reason() {
            return Err(WriteError::Lost(reason));
        }
        let (there, back) = (Arc::new(Pipe::new(self.line.clone(), 0)), Arc::new(Pipe::new(self.line.clone(), 1)));
        let at = self.line.departure();
        let (line, acceptor, connection) = (self.line.clone(), acceptor.clone(), accepted.clone());
        let (reader, writer) = (Outlet::new(there.clone(), None), Inlet::new(back.clone(), None));
        tokio::spawn(async move {
            let Some(acceptor) = acceptor.upgrade() else { return };
            if line.arrival(0, at).await.is_ok() {
                let reader = connection.reader(reader.into());
                let writer = both.then(|| connection.writer(writer.into()));
                let peer = connection.peer().clone();
                acceptor.service.stream(&peer, IncomingStream { kind, reader, writer, connection });
            }
        });
        let back = if both { back } else { pipe::ended(self.line.clone()) };
        Ok((Inlet::new(there, Some(self.clone())), Outlet::new(back, Some(self.clone()))))
    }

    /// Opens a stream to the side that dialled, once there is room among those that it hasn't taken in.
    async fn open_back(&self, kind: StreamKind) -> Result<(Inlet, Outlet), WriteError> {
        let line = self.line.clone();
        let room = tokio::select! {
            biased;
            reason = self.closed() => return Err(WriteError::Lost(reason)),
            // The line keeps the other end.
            room = line.opened.clone().reserve_owned() => room.map_err(|_| WriteError::Lost(CloseReason::TimedOut))?,
        };
        let pipe = Arc::new(Pipe::new(line.clone(), 1));
        let (at, outlet) = (line.departure(), Outlet::new(pipe.clone(), None));
        let arriving = line.clone();
        tokio::spawn(async move {
            if arriving.arrival(1, at).await.is_ok() {
                room.send((kind, outlet));
            }
        });
        Ok((Inlet::new(pipe, None), Outlet::new(pipe::ended(line), None)))
    }

    /// The next stream that the side which was dialled has opened.
    pub(in crate::transport) async fn accept(&self) -> Result<(StreamKind, Outlet), CloseReason> {
        let mut to_accept = self.line.to_accept.lock().await;
        tokio::select! {
            biased;
            reason = self.closed() => Err(reason),
            Some(opened) = to_accept.recv() => Ok(opened),
        }
    }

    pub(in crate::transport) fn close(&self, code: CloseCode, words: &str) {
        self.line.close(self.side, code, words);
    }

    pub(in crate::transport) fn close_reason(&self) -> Option<CloseReason> {
        self.line.close_reason(self.side)
    }

    pub(in crate::transport) async fn closed(&self) -> CloseReason {
        self.line.closed(self.side).await
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Streams hold the side that dialled, and that one holds the other.
        self.close(CloseCode::DONE, "");
    }
}
