//! What clients ask of nodes, and nodes of each other on their behalf.

use bytes::Bytes;

use crate::{
    ChainId, ClusterId, Epoch, MemberId, Routing, Sequence,
    api::{Query, ReadMode, Reply, Write},
    control::{
        History, NodeInfo,
        message::{AdminCommand, ArrangeError},
        recovery::{NotRecovered, Recovered, Standing},
        succession::NotFounded,
    },
    types::update::RequestKey,
};

/// Requests that may wait for their responses on one stream at a time. A receiver reads no further while so many do.
pub const MAX_OUTSTANDING: usize = 1 << 16;

/// The largest body of a request or a reply, in bytes, that shares its stream with others. A larger request has a stream
/// of kind [`REQUESTS`](crate::wire::streams::REQUESTS) to itself, a larger reply one of kind
/// [`ANSWERS`](crate::wire::streams::ANSWERS).
pub const SMALL: usize = 64 << 10;

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Comes back with the response.
    pub number: u64,
    /// Which chain is meant; of no meaning where the operation concerns none.
    pub chain: ChainId,
    /// How long the sender will wait from now on, in milliseconds. The clocks of the two needn't agree.
    pub deadline_ms: u32,
    /// A node handed it on: the receiver answers or refuses, and doesn't hand it on again.
    pub forwarded: bool,
    /// What is to be done.
    pub operation: Operation,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Read.
    Read {
        /// What.
        query: Query,
        /// How it may be served.
        mode: ReadMode,
        /// The floor of the session that it is made in, if it is in one.
        floor: Option<Sequence>,
        /// The history that its session, or its watch, belongs to: in another one it is refused.
        history: Option<ClusterId>,
    },
    /// Write.
    Write {
        /// Under which request id, if under one.
        request: Option<RequestKey>,
        /// The history that its session belongs to, if it is in one: a member of another history refuses it.
        history: Option<ClusterId>,
        /// What.
        write: Write,
    },
    /// Say which chains there are, and where their members are.
    Routing,
    /// Say how the node stands.
    Status,
    /// Do what an operator wants.
    Arrange(AdminCommand),
    /// Say what the node has, in case that others are lost for good.
    Survey,
    /// Go on alone under a new history, if the others are lost for good.
    Recover {
        /// The cluster.
        cluster: ClusterId,
        /// The history that is to end.
        history: History,
    },
    /// Give the cluster up for one that succeeds it, if no life that ever served is there.
    Found {
        /// The cluster that is given up.
        cluster: ClusterId,
        /// The node is to found the other one; otherwise it joins that.
        founds: bool,
    },
    /// Say which chains there are, and where their members are, even if another cluster succeeds this one.
    RoutingAnyway,
}

impl Operation {
    /// Whether it changes data.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. })
    }
}

/// What came of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The number of the request.
    pub number: u64,
    /// Who answered, when that isn't the node at the other end of the stream.
    pub by: Option<MemberId>,
    /// What came of it.
    pub answer: ResponseAnswer,
}

/// What came of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResponseAnswer {
    /// Of a read or a write.
    Reply(Reply),
    /// Chains, members and addresses; `None`: the cluster isn't formed yet.
    Routing(Option<Box<Routing>>),
    /// How the node stands: JSON.
    Status(Bytes),
    /// Of what an operator wants: done, in this epoch if it made one.
    Arranged(Result<Option<Epoch>, ArrangeError>),
    /// What the node has; `None`: its configuration can't be lost, or it has none yet.
    Survey(Option<Box<Standing>>),
    /// What came of a recovery.
    Recovered(Result<Box<Recovered>, NotRecovered>),
    /// The node has given its cluster up: the nodes of it that answered this one, itself first. Or why it hasn't.
    Founds(Result<Vec<NodeInfo>, NotFounded>),
}
