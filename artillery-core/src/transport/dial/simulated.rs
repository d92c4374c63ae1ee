//! Dialling on a simulated network: after one round trip both sides know each other.

use std::{
    net::SocketAddr,
    sync::{Arc, PoisonError, Weak},
};

use bytes::Bytes;
use tokio::time::sleep;

use crate::{
    error::{CloseReason, ConnectError, Refusal},
    id::NodeId,
    transport::{
        Connection, IncomingStream, PROTOCOL_VERSIONS, PeerInfo, StreamKind, hello,
        medium::{Accept, LineEnd, Medium, PipeReader, PipeWriter, SimulatedLine, SimulatedPort},
        namesake,
        shared::{EndpointCarrier, EndpointShared, Listeners},
    },
};

struct Acceptor {
    shared: Weak<EndpointShared>,
    connection: Connection,
}

impl Accept for Acceptor {
    fn accept(&self, kind: StreamKind, reader: PipeReader, writer: Option<PipeWriter>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let connection = self.connection.clone();
        let reader = connection.reader(reader.into());
        let writer = writer.map(|writer| connection.writer(writer.into()));
        let peer = Arc::clone(connection.peer());
        shared.service.stream(&peer, IncomingStream { kind, reader, writer, connection });
    }

    fn datagram(&self, payload: Bytes) {
        if let Some(shared) = self.shared.upgrade() {
            shared.counters.datagrams_received.add(1);
            shared.service.datagram(self.connection.peer(), payload);
        }
    }
}

pub(super) async fn dial(
    shared: &Arc<EndpointShared>,
    port: &SimulatedPort,
    listeners: &Listeners,
    addr: SocketAddr,
    expected: Option<NodeId>,
) -> Result<Connection, ConnectError> {
    if port.is_closed() {
        return Err(ConnectError::EndpointClosed);
    }
    let listener = || {
        let listeners = listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.get(&addr).and_then(Weak::upgrade).ok_or(ConnectError::TimedOut)
    };
    let found = listener()?.id.node;
    pass(&port.medium, port.node, found).await;
    let theirs = listener()?;
    let EndpointCarrier::Simulated(other, _) = &theirs.carrier else { return Err(ConnectError::TimedOut) };
    if other.is_closed() {
        return Err(ConnectError::TimedOut);
    }
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        return Err(ConnectError::WrongPeer { expected, found });
    }
    let (mine, hers) = (shared.hello(), theirs.hello());
    if let (Err(Refusal::DifferentCluster { here, there }), true) =
        (hello::check(&mine, &hers, &other.name), mine.kind.is_node())
    {
        theirs.met_foreign(&port.name, port.addr, here, &shared.registry.formation());
        shared.met_foreign(&other.name, addr, there, &theirs.registry.formation());
    }
    hello::check(&hers, &mine, &port.name).map_err(ConnectError::Refused)?;
    hello::check(&mine, &hers, &other.name).map_err(ConnectError::Rejected)?;
    let me = Arc::new(mine.into_peer(port.name.clone(), port.addr, PROTOCOL_VERSIONS.max));
    namesake::once_free(&theirs, || theirs.registry.check_namesakes(&me)).await.map_err(ConnectError::Refused)?;
    theirs.service.admit(&me).map_err(ConnectError::Refused)?;
    pass(&port.medium, found, port.node).await;
    if port.is_closed() || other.is_closed() {
        return Err(ConnectError::Lost(CloseReason::Reset));
    }
    let them = Arc::new(hers.into_peer(other.name.clone(), addr, PROTOCOL_VERSIONS.max));
    if let Err(refusal) = namesake::once_free(shared, || shared.registry.check_namesakes(&them)).await {
        theirs.on_refusal(&refusal);
        return Err(ConnectError::Rejected(refusal));
    }
    Ok(connect((shared, port, me), (&theirs, other, them)))
}

/// An endpoint, its port on the network, and its description as the other side sees it.
type Side<'a> = (&'a Arc<EndpointShared>, &'a SimulatedPort, Arc<PeerInfo>);

fn connect((shared, port, me): Side<'_>, (theirs, other, them): Side<'_>) -> Connection {
    let nodes = [port.node, other.node];
    let line = Arc::new(SimulatedLine::new(port.medium.clone(), nodes, shared.config.idle_timeout));
    port.keep(&line, 0);
    other.keep(&line, 1);
    if me.kind.is_node() {
        theirs.links.heard_from(&me);
    }
    let end = LineEnd::accepting(line.clone());
    let connection = theirs.connection(end.clone(), me);
    let (acceptor, peer) = (Arc::downgrade(theirs), Arc::clone(connection.peer()));
    tokio::spawn(async move {
        let reason = line.watch().await;
        if let Some(acceptor) = acceptor.upgrade() {
            acceptor.service.disconnected(&peer, &reason);
        }
    });
    theirs.registry.add_simulated(&connection);
    let acceptor = Acceptor { shared: Arc::downgrade(theirs), connection };
    let connection = shared.connection(end.dialling(Arc::new(acceptor)), them);
    shared.registry.add_simulated(&connection);
    connection
}

async fn pass(medium: &Medium, from: NodeId, to: NodeId) {
    let (delay, _) = medium.draw_delay();
    sleep(delay).await;
    medium.until(|medium| medium.is_open(from, to)).await;
}
