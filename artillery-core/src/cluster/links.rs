use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{
    Timestamp,
    error::{DatagramError, WriteError},
    id::NodeId,
    transport::{Connection, Endpoint, Link, StreamKind},
};

/// A link to a node that is not an active member is closed after this time without a packet to send.
const UNUSED_LINK_TIMEOUT: Duration = Duration::from_secs(5);

const MAX_PACKET_STREAMS: usize = 64;

pub(super) struct MembershipLinks {
    endpoint: Endpoint,
    links: BTreeMap<NodeId, MembershipLink>,
    streams: Arc<Semaphore>,
}

struct MembershipLink {
    link: Link,
    addrs: Vec<SocketAddr>,
    used: Timestamp,
}

impl MembershipLinks {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, links: BTreeMap::new(), streams: Arc::new(Semaphore::new(MAX_PACKET_STREAMS)) }
    }

    /// The connection to a node. Creates the link, or updates its addresses. `None` while the link is not connected.
    fn connection(&mut self, now: Timestamp, to: NodeId, addrs: Vec<SocketAddr>) -> Option<Connection> {
        let endpoint = &self.endpoint;
        let known = self.links.entry(to).or_insert_with(|| MembershipLink {
            link: endpoint.link(to, addrs.clone()),
            addrs: addrs.clone(),
            used: now,
        });
        known.used = now;
        if known.addrs != addrs {
            known.addrs.clone_from(&addrs);
            known.link.set_addresses(addrs);
        }
        known.link.connection()
    }

    /// Sends a packet, which may get lost. A packet that is too large for a datagram on this path is sent on a stream,
    /// or dropped if too many such streams are open.
    pub(super) fn send(&mut self, now: Timestamp, to: NodeId, addrs: Vec<SocketAddr>, packet: &Bytes) {
        let Some(connection) = self.connection(now, to, addrs) else {
            self.endpoint.count_dropped_datagram();
            return;
        };
        let mut datagram = BytesMut::with_capacity(1 + packet.len());
        datagram.put_u8(StreamKind::MEMBERSHIP.0);
        datagram.extend_from_slice(packet);
        if let Err(DatagramError::TooLarge { .. }) = connection.send_datagram(datagram.freeze())
            && let Ok(permit) = Arc::clone(&self.streams).try_acquire_owned()
        {
            let packet = packet.clone();
            tokio::spawn(async move {
                // A failure loses one packet, which SWIM tolerates.
                let _ = send_by_stream(&connection, &packet).await;
                drop(permit);
            });
        }
    }

    /// Starts sending `packets` over streams, since a farewell is not repeated. Nodes without an established connection
    /// are skipped.
    pub(super) fn send_reliably(
        &mut self,
        now: Timestamp,
        packets: Vec<(NodeId, Vec<SocketAddr>, Bytes)>,
    ) -> JoinSet<()> {
        let mut sending = JoinSet::new();
        for (to, addrs, packet) in packets {
            if let Some(connection) = self.connection(now, to, addrs) {
                sending.spawn(async move {
                    // Ignore errors: a member that misses the farewell is notified of the departure by others.
                    let _ = send_by_stream(&connection, &packet).await;
                });
            }
        }
        sending
    }

    /// Closes links to nodes that are not `active`, after [`UNUSED_LINK_TIMEOUT`].
    pub(super) fn sweep(&mut self, now: Timestamp, active: impl Fn(NodeId) -> bool) {
        self.links.retain(|node, known| active(*node) || now - known.used < UNUSED_LINK_TIMEOUT);
    }
}

async fn send_by_stream(connection: &Connection, packet: &Bytes) -> Result<(), WriteError> {
    let mut writer = connection.open_uni(StreamKind::MEMBERSHIP, 0).await?;
    writer.send(packet, &[]).await?;
    writer.finish();
    writer.stopped().await;
    Ok(())
}
