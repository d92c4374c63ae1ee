//! Misbehaving peers, which have the secret but use QUIC directly, and replaced secrets.

mod hellos;
mod replies;
mod rotation;
mod streams;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::*;
use crate::{
    Incarnation, MemberId, NodeId,
    config::TransportConfig,
    error::{ReadError, Refusal},
    frame::Frame,
    identity::Identity,
};

const SECRET: &[u8] = b"a secret of some length";

#[derive(Debug, PartialEq)]
enum Event {
    Frame(StreamKind, Frame),
    End(StreamKind, Result<(), ReadError>),
    Refused(Refusal),
}

struct Recorder(mpsc::Sender<Event>);

impl Service for Recorder {
    fn stream(&self, _peer: &Arc<PeerInfo>, mut stream: IncomingStream) {
        let events = self.0.clone();
        tokio::spawn(async move {
            let end = loop {
                match stream.reader.next().await {
                    Ok(Some(frame)) => drop(events.send(Event::Frame(stream.kind, frame)).await),
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            drop(events.send(Event::End(stream.kind, end)).await);
        });
    }

    fn refused(&self, _addr: SocketAddr, reason: &Refusal) {
        drop(self.0.try_send(Event::Refused(reason.clone())));
    }
}

fn config() -> TransportConfig {
    TransportConfig { hello_timeout: Duration::from_secs(20), max_frame_bytes: 64 << 10, ..TransportConfig::loopback() }
}

fn local() -> LocalInfo {
    LocalInfo {
        cluster: "test".into(),
        cluster_id: None,
        incarnation: Incarnation { store: 1, starts: 1 },
        kind: PeerKind::Node,
        versions: PROTOCOL_VERSIONS,
    }
}

fn identity(name: &str) -> Identity {
    Identity::from_secret(SECRET, name).unwrap()
}

struct Honest {
    endpoint: Endpoint,
    events: mpsc::Receiver<Event>,
}

impl Honest {
    fn new(config: TransportConfig) -> Self {
        let (sender, events) = mpsc::channel(1024);
        let endpoint = Endpoint::bind(config, identity("honest"), local(), Arc::new(Recorder(sender))).unwrap();
        Self { endpoint, events }
    }

    async fn event(&mut self) -> Event {
        within(self.events.recv()).await.unwrap()
    }

    async fn refusal(&mut self) -> Refusal {
        match self.event().await {
            Event::Refused(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    /// Checks that the node still serves a well-behaved peer.
    async fn is_well(&mut self) {
        let (sender, _events) = mpsc::channel(1);
        let other = Endpoint::bind(config(), identity("other"), local(), Arc::new(Recorder(sender))).unwrap();
        let connection = within(other.connect(self.endpoint.local_addr())).await.unwrap();
        let mut writer = connection.open_uni(StreamKind(200), 0).await.unwrap();
        writer.send(b"fine?", &[]).await.unwrap();
        while !matches!(self.event().await, Event::Frame(StreamKind(200), frame) if frame.header == "fine?") {}
    }
}

/// A misbehaving peer with a valid certificate.
struct Raw {
    quinn: quinn::Endpoint,
    client: quinn::ClientConfig,
    name: &'static str,
}

impl Raw {
    fn new(name: &'static str) -> Self {
        let identity = identity(name);
        let resets = Arc::new(reset::ResetKey::of(&identity));
        // The endpoint accepts connections, since it must answer when it is dialled.
        let (quinn, client) = quic::endpoint(&config(), &identity, true, resets, &Arc::default(), None).unwrap();
        Self { quinn, client, name }
    }

    async fn dial(&self, to: &Honest) -> quinn::Connection {
        let addr = to.endpoint.local_addr();
        within(self.quinn.connect_with(self.client.clone(), addr, "x").unwrap()).await.unwrap()
    }

    fn hello(&self) -> hello::Hello {
        hello::Hello {
            cluster: "test".into(),
            cluster_id: None,
            member: MemberId { node: NodeId::from_name(self.name), incarnation: Incarnation { store: 1, starts: 1 } },
            kind: PeerKind::Node,
            addr: self.quinn.local_addr().unwrap(),
        }
    }

    /// A connection on which the hello was accepted.
    async fn accepted(&self, by: &Honest) -> quinn::Connection {
        let connection = self.dial(by).await;
        let answer = ask(&connection, &words(&hello::encode(PROTOCOL_VERSIONS, &self.hello()))).await.unwrap();
        assert!(matches!(answer, hello::HelloReply::Accepted(_)), "{answer:?}");
        connection
    }
}

fn words(hello: &[u8]) -> Vec<u8> {
    [&[StreamKind::HELLO.0], hello].concat()
}

/// Sends `words` on a first stream. Returns the reply.
async fn ask(connection: &quinn::Connection, words: &[u8]) -> Result<hello::HelloReply, String> {
    let (mut send, mut receive) = connection.open_bi().await.map_err(|error| error.to_string())?;
    send.write_all(words).await.map_err(|error| error.to_string())?;
    send.finish().map_err(|error| error.to_string())?;
    let frame = within(quic::read_hello_frame(&mut receive)).await?;
    hello::decode(PROTOCOL_VERSIONS, &frame).map(|(_, answer)| answer).map_err(|error| error.to_string())
}

/// Panics with the caller's location instead of hanging.
#[track_caller]
fn within<T>(task: impl Future<Output = T>) -> impl Future<Output = T> {
    let place = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(Duration::from_secs(30), task).await {
            Ok(done) => done,
            Err(_) => panic!("still waiting at {place}"),
        }
    }
}

fn frame(header: &'static [u8], body: &'static [u8]) -> Bytes {
    Frame { header: Bytes::from_static(header), body: Bytes::from_static(body) }.to_bytes()
}

/// With a smaller window, a sender whose window is full would wait for the delayed acknowledgement of a few packets.
#[tokio::test]
async fn a_new_connection_may_send_more_than_is_acknowledged_together() {
    let TransportConfig { packets_per_ack, max_udp_payload, .. } = config();
    let window = Raw::new("raw").dial(&Honest::new(config())).await.congestion_state().window();
    assert!(window >= 2 * u64::from(packets_per_ack) * u64::from(max_udp_payload), "{window} bytes");
}
