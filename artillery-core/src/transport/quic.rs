//! Translates settings to quinn's types, and quinn's errors to this crate's.

use std::{io, net::UdpSocket, sync::Arc, time::Duration};

use quinn::{
    AckFrequencyConfig, ConnectionError, ConnectionId, ConnectionIdGenerator, EndpointConfig, MtuDiscoveryConfig,
    RecvStream, ServerConfig, TokioRuntime, TransportConfig as QuinnTransport, TransportErrorCode, VarInt,
    congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig},
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rand::RngExt;
use rustls::pki_types::CertificateDer;

use super::{
    CloseCode, StreamKind,
    counters::CounterCells,
    hello,
    reset::ResetKey,
    socket::{self, LinkFilter},
};
use crate::{
    codec,
    config::{Congestion, TransportConfig},
    error::{BindError, CloseReason, ConnectError, DatagramError, IdentityError, ReadError, Refusal, WriteError},
    frame::{Frame, FrameDecoder},
    identity::{Identity, name_of},
};

/// With quinn's default of 333 ms, a lost first packet would delay a handshake by a second.
const INITIAL_RTT: Duration = Duration::from_millis(100);

/// The recommendation for QUIC (RFC 9002, section 7.2).
const MIN_INITIAL_WINDOW_BYTES: u64 = 14_720;

/// Limits the first burst, so that it does not flood a queue on the path.
const MAX_INITIAL_WINDOW_BYTES: u64 = 1 << 20;

/// Maximum number of open streams of the dialled side. They carry answers too large for the stream of their request.
const MAX_STREAMS_BACK: u32 = 64;

/// Maximum number of buffered datagram bytes per direction. New datagrams displace old ones.
const DATAGRAM_BUFFER_BYTES: usize = 1 << 20;

/// The settings for accepting connections, and those for dialling.
pub(super) fn sides(
    config: &TransportConfig,
    identity: &Identity,
) -> Result<(ServerConfig, quinn::ClientConfig), IdentityError> {
    let tls = identity.tls()?;
    let unusable = |error: &dyn std::fmt::Display| IdentityError::Unusable(error.to_string());
    let server = QuicServerConfig::try_from(tls.server).map_err(|error| unusable(&error))?;
    let client = QuicClientConfig::try_from(tls.client).map_err(|error| unusable(&error))?;

    let mut accept = ServerConfig::with_crypto(Arc::new(server));
    let streams = config.max_streams_per_connection;
    accept.transport_config(Arc::new(transport(config, streams, streams)));
    accept.max_incoming(config.max_handshakes as usize);
    let mut dial = quinn::ClientConfig::new(Arc::new(client));
    // The side that dialled accepts no requests: see the documentation of `transport`.
    dial.transport_config(Arc::new(transport(config, 0, MAX_STREAMS_BACK.min(streams))));
    Ok((accept, dial))
}

/// Opens an endpoint on a new socket. Also returns the settings for dialling.
pub(super) fn endpoint(
    config: &TransportConfig,
    identity: &Identity,
    accepts: bool,
    resets: Arc<ResetKey>,
    counters: &Arc<CounterCells>,
    filter: Option<LinkFilter>,
) -> Result<(quinn::Endpoint, quinn::ClientConfig), BindError> {
    let (accept, dial) = sides(config, identity)?;
    let accept = accepts.then_some(accept);
    let failed = |source: io::Error| BindError::Socket { addr: config.listen, source };
    let udp = socket::bind(config.listen, config.socket_buffer_bytes).map_err(failed)?;
    let quinn = open(config, resets, accept, udp, Arc::clone(counters), filter).map_err(failed)?;
    Ok((quinn, dial))
}

fn open(
    config: &TransportConfig,
    resets: Arc<ResetKey>,
    accept: Option<ServerConfig>,
    udp: UdpSocket,
    counters: Arc<CounterCells>,
    filter: Option<LinkFilter>,
) -> io::Result<quinn::Endpoint> {
    let mut endpoint = EndpointConfig::new(resets);
    // A restarted node must recognise ids of its former connections to reset them, which quinn's generator prevents.
    endpoint.cid_generator(|| Box::new(RandomIds));
    endpoint.max_udp_payload_size(config.max_udp_payload).map_err(io::Error::other)?;
    let socket = socket::wrap(udp, counters, filter)?;
    quinn::Endpoint::new_with_abstract_socket(endpoint, accept, socket, Arc::new(TokioRuntime))
}

fn transport(config: &TransportConfig, bidirectional: u32, unidirectional: u32) -> QuinnTransport {
    let mut transport = QuinnTransport::default();
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(config.max_udp_payload);
    let mut acks = AckFrequencyConfig::default();
    // QUIC's threshold excludes the packet that triggers the acknowledgement.
    acks.ack_eliciting_threshold(config.packets_per_ack.saturating_sub(1).into())
        .max_ack_delay(Some(config.max_ack_delay));
    transport
        .congestion_controller_factory(congestion(config))
        .max_concurrent_bidi_streams(bidirectional.into())
        .max_concurrent_uni_streams(unidirectional.into())
        .stream_receive_window(config.stream_window_bytes.into())
        .receive_window(config.connection_window_bytes.into())
        .send_window(config.connection_window_bytes.into())
        .keep_alive_interval(Some(config.keep_alive))
        // `validate` has checked that it fits.
        .max_idle_timeout(config.idle_timeout.try_into().ok())
        .initial_rtt(INITIAL_RTT)
        .mtu_discovery_config(Some(mtu))
        .enable_segmentation_offload(config.segmentation_offload)
        .ack_frequency_config(Some(acks))
        .datagram_receive_buffer_size(Some(DATAGRAM_BUFFER_BYTES))
        .datagram_send_buffer_size(DATAGRAM_BUFFER_BYTES);
    transport
}

fn congestion(config: &TransportConfig) -> Arc<dyn ControllerFactory + Send + Sync> {
    let window = initial_window(config);
    match config.congestion {
        Congestion::Cubic => {
            let mut cubic = CubicConfig::default();
            cubic.initial_window(window);
            Arc::new(cubic)
        }
        Congestion::Bbr => {
            let mut bbr = BbrConfig::default();
            bbr.initial_window(window);
            Arc::new(bbr)
        }
        Congestion::NewReno => {
            let mut new_reno = NewRenoConfig::default();
            new_reno.initial_window(window);
            Arc::new(new_reno)
        }
    }
}

/// Initial congestion window in bytes: twice the amount acknowledged at once. With a smaller window, a sender with a
/// full window could have fewer packets in flight than `packets_per_ack`, and would wait `max_ack_delay` for their
/// acknowledgement.
fn initial_window(config: &TransportConfig) -> u64 {
    let acknowledged = u64::from(config.packets_per_ack) * u64::from(config.max_udp_payload);
    (acknowledged * 2).clamp(MIN_INITIAL_WINDOW_BYTES, MAX_INITIAL_WINDOW_BYTES)
}

/// Generates connection ids of eight random bytes.
struct RandomIds;

impl ConnectionIdGenerator for RandomIds {
    #[allow(clippy::disallowed_methods, reason = "ids on the network must be unguessable")]
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&rand::rng().random::<[u8; 8]>())
    }

    fn cid_len(&self) -> usize {
        8
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

fn is_crypto(code: TransportErrorCode) -> bool {
    (0x100..0x200).contains(&u64::from(code))
}

pub(super) fn close_reason(error: ConnectionError) -> CloseReason {
    match error {
        ConnectionError::TransportError(error) if is_crypto(error.code) => CloseReason::Untrusted(error.reason),
        ConnectionError::ConnectionClosed(close) if is_crypto(close.error_code) => {
            CloseReason::Untrusted(format!("reported by the peer: {}", String::from_utf8_lossy(&close.reason)))
        }
        ConnectionError::ConnectionClosed(close) if close.error_code == TransportErrorCode::CONNECTION_REFUSED => {
            CloseReason::Refused(Refusal::Busy)
        }
        // QUIC hides the reason of a peer that closes the connection during the handshake.
        ConnectionError::ConnectionClosed(close) if close.error_code == TransportErrorCode::APPLICATION_ERROR => {
            CloseReason::Handshake
        }
        ConnectionError::ApplicationClosed(close) => closed_by_peer(close.error_code, &close.reason),
        ConnectionError::Reset => CloseReason::Reset,
        ConnectionError::TimedOut => CloseReason::TimedOut,
        ConnectionError::LocallyClosed => CloseReason::Here,
        other => CloseReason::Protocol(other.to_string()),
    }
}

fn closed_by_peer(code: VarInt, reason: &[u8]) -> CloseReason {
    let code = CloseCode(u32::try_from(code.into_inner()).unwrap_or(u32::MAX));
    match code {
        CloseCode::SHUTDOWN => CloseReason::Shutdown,
        CloseCode::REFUSED => CloseReason::Refused(hello::refusal_from(reason)),
        _ => CloseReason::Peer { code: code.0, reason: String::from_utf8_lossy(reason).into_owned() },
    }
}

/// Closes a connection with a reason that the peer can decode.
pub(super) fn close_refused(connection: &quinn::Connection, refusal: &Refusal) {
    let mut reason = Vec::new();
    // If encoding fails, the reason is empty. The close code still states that the peer is refused.
    let _ = codec::encode(refusal, &mut reason);
    connection.close(CloseCode::REFUSED.0.into(), &reason);
}

/// Converts the error of a failed handshake or hello on the dialling side.
pub(super) fn connect_error(error: ConnectionError) -> ConnectError {
    match close_reason(error) {
        CloseReason::Untrusted(reason) => ConnectError::Untrusted(reason),
        CloseReason::Refused(refusal) => ConnectError::Refused(refusal),
        CloseReason::TimedOut => ConnectError::TimedOut,
        CloseReason::Here => ConnectError::EndpointClosed,
        reason => ConnectError::Lost(reason),
    }
}

/// Converts the error of a failed handshake or hello on the accepting side.
pub(super) fn refusal(error: ConnectionError) -> Refusal {
    match close_reason(error) {
        CloseReason::Untrusted(reason) => Refusal::Untrusted(reason),
        CloseReason::Refused(refusal) => refusal,
        CloseReason::TimedOut => Refusal::TimedOut,
        reason => Refusal::Malformed(reason.to_string()),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Sent frames of the most frequent ack-eliciting kinds.
    pub(super) sent: u64,
    pub(super) acknowledgements: u64,
}

pub(super) fn traffic(connection: &quinn::Connection) -> Traffic {
    let stats = connection.stats();
    let sent = stats.frame_tx;
    Traffic {
        sent: sent.stream + sent.datagram + sent.ping + sent.max_data + sent.max_stream_data,
        acknowledgements: stats.frame_rx.acks,
    }
}

/// The node name in the peer's certificate, or why none was found.
pub(super) fn peer_name(connection: &quinn::Connection) -> Result<String, String> {
    let chain = peer_chain(connection);
    let leaf = chain.as_ref().and_then(|chain| chain.first()).ok_or("no certificate was presented")?;
    name_of(leaf).map_err(|error| error.to_string())
}

pub(super) fn is_trusted(connection: &quinn::Connection, identity: &Identity) -> bool {
    peer_chain(connection).is_some_and(|chain| identity.trusts(&chain))
}

fn peer_chain(connection: &quinn::Connection) -> Option<Vec<CertificateDer<'static>>> {
    connection.peer_identity().and_then(|chain| chain.downcast().ok()).map(|chain| *chain)
}

/// The kind of a stream, which is its first byte. `None` if the stream ended before it.
pub(super) async fn read_kind(stream: &mut RecvStream) -> Option<StreamKind> {
    let mut kind = [0];
    stream.read_exact(&mut kind).await.ok()?;
    Some(StreamKind(kind[0]))
}

pub(super) async fn read_hello_frame(stream: &mut RecvStream) -> Result<Frame, String> {
    let mut decoder = FrameDecoder::new(hello::MAX_HELLO_BYTES);
    loop {
        if let Some(frame) = decoder.next_frame().map_err(|error| error.to_string())? {
            return Ok(frame);
        }
        match stream.read_chunk(hello::MAX_HELLO_BYTES, true).await {
            Ok(Some(chunk)) => decoder.push(&chunk.bytes),
            Ok(None) => return Err("the stream ended within the frame".into()),
            Err(error) => return Err(error.to_string()),
        }
    }
}

pub(super) fn read_error(error: quinn::ReadError) -> ReadError {
    match error {
        quinn::ReadError::Reset(code) => ReadError::Reset(code.into_inner()),
        quinn::ReadError::ConnectionLost(error) => ReadError::Lost(close_reason(error)),
        // Stopped on this side, or an error of a read mode that is not used.
        _ => ReadError::Lost(CloseReason::Here),
    }
}

pub(super) fn write_error(error: quinn::WriteError) -> WriteError {
    match error {
        quinn::WriteError::Stopped(code) => WriteError::Stopped(code.into_inner()),
        quinn::WriteError::ConnectionLost(error) => WriteError::Lost(close_reason(error)),
        _ => WriteError::Finished,
    }
}

pub(super) fn datagram_error(error: quinn::SendDatagramError, len: usize, limit: Option<usize>) -> DatagramError {
    match error {
        quinn::SendDatagramError::TooLarge => DatagramError::TooLarge { len, limit: limit.unwrap_or(0) },
        quinn::SendDatagramError::ConnectionLost(error) => DatagramError::Lost(close_reason(error)),
        _ => DatagramError::Unsupported,
    }
}
