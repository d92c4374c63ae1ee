//! Nodes that record all calls of their endpoint's service.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use artillery_core::{
    ClusterId, Frame, Incarnation, MemberId,
    config::TransportConfig,
    error::{BindError, CloseReason, ReadError, Refusal, VersionRange},
    identity::Identity,
    internal::LinkFilter,
    transport::{
        Connection, Endpoint, ForeignPeer, FrameReader, FrameWriter, IncomingStream, LocalInfo, PROTOCOL_VERSIONS,
        PeerInfo, PeerKind, Service, StreamKind,
    },
};
use bytes::Bytes;
use tokio::sync::mpsc;

pub(crate) use crate::within::within;

pub(crate) const SECRET: &[u8] = b"a secret of some length";

/// The kind of unidirectional streams, whose frames the recorder records.
pub(crate) const RECORD: StreamKind = StreamKind(16);
/// The kind of bidirectional streams, whose frames the recorder echoes.
pub(crate) const ECHO: StreamKind = StreamKind(17);

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Admitted(Arc<PeerInfo>),
    Frame(Frame),
    End(Result<(), ReadError>),
    Datagram(Bytes),
    Refused(Refusal),
    Disconnected(CloseReason),
    Joined(ClusterId),
    Succeeded(ClusterId),
    MetForeign(ForeignPeer),
    NameTaken(MemberId),
}

struct Recorder {
    events: mpsc::Sender<Event>,
    unwanted: Option<&'static str>,
}

impl Recorder {
    fn record(&self, event: Event) {
        self.events.try_send(event).expect("the test reads its events, or ends soon");
    }
}

impl Service for Recorder {
    fn admit(&self, peer: &Arc<PeerInfo>) -> Result<(), Refusal> {
        if self.unwanted == Some(peer.name.as_str()) {
            return Err(Refusal::Other("unwanted".into()));
        }
        self.record(Event::Admitted(Arc::clone(peer)));
        Ok(())
    }

    fn stream(&self, _peer: &Arc<PeerInfo>, stream: IncomingStream) {
        let events = self.events.clone();
        tokio::spawn(async move {
            match stream.writer {
                None => record(stream.reader, events).await,
                Some(writer) => echo(stream.reader, writer).await,
            }
        });
    }

    fn datagram(&self, _peer: &Arc<PeerInfo>, payload: Bytes) {
        self.record(Event::Datagram(payload));
    }

    fn joined_cluster(&self, _peer: &Arc<PeerInfo>, id: ClusterId) {
        self.record(Event::Joined(id));
    }

    fn succeeded(&self, by: ClusterId) {
        self.record(Event::Succeeded(by));
    }

    fn met_foreign(&self, peer: ForeignPeer) {
        self.record(Event::MetForeign(peer));
    }

    fn name_taken(&self, by: MemberId) {
        self.record(Event::NameTaken(by));
    }

    fn refused(&self, _addr: SocketAddr, reason: &Refusal) {
        self.record(Event::Refused(reason.clone()));
    }

    fn disconnected(&self, _peer: &Arc<PeerInfo>, reason: &CloseReason) {
        // The receiver is dropped when a test has ended.
        let _ = self.events.try_send(Event::Disconnected(reason.clone()));
    }
}

async fn record(mut reader: FrameReader, events: mpsc::Sender<Event>) {
    let end = loop {
        match reader.next().await {
            Ok(Some(frame)) => {
                if events.send(Event::Frame(frame)).await.is_err() {
                    return;
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let _ = events.send(Event::End(end)).await;
}

async fn echo(mut reader: FrameReader, mut writer: FrameWriter) {
    while let Ok(Some(frame)) = reader.next().await {
        if writer.send(&frame.header, &[frame.body]).await.is_err() {
            return;
        }
    }
}

pub(crate) struct Spec {
    pub(crate) identity: Identity,
    pub(crate) cluster: String,
    pub(crate) cluster_id: Option<ClusterId>,
    pub(crate) versions: VersionRange,
    pub(crate) store: u128,
    pub(crate) config: TransportConfig,
    pub(crate) filter: Option<LinkFilter>,
    pub(crate) unwanted: Option<&'static str>,
}

impl Spec {
    pub(crate) fn new(name: &str) -> Self {
        Self::with(Identity::from_secret(SECRET, name).unwrap())
    }

    pub(crate) fn with(identity: Identity) -> Self {
        let mut config = TransportConfig::loopback();
        config.keep_alive = Duration::from_millis(100);
        config.idle_timeout = Duration::from_secs(1);
        config.redial_max = Duration::from_millis(100);
        Self {
            identity,
            cluster: "test".into(),
            cluster_id: None,
            versions: PROTOCOL_VERSIONS,
            store: 1,
            config,
            filter: None,
            unwanted: None,
        }
    }

    pub(crate) fn try_bind(self) -> Result<Node, BindError> {
        let (sender, events) = mpsc::channel(4096);
        let incarnation = Incarnation { store: self.store, starts: 1 };
        let mut local = LocalInfo::new(self.cluster, incarnation, PeerKind::Node).with_cluster_id(self.cluster_id);
        local.versions = self.versions;
        let service = Arc::new(Recorder { events: sender, unwanted: self.unwanted });
        let endpoint = match self.filter {
            Some(filter) => Endpoint::bind_filtered(self.config, self.identity, local, service, filter)?,
            None => Endpoint::bind(self.config, self.identity, local, service)?,
        };
        Ok(Node { endpoint, events })
    }

    pub(crate) fn bind(self) -> Node {
        self.try_bind().unwrap()
    }
}

pub(crate) struct Node {
    pub(crate) endpoint: Endpoint,
    pub(crate) events: mpsc::Receiver<Event>,
}

impl Node {
    pub(crate) fn addr(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    pub(crate) async fn event(&mut self) -> Event {
        within(self.events.recv()).await.unwrap()
    }

    /// Waits for the first event for which `pick` returns `Some`, and drops all earlier events.
    pub(crate) async fn event_of<T>(&mut self, mut pick: impl FnMut(Event) -> Option<T>) -> T {
        loop {
            if let Some(picked) = pick(self.event().await) {
                return picked;
            }
        }
    }

    pub(crate) async fn frame(&mut self) -> Frame {
        self.event_of(|event| if let Event::Frame(frame) = event { Some(frame) } else { None }).await
    }

    pub(crate) async fn stream_end(&mut self) -> Result<(), ReadError> {
        self.event_of(|event| if let Event::End(end) = event { Some(end) } else { None }).await
    }

    pub(crate) async fn refusal(&mut self) -> Refusal {
        self.event_of(|event| if let Event::Refused(reason) = event { Some(reason) } else { None }).await
    }
}

/// Two nodes, and a connection that the first one has dialled to the second.
pub(crate) async fn connected(a: Spec, b: Spec) -> (Node, Node, Connection) {
    let (a, b) = (a.bind(), b.bind());
    let connection = within(a.endpoint.connect(b.addr())).await.unwrap();
    (a, b, connection)
}

/// Checks that a frame with this header arrives at the other end. Returns its stream.
pub(crate) async fn arrives(connection: &Connection, to: &mut Node, header: &str) -> FrameWriter {
    let mut writer = connection.open_uni(RECORD, 0).await.unwrap();
    writer.send(header.as_bytes(), &[]).await.unwrap();
    assert_eq!(to.frame().await.header, header);
    writer
}
