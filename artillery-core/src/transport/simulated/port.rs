//! An endpoint's place in the network.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use rand::RngExt;
use tokio::time::sleep;

use super::{
    Inner,
    line::{End, Line},
};
use crate::{
    error::{CloseReason, ConnectError},
    id::{MemberId, NodeId},
    transport::{
        CloseCode, Connection, PROTOCOL_VERSIONS, PeerInfo, PeerKind, accept::peer_info, endpoint::Shared, hello,
    },
};

#[derive(Debug)]
pub(in crate::transport) struct Port {
    net: Arc<Inner>,
    name: String,
    id: MemberId,
    addr: SocketAddr,
    closed: AtomicBool,
    /// Connections that it has dialled or accepted, and its side of them.
    lines: Mutex<Vec<(Weak<Line>, usize)>>,
}

impl Port {
    pub(super) fn new(net: Arc<Inner>, name: String, id: MemberId, addr: SocketAddr) -> Self {
        Self { net, name, id, addr, closed: AtomicBool::new(false), lines: Mutex::default() }
    }

    /// Lets others dial it.
    pub(in crate::transport) fn listen(&self, shared: &Arc<Shared>) {
        self.net.lock().listeners.insert(self.addr, Arc::downgrade(shared));
    }

    /// Closes all connections, and takes and dials no new ones.
    pub(in crate::transport) fn close(&self, code: CloseCode) {
        self.closed.store(true, Ordering::Relaxed);
        let lines = std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner));
        for (line, side) in lines.iter().filter_map(|(line, side)| Some((line.upgrade()?, *side))) {
            line.close(side, code, "");
        }
    }

    pub(in crate::transport) fn chance(&self) -> f64 {
        self.net.lock().random.random()
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn keep(&self, line: &Arc<Line>, side: usize) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|(line, _)| line.strong_count() > 0);
        lines.push((Arc::downgrade(line), side));
    }

    /// There and back once, then both sides know each other.
    pub(in crate::transport) async fn dial(
        &self,
        shared: &Arc<Shared>,
        addr: SocketAddr,
        expected: Option<NodeId>,
    ) -> Result<Connection, ConnectError> {
        if self.is_closed() {
            return Err(ConnectError::EndpointClosed);
        }
        let found = self.listener(addr).ok_or(ConnectError::TimedOut)?.id;
        self.pass(self.id.node, found.node).await;
        let theirs = self.listener(addr).ok_or(ConnectError::TimedOut)?;
        let Some(other) = theirs.carrier.port().filter(|port| !port.is_closed()) else {
            return Err(ConnectError::TimedOut);
        };
        if let Some(expected) = expected.filter(|expected| *expected != found.node) {
            return Err(ConnectError::WrongPeer { expected, found: found.node });
        }
        let (mine, hers) = (shared.hello(), theirs.hello());
        if let (Some(here), Some(there)) = (mine.cluster_id, hers.cluster_id) {
            theirs.met_foreign(here, &shared.registry.succeeds());
            shared.met_foreign(there, &theirs.registry.succeeds());
        }
        hello::check(&hers, &mine, &self.name).map_err(ConnectError::Refused)?;
        hello::check(&mine, &hers, &other.name).map_err(ConnectError::Rejected)?;
        let me = Arc::new(peer_info(self.name.clone(), mine, self.addr, PROTOCOL_VERSIONS.max));
        theirs.service.admit(&me).map_err(ConnectError::Refused)?;
        self.pass(found.node, self.id.node).await;
        if self.is_closed() || other.is_closed() {
            return Err(ConnectError::Lost(CloseReason::Reset));
        }
        let them = Arc::new(peer_info(other.name.clone(), hers, addr, PROTOCOL_VERSIONS.max));
        Ok(self.connect(shared, &theirs, other, me, them))
    }

    fn connect(
        &self,
        shared: &Arc<Shared>,
        theirs: &Arc<Shared>,
        other: &Self,
        me: Arc<PeerInfo>,
        them: Arc<PeerInfo>,
    ) -> Connection {
        let line = Arc::new(Line::new(self.net.clone(), [self.id.node, other.id.node], shared.config.idle_timeout));
        self.keep(&line, 0);
        other.keep(&line, 1);
        if me.kind == PeerKind::Node {
            theirs.links.heard_from(&me);
        }
        let accepted = theirs.connection(End::accepting(line.clone()), me);
        tokio::spawn(line.clone().watch(Arc::downgrade(theirs), accepted.peer().clone()));
        shared.connection(End::dialling(line, accepted, Arc::downgrade(theirs)), them)
    }

    fn listener(&self, addr: SocketAddr) -> Option<Arc<Shared>> {
        self.net.lock().listeners.get(&addr).and_then(Weak::upgrade)
    }

    async fn pass(&self, from: NodeId, to: NodeId) {
        let (delay, _) = self.net.fortune();
        sleep(delay).await;
        self.net.until(|net| net.is_open(from, to)).await;
    }
}
