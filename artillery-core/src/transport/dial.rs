//! The dialling side.

#[cfg(feature = "testing")]
mod simulated;

use std::{net::SocketAddr, sync::Arc};

use tokio::{task::JoinSet, time::timeout};

use super::{
    CloseCode, Connection, StreamKind,
    hello::{self, HelloReply},
    namesake, quic, reach,
    shared::{EndpointCarrier, EndpointShared},
    zones,
};
use crate::{
    codec,
    error::{ConnectError, Refusal},
    id::{ClusterId, MemberId, NodeId},
};

/// The server name that TLS requires. Neither side checks it: nodes are dialled by address.
const SERVER_NAME: &str = "node.artillery.internal";

/// Dials `addr` and exchanges hellos. A link-local IPv6 address without a zone is dialled on several interfaces at
/// once.
pub(super) async fn dial(
    shared: &Arc<EndpointShared>,
    addr: SocketAddr,
    expected: Option<NodeId>,
) -> Result<Connection, ConnectError> {
    match zones::lacks_zone(addr) {
        None => dial_one(shared, addr, expected).await,
        Some(bare) => {
            let here = zones::here();
            let addrs = zones::in_zones(bare, shared.local_addr.port(), &here);
            dial_zones(shared, addrs, expected).await.map_err(|error| match error {
                ConnectError::NoAddress if here.is_empty() => {
                    ConnectError::BadAddress { addr, reason: "no interface has a link-local IPv6 address".into() }
                }
                ConnectError::NoAddress => ConnectError::Refused(Refusal::Itself(shared.id)),
                error => error,
            })
        }
    }
}

async fn dial_zones(
    shared: &Arc<EndpointShared>,
    addrs: Vec<SocketAddr>,
    expected: Option<NodeId>,
) -> Result<Connection, ConnectError> {
    let mut dials = JoinSet::new();
    for addr in addrs {
        let shared = Arc::clone(shared);
        dials.spawn(async move { dial_one(&shared, addr, expected).await });
    }
    let mut failure = DialFailure::new(shared.id);
    while let Some(done) = dials.join_next().await {
        match done {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => failure.note(error),
            Err(_) => {}
        }
    }
    Err(failure.reason())
}

impl ConnectError {
    /// Whether `me` answered its own dial.
    pub(crate) fn is_itself(&self, me: MemberId) -> bool {
        matches!(self, Self::Refused(Refusal::Itself(other)) if *other == me)
    }
}

/// The most informative reason why no address of a peer was connected.
pub(super) struct DialFailure {
    me: MemberId,
    known: Option<ConnectError>,
}

impl DialFailure {
    pub(super) fn new(me: MemberId) -> Self {
        Self { me, known: None }
    }

    pub(super) fn note(&mut self, error: ConnectError) {
        let known = self.known.as_ref().map_or(0, |known| self.weight(known));
        let new = self.weight(&error);
        // Among errors of the highest weight, the first is kept. Otherwise the last.
        if new > known || (known < MOST && new == known) {
            self.known = Some(error);
        }
    }

    pub(super) fn reason(self) -> ConnectError {
        self.known.unwrap_or(ConnectError::NoAddress)
    }

    /// How much an error reveals about the intended peer. An answer by another node, or by this one itself, reveals
    /// nothing: two hosts on separate networks may have the same address.
    fn weight(&self, error: &ConnectError) -> u8 {
        match error {
            error if error.is_itself(self.me) => 1,
            ConnectError::WrongPeer { .. } => 1,
            ConnectError::Refused(_) | ConnectError::Rejected(_) => MOST,
            _ => 2,
        }
    }
}

const MOST: u8 = 3;

async fn dial_one(
    shared: &Arc<EndpointShared>,
    addr: SocketAddr,
    expected: Option<NodeId>,
) -> Result<Connection, ConnectError> {
    let greeted = timeout(shared.config.hello_timeout, greet(shared, addr, expected)).await;
    let outcome = greeted.unwrap_or(Err(ConnectError::TimedOut));
    match &outcome {
        Ok(connection) => {
            shared.counters.dialled.add(1);
            shared.service.reached(connection.peer());
        }
        Err(error) => {
            shared.counters.dial_failures.add(1);
            if let ConnectError::Refused(refusal) = error {
                shared.on_refusal(refusal);
            }
        }
    }
    outcome
}

async fn greet(
    shared: &Arc<EndpointShared>,
    addr: SocketAddr,
    expected: Option<NodeId>,
) -> Result<Connection, ConnectError> {
    let changes = shared.identity_changes();
    let (quinn, client) = match &shared.carrier {
        EndpointCarrier::Quic(quinn, security) => (quinn, security.dial()),
        #[cfg(feature = "testing")]
        EndpointCarrier::Simulated(port, listeners) => {
            return simulated::dial(shared, port, listeners, addr, expected).await;
        }
    };
    reach::check(shared.local_addr, addr, reach::is_own)?;
    let connecting = quinn.connect_with(client, addr, SERVER_NAME).map_err(|error| match error {
        quinn::ConnectError::EndpointStopping => ConnectError::EndpointClosed,
        error => ConnectError::BadAddress { addr, reason: error.to_string() },
    })?;
    let quinn = connecting.await.map_err(quic::connect_error)?;
    let name = quic::peer_name(&quinn).map_err(ConnectError::Untrusted)?;
    let found = NodeId::from_name(&name);
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        return Err(ConnectError::WrongPeer { expected, found });
    }

    let mine = shared.hello();
    let (version, answer, states) = exchange_hellos(shared, &quinn, &mine).await?;
    let theirs = match answer {
        HelloReply::Accepted(theirs) => theirs,
        HelloReply::Refused(refusal) => {
            if let Refusal::DifferentCluster { here, .. } = &refusal {
                shared.met_foreign(&name, addr, *here, &states);
            }
            return Err(ConnectError::Refused(refusal));
        }
    };
    let checked = hello::check(&mine, &theirs, &name);
    if let Err(Refusal::DifferentCluster { there, .. }) = &checked {
        shared.met_foreign(&name, addr, *there, &states);
    }
    let peer = Arc::new(theirs.into_peer(name, reach::canonical(quinn.remote_address()), version));
    let connection = shared.connection(quinn, peer);
    let added = match checked {
        Ok(()) => namesake::once_free(shared, || shared.registry.add_dialled(&connection)).await,
        Err(refusal) => Err(refusal),
    };
    match added {
        Ok(_) if !shared.trusts(&connection, changes) => {
            connection.close(CloseCode::REPLACED, "");
            Err(ConnectError::Untrusted("its certificate is no longer trusted".into()))
        }
        Ok(now) => {
            // This node joined a formation while its hello was in transit.
            if let Some(id) = now.filter(|_| now != mine.cluster_id) {
                tokio::spawn(tell_cluster_id(connection.clone(), id));
            }
            Ok(connection)
        }
        Err(refusal) => {
            connection.close_refused(&refusal);
            Err(ConnectError::Rejected(refusal))
        }
    }
}

/// Sends the hello. Returns the common version, the reply, and the peer's statement on its formation.
async fn exchange_hellos(
    shared: &EndpointShared,
    quinn: &quinn::Connection,
    mine: &hello::Hello,
) -> Result<(u16, HelloReply, hello::Formation), ConnectError> {
    let exchanged = async {
        let (mut send, mut receive) = quinn.open_bi().await.map_err(|error| error.to_string())?;
        let mut words = vec![StreamKind::HELLO.0];
        words.extend_from_slice(&hello::encode_with(shared.local.versions, mine, &shared.registry.formation()));
        send.write_all(&words).await.map_err(|error| error.to_string())?;
        // Fails only if the stream has ended.
        let _ = send.finish();
        quic::read_hello_frame(&mut receive).await
    };
    let frame = match exchanged.await {
        Ok(frame) => frame,
        // If the connection was closed, its reason is more informative than the stream's error. The acceptor may
        // distrust this node's certificate, which it sees only after this side has completed the handshake.
        Err(reason) => {
            return Err(quinn.close_reason().map_or(ConnectError::Malformed(reason), quic::connect_error));
        }
    };
    let decoded = hello::decode(shared.local.versions, &frame);
    let (version, answer) = decoded.map_err(|refusal| match refusal {
        Refusal::Malformed(reason) => ConnectError::Malformed(reason),
        // The peer cannot decode this node's hello for the same reason, and refuses it. The error represents that
        // refusal, so its `here` is the peer's range.
        Refusal::VersionMismatch { here, there } => {
            ConnectError::Refused(Refusal::VersionMismatch { here: there, there: here })
        }
        refusal => ConnectError::Rejected(refusal),
    })?;
    Ok((version, answer, hello::Formation::stated_in(&frame)))
}

pub(super) async fn tell_cluster_id(connection: Connection, id: ClusterId) {
    let mut header = Vec::new();
    let told = async {
        let mut writer = connection.open_uni(StreamKind::CLUSTER_ID, i32::MAX).await?;
        // A plain number, which bincode always encodes.
        let _ = codec::encode(&id, &mut header);
        writer.send(&header, &[]).await?;
        writer.finish();
        Ok::<_, crate::error::WriteError>(())
    };
    if let Err(error) = told.await {
        // The hello of the next connection states the id.
        tracing::debug!(peer = %connection.peer().name, %error, "could not send the cluster id");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Incarnation;

    fn member(name: &str) -> MemberId {
        MemberId { node: NodeId::from_name(name), incarnation: Incarnation { store: 1, starts: 1 } }
    }

    fn kept(errors: Vec<ConnectError>) -> ConnectError {
        let mut failure = DialFailure::new(member("me"));
        errors.into_iter().for_each(|error| failure.note(error));
        failure.reason()
    }

    fn itself(name: &str) -> ConnectError {
        ConnectError::Refused(Refusal::Itself(member(name)))
    }

    #[test]
    fn another_node_at_an_address_says_nothing_of_the_one_that_was_meant() {
        let node = NodeId::from_name;
        let wrong = || ConnectError::WrongPeer { expected: node("a"), found: node("b") };
        let refused = || ConnectError::Refused(Refusal::Busy);
        assert_eq!(kept(vec![]), ConnectError::NoAddress);
        assert_eq!(kept(vec![wrong()]), wrong());
        assert_eq!(kept(vec![ConnectError::TimedOut, wrong()]), ConnectError::TimedOut);
        assert_eq!(kept(vec![wrong(), refused(), ConnectError::TimedOut]), refused());
    }

    /// One of several interfaces may lead back to this node.
    #[test]
    fn this_node_itself_says_nothing_of_the_one_that_was_meant() {
        let refused = || ConnectError::Refused(Refusal::Busy);
        assert_eq!(kept(vec![itself("me")]), itself("me"));
        assert_eq!(kept(vec![itself("me"), ConnectError::TimedOut]), ConnectError::TimedOut);
        assert_eq!(kept(vec![ConnectError::TimedOut, itself("me")]), ConnectError::TimedOut);
        assert_eq!(kept(vec![itself("me"), refused()]), refused());
        assert_eq!(kept(vec![ConnectError::TimedOut, itself("twin"), itself("me")]), itself("twin"));
    }
}
