//! The accepting side: admits peers that dial, and passes their streams and datagrams to the service.

use std::sync::Arc;

use quinn::{Incoming, RecvStream, SendStream};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use super::{
    CloseCode, Connection, FrameReader, IncomingStream, StreamKind,
    hello::{self, Formation, Hello, HelloReply},
    namesake, quic, reach,
    registry::Ticket,
    shared::EndpointShared,
};
use crate::{
    codec,
    error::{CloseReason, Refusal},
    frame::Frame,
    id::ClusterId,
};

const UNKNOWN_KIND_CODE: u32 = 2;

pub(super) async fn run(shared: Arc<EndpointShared>, quinn: quinn::Endpoint) {
    while let Some(incoming) = quinn.accept().await {
        let handshake = Arc::clone(&shared.handshakes).try_acquire_owned();
        let connection = Arc::clone(&shared.connections).try_acquire_owned();
        match (handshake, connection) {
            (Ok(handshake), Ok(connection)) => {
                tokio::spawn(handle(Arc::clone(&shared), incoming, handshake, connection));
            }
            _ => {
                let addr = reach::canonical(incoming.remote_address());
                incoming.refuse();
                shared.refused(addr, &Refusal::Busy);
            }
        }
    }
}

async fn handle(
    shared: Arc<EndpointShared>,
    incoming: Incoming,
    handshake: OwnedSemaphorePermit,
    _connection: OwnedSemaphorePermit,
) {
    let addr = reach::canonical(incoming.remote_address());
    let greeted = timeout(shared.config.hello_timeout, greet(&shared, incoming)).await;
    drop(handshake);
    match greeted.unwrap_or(Err(Refusal::TimedOut)) {
        Ok((quinn, connection, ticket)) => {
            shared.counters.accepted.add(1);
            serve(&shared, &quinn, &connection, ticket).await;
        }
        Err(refusal) => shared.refused(addr, &refusal),
    }
}

async fn greet(
    shared: &Arc<EndpointShared>,
    incoming: Incoming,
) -> Result<(quinn::Connection, Connection, Ticket), Refusal> {
    let changes = shared.identity_changes();
    let quinn = incoming.accept().map_err(quic::refusal)?.await.map_err(quic::refusal)?;
    let name = quic::peer_name(&quinn).map_err(Refusal::Untrusted)?;
    let (mut send, mut receive) = quinn.accept_bi().await.map_err(quic::refusal)?;
    let outcome = match read_hello(&mut receive).await {
        Ok(frame) => admit(shared, &quinn, name, &frame, changes).await,
        Err(refusal) => Err(refusal),
    };
    let answer = match &outcome {
        Ok(_) => HelloReply::Accepted(shared.hello()),
        Err(refusal) => HelloReply::Refused(refusal.clone()),
    };
    let told =
        write_reply(&mut send, &hello::encode_with(shared.local.versions, &answer, &shared.registry.formation())).await;
    match outcome {
        Ok((connection, ticket)) => match told {
            Ok(()) => Ok((quinn, connection, ticket)),
            Err(refusal) => {
                shared.registry.remove(ticket);
                Err(refusal)
            }
        },
        Err(refusal) => {
            // The peer closes the connection after reading the reason.
            quinn.closed().await;
            Err(refusal)
        }
    }
}

async fn read_hello(receive: &mut RecvStream) -> Result<Frame, Refusal> {
    let kind = quic::read_kind(receive).await.ok_or_else(|| Refusal::Malformed("no kind in the stream".into()))?;
    if kind != StreamKind::HELLO {
        return Err(Refusal::Malformed(format!("the first stream has kind {}", kind.0)));
    }
    quic::read_hello_frame(receive).await.map_err(Refusal::Malformed)
}

async fn write_reply(send: &mut SendStream, answer: &[u8]) -> Result<(), Refusal> {
    send.write_all(answer).await.map_err(|error| Refusal::Malformed(error.to_string()))?;
    // Fails only if the stream has ended.
    let _ = send.finish();
    Ok(())
}

async fn admit(
    shared: &Arc<EndpointShared>,
    quinn: &quinn::Connection,
    name: String,
    frame: &Frame,
    changes: u64,
) -> Result<(Connection, Ticket), Refusal> {
    let (version, theirs) = hello::decode::<Hello>(shared.local.versions, frame)?;
    let checked = hello::check(&shared.hello(), &theirs, &name);
    let from = reach::canonical(quinn.remote_address());
    if let Err(refusal) = checked {
        shared.on_twin(&refusal, theirs.member, from);
        let peer = theirs.into_peer(name, from, version);
        if let Refusal::DifferentCluster { there, .. } = &refusal
            && peer.kind.is_node()
        {
            shared.met_foreign(&peer.name, peer.addr, *there, &Formation::stated_in(frame));
        }
        return Err(refusal);
    }
    let peer = Arc::new(theirs.into_peer(name, from, version));
    let connection = shared.connection(quinn.clone(), Arc::clone(&peer));
    let most = shared.config.max_connections_per_peer;
    let ticket = namesake::once_free(shared, || shared.registry.add_accepted(&connection, most)).await?;
    let admitted = if shared.trusts(&connection, changes) {
        shared.service.admit(&peer)
    } else {
        Err(Refusal::Untrusted("the certificate is no longer trusted".into()))
    };
    if let Err(refusal) = admitted {
        shared.registry.remove(ticket);
        return Err(refusal);
    }
    if peer.kind.is_node() {
        shared.links.heard_from(&peer);
    }
    Ok((connection, ticket))
}

/// Passes streams and datagrams of an accepted connection to the service until the connection is closed.
async fn serve(shared: &Arc<EndpointShared>, quinn: &quinn::Connection, connection: &Connection, ticket: Ticket) {
    let peer = connection.peer();
    let error = loop {
        // All branches are cancel-safe.
        tokio::select! {
            stream = quinn.accept_uni() => match stream {
                Ok(receive) => receive_stream(shared, connection, ticket, receive, None),
                Err(error) => break error,
            },
            stream = quinn.accept_bi() => match stream {
                Ok((send, receive)) => receive_stream(shared, connection, ticket, receive, Some(send)),
                Err(error) => break error,
            },
            datagram = quinn.read_datagram() => match datagram {
                // An empty datagram is a probe, which QUIC has already acknowledged.
                Ok(payload) if payload.is_empty() => {}
                Ok(payload) => {
                    shared.counters.datagrams_received.add(1);
                    shared.service.datagram(peer, payload);
                }
                Err(error) => break error,
            },
        }
    };
    shared.registry.remove(ticket);
    let reason = quic::close_reason(error);
    if let CloseReason::Refused(refusal) = &reason {
        shared.on_refusal(refusal);
    }
    shared.service.disconnected(peer, &reason);
}

/// Reads a new stream's kind in a task of its own, so that a peer that is slow to send it blocks none of its other
/// streams. The connection's limit of streams bounds the number of tasks.
fn receive_stream(
    shared: &Arc<EndpointShared>,
    connection: &Connection,
    ticket: Ticket,
    mut receive: RecvStream,
    send: Option<SendStream>,
) {
    let (shared, connection) = (Arc::clone(shared), connection.clone());
    tokio::spawn(async move {
        let Some(kind) = quic::read_kind(&mut receive).await else { return };
        let reader = connection.reader(receive.into());
        match kind {
            kind if kind == StreamKind::MEMBERSHIP || kind >= StreamKind::FIRST_FREE => {
                let writer = send.map(|send| connection.writer(send.into()));
                let peer = Arc::clone(connection.peer());
                shared.service.stream(&peer, IncomingStream { kind, reader, writer, connection });
            }
            StreamKind::HELLO => connection.close(CloseCode::VIOLATION, "a second hello"),
            StreamKind::CLUSTER_ID => on_cluster_id(&shared, &connection, ticket, reader).await,
            StreamKind(_) => {
                let mut reader = reader;
                reader.stop(UNKNOWN_KIND_CODE);
            }
        }
    });
}

async fn on_cluster_id(shared: &EndpointShared, connection: &Connection, ticket: Ticket, mut reader: FrameReader) {
    let told = match reader.next().await {
        Ok(Some(frame)) => codec::decode::<ClusterId>(&frame.header).ok(),
        _ => None,
    };
    let Some(id) = told else {
        connection.close(CloseCode::VIOLATION, "malformed cluster id");
        return;
    };
    match shared.registry.peer_joined(ticket, id) {
        Ok(()) => shared.service.joined_cluster(connection.peer(), id),
        Err(refusal) => {
            connection.close_refused(&refusal);
            shared.refused(connection.peer().remote, &refusal);
        }
    }
}
