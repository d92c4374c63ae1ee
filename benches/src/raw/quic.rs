//! Bare QUIC with the settings of a node.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use artillery_core::config::TransportConfig;
use quinn::{
    AckFrequencyConfig, ClientConfig, Connection, Endpoint, EndpointConfig, MtuDiscoveryConfig, RecvStream, SendStream,
    ServerConfig, TokioRuntime, TransportConfig as QuinnTransport,
};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer},
};
use socket2::{Domain, Protocol, Socket, Type};

use super::{Pipe, Shape, on_own_thread, serve};

const NAME: &str = "localhost";

/// A connection to a server, with a pipe over its first stream.
#[derive(Debug)]
pub struct Quic {
    /// The pipe over the first stream.
    pub pipe: Pipe<RecvStream, SendStream>,
    connection: Connection,
    /// Kept because it drives the connection.
    _endpoint: Endpoint,
}

impl Quic {
    /// Starts a server, and opens a stream to it.
    pub async fn connect(shape: Shape) -> io::Result<Self> {
        let (found, addr) = std::sync::mpsc::sync_channel(1);
        on_own_thread(move || async move {
            let (endpoint, certificate) = bind()?;
            found.send((endpoint.local_addr()?, certificate)).map_err(io::Error::other)?;
            let incoming = endpoint.accept().await.ok_or(io::ErrorKind::ConnectionAborted)?;
            let connection = incoming.await?;
            let (writer, reader) = connection.accept_bi().await?;
            let served = serve(reader, writer, shape).await;
            // A client finishes by closing the connection.
            if connection.close_reason().is_some() { Ok(()) } else { served }
        })?;
        let (addr, certificate) = addr.recv().map_err(io::Error::other)?;
        Self::connect_to(addr, certificate, shape).await
    }

    /// Connects to a running server with this certificate, and opens a stream.
    pub async fn connect_to(addr: SocketAddr, certificate: Vec<u8>, shape: Shape) -> io::Result<Self> {
        let endpoint = endpoint(None)?;
        let connecting = endpoint.connect_with(client(certificate.into())?, addr, NAME).map_err(io::Error::other)?;
        let connection = connecting.await?;
        let (writer, reader) = connection.open_bi().await?;
        Ok(Self { pipe: Pipe::new(reader, writer, shape), connection, _endpoint: endpoint })
    }

    /// Opens another stream of the connection.
    pub async fn another(&self, shape: Shape) -> io::Result<Pipe<RecvStream, SendStream>> {
        let (writer, reader) = self.connection.open_bi().await?;
        Ok(Pipe::new(reader, writer, shape))
    }
}

/// A server's endpoint, and its certificate.
pub(crate) fn bind() -> io::Result<(Endpoint, Vec<u8>)> {
    let made = rcgen::generate_simple_self_signed(vec![NAME.into()]).map_err(io::Error::other)?;
    let (certificate, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
    Ok((server(certificate.clone(), key)?, certificate.to_vec()))
}

/// Answers on every stream of every connection, until the endpoint is closed.
pub(crate) async fn accept_all(endpoint: Endpoint, shape: Shape) {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let Ok(connection) = incoming.await else { return };
            while let Ok((writer, reader)) = connection.accept_bi().await {
                tokio::spawn(serve(reader, writer, shape));
            }
        });
    }
}

impl Drop for Quic {
    fn drop(&mut self) {
        self.connection.close(0u8.into(), b"");
    }
}

fn server(certificate: CertificateDer<'static>, key: Vec<u8>) -> io::Result<Endpoint> {
    let key = PrivatePkcs8KeyDer::from(key).into();
    let mut config = ServerConfig::with_single_cert(vec![certificate], key).map_err(io::Error::other)?;
    config.transport_config(transport()?);
    endpoint(Some(config))
}

fn client(trusted: CertificateDer<'static>) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).map_err(io::Error::other)?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots)).map_err(io::Error::other)?;
    config.transport_config(transport()?);
    Ok(config)
}

fn endpoint(server: Option<ServerConfig>) -> io::Result<Endpoint> {
    let settings = TransportConfig::loopback();
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(settings.max_udp_payload).map_err(io::Error::other)?;
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_recv_buffer_size(settings.socket_buffer_bytes)?;
    socket.set_send_buffer_size(settings.socket_buffer_bytes)?;
    socket.bind(&settings.listen.into())?;
    Endpoint::new(config, server, UdpSocket::from(socket), Arc::new(TokioRuntime))
}

/// The settings of a node, for a fair comparison.
fn transport() -> io::Result<Arc<QuinnTransport>> {
    let settings = TransportConfig::default();
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(settings.max_udp_payload);
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(settings.packets_per_ack.saturating_sub(1).into())
        .max_ack_delay(Some(settings.max_ack_delay));
    let mut transport = QuinnTransport::default();
    transport
        .stream_receive_window(settings.stream_window_bytes.into())
        .receive_window(settings.connection_window_bytes.into())
        .send_window(settings.connection_window_bytes.into())
        .keep_alive_interval(Some(settings.keep_alive))
        .max_idle_timeout(Some(settings.idle_timeout.try_into().map_err(io::Error::other)?))
        .max_concurrent_bidi_streams(settings.max_streams_per_connection.into())
        .initial_rtt(Duration::from_millis(100))
        .mtu_discovery_config(Some(mtu))
        .enable_segmentation_offload(settings.segmentation_offload)
        .ack_frequency_config(Some(acks));
    Ok(Arc::new(transport))
}
