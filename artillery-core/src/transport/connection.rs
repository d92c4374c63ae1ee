use std::{
    net::SocketAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

#[cfg(feature = "testing")]
use super::medium::LineEnd;
use super::{
    CloseCode, FrameReader, FrameWriter, PeerInfo, StreamKind,
    counters::CounterCells,
    quic::{self, Traffic},
    reach,
    stream::{StreamSink, StreamSource},
};
use crate::{
    error::{CloseReason, DatagramError, Refusal, WriteError},
    identity::Identity,
};

/// The maximum size of a datagram on a simulated network, in bytes, as on a path with a small MTU.
#[cfg(feature = "testing")]
const SIMULATED_DATAGRAM: usize = 1200;

/// A connection whose sides have accepted each other. Clones share the connection. A connection that this node dialled
/// is closed once all clones and all of its streams are dropped. The endpoint keeps one that a peer dialled until it is
/// closed or lost.
#[derive(Debug, Clone)]
pub struct Connection {
    inner: Arc<ConnectionInner>,
}

#[derive(Debug)]
pub(super) enum ConnectionCarrier {
    Quic(quinn::Connection),
    #[cfg(feature = "testing")]
    Simulated(Arc<LineEnd>),
}

impl From<quinn::Connection> for ConnectionCarrier {
    fn from(quinn: quinn::Connection) -> Self {
        Self::Quic(quinn)
    }
}

#[cfg(feature = "testing")]
impl From<Arc<LineEnd>> for ConnectionCarrier {
    fn from(end: Arc<LineEnd>) -> Self {
        Self::Simulated(end)
    }
}

#[derive(Debug)]
struct ConnectionInner {
    id: u64,
    carrier: ConnectionCarrier,
    peer: Arc<PeerInfo>,
    since: Instant,
    max_frame_bytes: usize,
    counters: Arc<CounterCells>,
}

#[derive(Debug)]
pub(super) struct WeakConnection(Weak<ConnectionInner>);

impl WeakConnection {
    pub(super) fn upgrade(&self) -> Option<Connection> {
        self.0.upgrade().map(|inner| Connection { inner }).filter(|connection| connection.close_reason().is_none())
    }
}

impl Connection {
    pub(super) fn new(
        carrier: ConnectionCarrier,
        peer: Arc<PeerInfo>,
        max_frame_bytes: usize,
        counters: Arc<CounterCells>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let since = Instant::now();
        Self { inner: Arc::new(ConnectionInner { id, carrier, peer, since, max_frame_bytes, counters }) }
    }

    pub(super) fn downgrade(&self) -> WeakConnection {
        WeakConnection(Arc::downgrade(&self.inner))
    }

    pub(super) fn writer(&self, stream: StreamSink) -> FrameWriter {
        FrameWriter::new(stream, self.inner.max_frame_bytes, Arc::clone(&self.inner.counters))
    }

    pub(super) fn reader(&self, stream: StreamSource) -> FrameReader {
        FrameReader::new(stream, self.inner.max_frame_bytes, Arc::clone(&self.inner.counters))
    }

    pub(super) fn close_refused(&self, refusal: &Refusal) {
        match &self.inner.carrier {
            ConnectionCarrier::Quic(quinn) => quic::close_refused(quinn, refusal),
            #[cfg(feature = "testing")]
            ConnectionCarrier::Simulated(end) => end.close(CloseCode::REFUSED, &refusal.to_string()),
        }
    }

    pub(super) fn is_trusted_by(&self, identity: &Identity) -> bool {
        match &self.inner.carrier {
            ConnectionCarrier::Quic(quinn) => quic::is_trusted(quinn, identity),
            #[cfg(feature = "testing")]
            ConnectionCarrier::Simulated(_) => true,
        }
    }

    /// Counters of sent frames and received acknowledgements. `None` on a simulated network.
    pub(super) fn traffic(&self) -> Option<Traffic> {
        match &self.inner.carrier {
            ConnectionCarrier::Quic(quinn) => Some(quic::traffic(quinn)),
            #[cfg(feature = "testing")]
            ConnectionCarrier::Simulated(_) => None,
        }
    }

    /// Sends an empty datagram, which the peer's endpoint acknowledges and otherwise ignores.
    pub(super) fn ask_for_acknowledgement(&self) {
        match &self.inner.carrier {
            // Fails only if the connection is closed, which the caller detects anyway.
            ConnectionCarrier::Quic(quinn) => drop(quinn.send_datagram(Bytes::new())),
            #[cfg(feature = "testing")]
            ConnectionCarrier::Simulated(_) => {}
        }
    }

    /// Whether a message on a simulated connection arrives and is answered. The call waits while the path is cut.
    /// `false` for QUIC.
    #[cfg(feature = "testing")]
    pub(super) async fn is_answered(&self) -> bool {
        match &self.inner.carrier {
            ConnectionCarrier::Quic(_) => false,
            ConnectionCarrier::Simulated(end) => end.is_answered().await,
        }
    }

    /// The current source address of the peer's packets.
    pub(super) fn remote(&self) -> SocketAddr {
        match &self.inner.carrier {
            ConnectionCarrier::Quic(quinn) => reach::canonical(quinn.remote_address()),
            #[cfg(feature = "testing")]
            ConnectionCarrier::Simulated(_) => self.inner.peer.remote,
        }
    }

    /// Time since both sides accepted each other.
    pub(super) fn age(&self) -> Duration {
        self.inner.since.elapsed()
    }

    /// The peer, as its hello described it.
    pub fn peer(&self) -> &Arc<PeerInfo> {
        &self.inner.peer
    }

    /// Opens a stream to the peer. Among streams with data to send, those with a higher `priority` are sent first.
    ///
    /// The side that dialled may have
    /// [`TransportConfig::max_streams_per_connection`](crate::config::TransportConfig::max_streams_per_connection)
    /// streams open, as set by the other side. The side that was dialled may have at most 64 open. At that limit, the
    /// call waits until the peer has [accepted](Self::accept_uni) and read earlier ones.
    ///
    /// # Errors
    /// [`WriteError`], usually [`WriteError::Lost`].
    pub async fn open_uni(&self, kind: StreamKind, priority: i32) -> Result<FrameWriter, WriteError> {
        match &self.inner.carrier {
            ConnectionCarrier::Quic(quinn) => {
                let stream = quinn.open_uni().await.map_err(quic::close_reason)?;
                self.begin(stream, kind, priority).await
            }
            #[cfg(feature = "testing")]
            ConnectionCarrier::Simulated(end) => Ok(self.writer(end.open(kind, false).await?.0.into())),
        }
    }

    /// Opens a bidirectional stream. Only the side that dialled may do so. On the other side the call waits until the
    /// connection is closed (on a simulated network, indefinitely).
    ///
    /// # Errors
    /// [`WriteError`], usually [`WriteError::Lost`].
    pub async fn open_bi(&self, kind: StreamKind, priority: i32) -> Result<(FrameWriter, FrameReader), WriteError> {
        match &self.inner.carrier {
            ConnectionCarrier::Quic(quinn) => {
                let (send, receive) = quinn.open_bi().await.map_err(quic::close_reason)?;
                Ok((self.begin(send, kind, priority).await?, self.reader(receive.into())))
            }
            #[cfg(feature = "testing")]
            ConnectionCarrier::Simulated(end) => {
                let (send, receive) = end.open(kind, true).await?;
                Ok((self.writer(send.into()), self.reader(receive.into())))
            }
        }
    }

    /// Waits for the next stream that the peer opens. Only the side that dialled may call this, and only one caller at
    /// a time. On the other side the [`Service`](super::Service) receives all streams.
    ///
    /// A peer that opens a stream without sending its kind blocks the streams after it.
    ///
    /// # Errors
    /// [`CloseReason`]: the connection is closed.
    pub async fn accept_uni(&self) -> Result<(StreamKind, FrameReader), CloseReason> {
        match &self.inner.carrier {
            ConnectionCarrier::Quic(quinn) => loop {
                let mut stream = quinn.accept_uni().await.map_err(quic::close_reason)?;
                // Skip a stream that was reset before it sent its kind.
                if let Some(kind) = quic::read_kind(&mut stream).await {
                    return Ok((kind, self.reader(stream.into())));
                }
            },
            #[cfg(feature = "testing")]
            ConnectionCarrier::Simulated(end) => {
                end.accept().await.map(|(kind, stream)| (kind, self.reader(stream.into())))
            }
        }
    }

    /// An id that is unique among all connections of this process.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    async fn begin(
        &self,
        mut stream: quinn::SendStream,
        kind: StreamKind,
        priority: i32,
    ) -> Result<FrameWriter, WriteError> {
        // Fails only if the stream has ended, which the write below reports.
        let _ = stream.set_priority(priority);
        stream.write_all(&[kind.0]).await.map_err(quic::write_error)?;
        Ok(self.writer(stream.into()))
    }

    /// Sends a datagram, which may get lost. The call never waits: older unsent datagrams are dropped to free buffer
    /// space. Only the side that dialled should send datagrams, since the other direction is not read. The peer's
    /// endpoint acknowledges an empty datagram and does not pass it to the service.
    ///
    /// # Errors
    /// [`DatagramError`]. A datagram that is not sent is included in
    /// [`Counters::datagrams_dropped`](super::Counters::datagrams_dropped). An older datagram that this call displaced
    /// is not.
    pub fn send_datagram(&self, payload: Bytes) -> Result<(), DatagramError> {
        let len = payload.len();
        let sent = match &self.inner.carrier {
            ConnectionCarrier::Quic(quinn) => quinn.send_datagram(payload),
            #[cfg(feature = "testing")]
            ConnectionCarrier::Simulated(_) if len > SIMULATED_DATAGRAM => Err(quinn::SendDatagramError::TooLarge),
            #[cfg(feature = "testing")]
            ConnectionCarrier::Simulated(end) => {
                end.send_datagram(payload);
                Ok(())
            }
        };
        match sent {
            Ok(()) => {
                self.inner.counters.datagrams_sent.add(1);
                Ok(())
            }
            Err(error) => {
                self.inner.counters.datagrams_dropped.add(1);
                Err(quic::datagram_error(error, len, self.max_datagram()))
            }
        }
    }

    /// Maximum size of a datagram in bytes at present. It changes with the path. `None` if the peer does not support
    /// datagrams.
    pub fn max_datagram(&self) -> Option<usize> {
        match &self.inner.carrier {
            ConnectionCarrier::Quic(quinn) => quinn.max_datagram_size(),
            #[cfg(feature = "testing")]
            ConnectionCarrier::Simulated(_) => Some(SIMULATED_DATAGRAM),
        }
    }

    /// Waits until the connection is closed, and returns the reason.
    pub async fn closed(&self) -> CloseReason {
        match &self.inner.carrier {
            ConnectionCarrier::Quic(quinn) => quic::close_reason(quinn.closed().await),
            #[cfg(feature = "testing")]
            ConnectionCarrier::Simulated(end) => end.closed().await,
        }
    }

    /// Why the connection was closed. `None` while it is open.
    pub fn close_reason(&self) -> Option<CloseReason> {
        match &self.inner.carrier {
            ConnectionCarrier::Quic(quinn) => quinn.close_reason().map(quic::close_reason),
            #[cfg(feature = "testing")]
            ConnectionCarrier::Simulated(end) => end.close_reason(),
        }
    }

    /// Closes the connection at once. Unsent data is lost.
    pub fn close(&self, code: CloseCode, reason: &str) {
        match &self.inner.carrier {
            ConnectionCarrier::Quic(quinn) => quinn.close(code.0.into(), reason.as_bytes()),
            #[cfg(feature = "testing")]
            ConnectionCarrier::Simulated(end) => end.close(code, reason),
        }
    }
}
