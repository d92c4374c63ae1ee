//! Calls to other nodes about the configuration, each on a stream of its own, over the existing links.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use artillery_core::{
    MemberId, NodeId,
    error::{ConnectError, ReadError, WriteError},
    transport::{CloseCode, Connection, Endpoint, Link, StreamKind},
};
use bytes::Bytes;

use crate::{
    control::{
        NodeInfo,
        embedded::{CallError, LogTransport},
        log::BoxFuture,
    },
    message::control::{ControlAnswer, ControlCall},
    wire::{
        control::{ControlDecodeError, decode_answer, encode_call},
        streams,
    },
};

/// Above all data streams, because leases depend on these calls.
const PRIORITY: i32 = 20;

/// Calls other nodes, over links that it keeps.
pub(crate) struct ControlCalls(Mutex<Option<Open>>);

struct Open {
    endpoint: Endpoint,
    links: BTreeMap<NodeId, Link>,
    /// The addresses of each node, as last reported by the membership.
    met: BTreeMap<NodeId, Vec<SocketAddr>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CallFailure {
    #[error(transparent)]
    Unreached(#[from] ConnectError),
    #[error("{found} answered instead")]
    OtherLife { found: MemberId },
    #[error(transparent)]
    NotSent(#[from] WriteError),
    #[error(transparent)]
    NotHeard(#[from] ReadError),
    #[error("the node gave no answer")]
    NoAnswer,
    #[error("no answer: {0}")]
    Malformed(#[from] ControlDecodeError),
    #[error("can't be encoded: {0}")]
    Unencodable(#[from] artillery_core::internal::codec::CodecError),
    #[error("no answer in {0:?}")]
    TimedOut(Duration),
}

impl ControlCalls {
    pub(crate) fn new(endpoint: Endpoint) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Open { endpoint, links: BTreeMap::new(), met: BTreeMap::new() }))))
    }

    fn open(&self) -> MutexGuard<'_, Option<Open>> {
        // No code that holds the lock can panic halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls exactly this incarnation of a node.
    pub(crate) async fn ask(
        &self,
        to: MemberId,
        addrs: &[SocketAddr],
        call: &ControlCall,
        limit: Duration,
    ) -> Result<ControlAnswer, CallFailure> {
        self.ask_one(to, |found| found == to, addrs, call, limit).await
    }

    /// Calls the present incarnation of this store, at the addresses that the membership last reported, otherwise at
    /// `addrs`.
    pub(crate) async fn ask_store(
        &self,
        of: MemberId,
        addrs: &[SocketAddr],
        call: &ControlCall,
        limit: Duration,
    ) -> Result<ControlAnswer, CallFailure> {
        let met = self.open().as_ref().and_then(|open| open.met.get(&of.node).cloned());
        self.ask_one(of, |found| found.shares_store(of), met.as_deref().unwrap_or(addrs), call, limit).await
    }

    async fn ask_one(
        &self,
        to: MemberId,
        is_meant: impl Fn(MemberId) -> bool,
        addrs: &[SocketAddr],
        call: &ControlCall,
        limit: Duration,
    ) -> Result<ControlAnswer, CallFailure> {
        let link = self.link(to.node, addrs).ok_or(ConnectError::EndpointClosed)?;
        let answer = async {
            let connection = link.connected().await?;
            let found = connection.peer().id;
            if !is_meant(found) {
                return Err(CallFailure::OtherLife { found });
            }
            ask_on(&connection, call).await
        };
        tokio::time::timeout(limit, answer).await.unwrap_or(Err(CallFailure::TimedOut(limit)))
    }

    /// The link to a node; `None`: closed. The link is kept, so that the next call finds it connected.
    fn link(&self, node: NodeId, addrs: &[SocketAddr]) -> Option<Link> {
        let mut open = self.open();
        let Open { endpoint, links, .. } = open.as_mut()?;
        let link = endpoint.link(node, addrs.to_vec());
        links.insert(node, link.clone());
        Some(link)
    }

    /// Records the addresses that the membership reports for a node.
    pub(crate) fn meets(&self, node: NodeId, addrs: Vec<SocketAddr>) {
        if let Some(open) = &mut *self.open() {
            open.met.insert(node, addrs);
        }
    }

    /// Drops the links and addresses of all nodes for which `keep` is `false`.
    pub(crate) fn retain(&self, keep: impl Fn(NodeId) -> bool) {
        if let Some(open) = &mut *self.open() {
            open.links.retain(|&node, _| keep(node));
            open.met.retain(|&node, _| keep(node));
        }
    }

    /// Drops the links and the endpoint. Later calls fail.
    pub(crate) fn close(&self) {
        self.open().take();
    }
}

async fn ask_on(connection: &Connection, call: &ControlCall) -> Result<ControlAnswer, CallFailure> {
    let encoded = encode_call(call)?;
    let (mut writer, mut reader) = connection.open_bi(StreamKind(streams::CONTROL), PRIORITY).await?;
    writer.send(&encoded.header, &[encoded.body]).await?;
    writer.finish();
    let frame = reader.next().await?.ok_or(CallFailure::NoAnswer)?;
    decode_answer(&frame).map_err(|error| {
        connection.close(CloseCode::VIOLATION, &error.to_string());
        error.into()
    })
}

/// Carries the messages of the configuration log's group.
pub(crate) struct LogPeers {
    pub(crate) calls: Arc<ControlCalls>,
    /// The time limit of a call. The group itself usually ends a call earlier.
    pub(crate) limit: Duration,
}

impl LogTransport for LogPeers {
    fn call(&self, to: &NodeInfo, message: Bytes) -> BoxFuture<'static, Result<Bytes, CallError>> {
        let (calls, to, limit) = (self.calls.clone(), to.clone(), self.limit);
        Box::pin(async move {
            match calls.ask_store(to.id, &to.addrs, &ControlCall::Log(message), limit).await {
                Ok(ControlAnswer::Log(answer)) => Ok(answer),
                Ok(_) => Err(CallError::Senseless("it answers another question")),
                Err(error) => Err(CallError::Unreachable(error.to_string())),
            }
        })
    }
}
