//! Requests that clients send and nodes forward, and the responses to them.

use bytes::Bytes;

use crate::{
    ChainId, ClusterId, Epoch, MemberId, Routing, Sequence,
    api::{Query, ReadMode, Reply, Write},
    control::{
        History, NodeInfo,
        message::{AdminCommand, ArrangeError},
        recovery::{NotRecovered, Recovered, Standing},
        reopening::{NotReopened, Reopened},
        succession::{NotReplaced, Replacement},
    },
    types::update::RequestKey,
};

/// The most requests that may wait for their responses on one stream. At this number the receiver stops reading
/// requests.
pub const MAX_OUTSTANDING: usize = 1 << 16;

/// The largest body, in bytes, of a request or of a reply to a read or write that shares its stream with others. A
/// larger request gets its own stream of kind [`REQUESTS`](crate::wire::streams::REQUESTS), a larger reply one of kind
/// [`ANSWERS`](crate::wire::streams::ANSWERS). Other responses share the stream whatever their size.
pub const SMALL: usize = 64 << 10;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The response repeats this number.
    pub number: u64,
    /// The chain that should answer; ignored if the operation concerns no chain.
    pub chain: ChainId,
    /// How long the sender waits from now on, in milliseconds. A duration needs no synchronized clocks.
    pub deadline_ms: u32,
    /// Whether a node forwarded the request: then the receiver doesn't forward it again.
    pub forwarded: bool,
    pub operation: Operation,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    Read {
        query: Query,
        mode: ReadMode,
        /// The floor of the read's session, if it has one.
        floor: Option<Sequence>,
        /// The history of the read's session or watch. A member in another history refuses the request.
        history: Option<ClusterId>,
    },
    Write {
        /// Identifies the write across its retries.
        request: Option<RequestKey>,
        /// The history of the write's session, if it has one. A member in another history refuses the request.
        history: Option<ClusterId>,
        write: Write,
    },
    /// An operation on the node or the cluster, not on data.
    Admin(AdminOperation),
}

impl Operation {
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Write { .. })
    }

    /// The first version of the protocol that has this operation.
    pub fn since(&self) -> u16 {
        match self {
            Self::Read { query: Query::Digest(_) | Query::Copy(_), .. } => 2,
            _ => 1,
        }
    }
}

/// An operation that the node itself answers, not a chain. `Recover`, `Replace`, `Reopen` and [`AdminCommand::GiveUp`]
/// may discard acknowledged data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdminOperation {
    /// Returns the chains and the addresses of the nodes.
    Routing,
    /// Returns the state of the node as JSON.
    Status,
    /// Executes an operator's command.
    Arrange(AdminCommand),
    /// Returns what data the node holds, in case the other nodes are lost permanently.
    Survey,
    /// Continues alone under a new history, if the other nodes are lost permanently.
    Recover {
        cluster: ClusterId,
        /// The history that should end.
        history: History,
    },
    /// Abandons the cluster for a new one, if no incarnation that ever served is still reachable.
    Replace {
        /// The cluster to abandon.
        cluster: ClusterId,
        by: Replacement,
    },
    /// As `Routing`, but also answered if another cluster has succeeded this one.
    RoutingAnyway,
    /// Reopens a chain from the best available store, or empty. Only the leader does so, and only if every serving
    /// member has failed and no available store of theirs may hold all committed updates.
    Reopen { chain: ChainId },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// The number of the request.
    pub number: u64,
    /// The member that answered, if it isn't the node at the other end of the stream.
    pub by: Option<MemberId>,
    pub answer: ResponseAnswer,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResponseAnswer {
    /// The reply to a read or a write.
    Reply(Reply),
    /// Chains, members and addresses; `None`: the cluster isn't formed yet, or the node yields to a successor.
    Routing(Option<Box<Routing>>),
    /// The state of the node, as JSON.
    Status(Bytes),
    /// The result of an operator's command, with the epoch that it created, if any.
    Arranged(Result<Option<Epoch>, ArrangeError>),
    /// What data the node holds; `None`: it follows no configuration log, or can't answer now.
    Survey(Option<Box<Standing>>),
    Recovered(Result<Box<Recovered>, NotRecovered>),
    /// If the node has abandoned its cluster: the nodes of that cluster that answered it, itself first.
    Replaced(Result<Vec<NodeInfo>, NotReplaced>),
    /// The store from which the chain was reopened, or the reason why it wasn't.
    Reopened(Result<Reopened, NotReopened>),
}
