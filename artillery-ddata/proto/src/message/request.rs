//! What clients ask of nodes, and nodes of each other on their behalf.

use bytes::Bytes;

use crate::{
    ChainId, ClusterId, Epoch, MemberId, Routing, Sequence,
    api::{Query, ReadMode, Reply, Write},
    control::{
        History, NodeInfo,
        message::{AdminCommand, ArrangeError},
        recovery::{NotRecovered, Recovered, Standing},
        reopening::{NotReopened, Reopened},
        succession::NotFounded,
    },
    types::update::RequestKey,
};

/// How many requests may wait for their responses on one stream. A receiver reads no further while so many wait.
pub const MAX_OUTSTANDING: usize = 1 << 16;

/// The largest body of a request or a reply, in bytes, that shares its stream with others. A larger request has a
/// stream of kind [`REQUESTS`](crate::wire::streams::REQUESTS) to itself, a larger reply one of kind
/// [`ANSWERS`](crate::wire::streams::ANSWERS).
pub const SMALL: usize = 64 << 10;

/// A request to a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The number that the response repeats.
    pub number: u64,
    /// The chain that is meant; without meaning if the operation concerns none.
    pub chain: ChainId,
    /// How long the sender will wait from now on, in milliseconds. The clocks of the two needn't agree.
    pub deadline_ms: u32,
    /// A node forwarded the request: the receiver answers or refuses it, and doesn't forward it again.
    pub forwarded: bool,
    /// What is to be done.
    pub operation: Operation,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Read.
    Read {
        /// What is read.
        query: Query,
        /// How it may be served.
        mode: ReadMode,
        /// The floor of the session that the read belongs to, if it belongs to one.
        floor: Option<Sequence>,
        /// The history that its session, or its watch, belongs to: a member of another history refuses it.
        history: Option<ClusterId>,
    },
    /// Write.
    Write {
        /// The request id of the write, if it has one.
        request: Option<RequestKey>,
        /// The history that its session belongs to, if it is in one: a member of another history refuses it.
        history: Option<ClusterId>,
        /// What is written.
        write: Write,
    },
    /// What concerns the node or the cluster rather than data.
    Admin(AdminOperation),
}

impl Operation {
    /// Whether it changes data.
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. })
    }
}

/// What is to be done that neither reads nor changes data: the node answers it, not a chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdminOperation {
    /// Say which chains there are, and where their members are.
    Routing,
    /// Say what state the node is in.
    Status,
    /// Carry out an operator's command.
    Arrange(AdminCommand),
    /// Say what the node has, in case the others are lost for good.
    Survey,
    /// Go on alone under a new history, if the others are lost for good.
    Recover {
        /// The cluster.
        cluster: ClusterId,
        /// The history that is to end.
        history: History,
    },
    /// Give the cluster up for one that succeeds it, if no incarnation that ever served is there.
    Found {
        /// The cluster that is given up.
        cluster: ClusterId,
        /// Whether the node founds the new cluster; otherwise it joins that cluster.
        founds: bool,
    },
    /// Say which chains there are, and where their members are, even if another cluster succeeds this one.
    RoutingAnyway,
    /// Open a chain again from what is left, as the leader, if none of its last serving stores may come back.
    Reopen {
        /// The chain.
        chain: ChainId,
    },
}

/// The response to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The number of the request.
    pub number: u64,
    /// The member that answered, if it isn't the node at the other end of the stream.
    pub by: Option<MemberId>,
    /// The answer itself.
    pub answer: ResponseAnswer,
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResponseAnswer {
    /// To a read or a write.
    Reply(Reply),
    /// Chains, members and addresses; `None`: the cluster isn't formed yet.
    Routing(Option<Box<Routing>>),
    /// The state of the node, as JSON.
    Status(Bytes),
    /// To an operator's command: it is carried out, in this epoch if it made one.
    Arranged(Result<Option<Epoch>, ArrangeError>),
    /// What the node has; `None`: its configuration can't be lost, or it has none yet.
    Survey(Option<Box<Standing>>),
    /// The outcome of a recovery.
    Recovered(Result<Box<Recovered>, NotRecovered>),
    /// The node has given its cluster up: the nodes of that cluster that answered it, itself first. Or why it hasn't.
    Founds(Result<Vec<NodeInfo>, NotFounded>),
    /// What a chain goes on with, of which an operator has accepted a loss; or why it doesn't.
    Reopened(Result<Reopened, NotReopened>),
}
