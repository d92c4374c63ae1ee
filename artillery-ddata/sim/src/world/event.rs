//! Future events of a world.

use artillery_proto::{MemberId, api::Reply, message::ChainFrame, types::update::RequestKey};

use super::{boundary::ResyncEnd, clients::Stalled, control, founding};
use crate::{client::Request, faults::Fault, network::Flight, node::Origin};

/// A future event.
#[derive(Debug)]
pub(crate) enum Event {
    /// A node receives its waiting inputs.
    Step(usize),
    /// A node processes what it has received.
    Take(usize),
    /// Messages are taken from a node's replicas.
    Poll(usize),
    /// The journal of an incarnation is to be synced.
    Synced { node: usize, id: MemberId },
    /// The replicas of a node do deferred work.
    CatchUp(usize),
    /// A tick that a replica requested.
    Tick { node: usize, slot: usize, number: u64 },
    /// A copy of a frame arrives.
    Land { from: usize, to: usize, flight: Flight, frame: Option<Box<Addressed>> },
    /// A node that dies young ends, or starts again.
    Young(usize),
    /// A node notices the state of a connection.
    Notice { node: usize, peer: usize, generation: u64, connected: bool },
    /// A node learns the configuration of a chain.
    Enter { node: usize, slot: usize },
    /// A node's lease is renewed.
    Lease(usize),
    /// A client's request reaches a node.
    Request(Box<Arrival>),
    /// A reply reaches a client.
    Reply(Origin, Box<Reply>),
    /// A client begins an operation.
    Think(usize),
    /// A client retries.
    Retry { client: usize, number: u64 },
    /// A client stops waiting for an attempt.
    Unanswered { client: usize, number: u64, attempt: u32 },
    /// A client stops waiting for an operation.
    GiveUp { client: usize, number: u64 },
    /// A watcher asks for changes, or asks again.
    Watch { watcher: usize, attempt: u64 },
    /// The request of a watcher reaches a node.
    AskForChanges { watcher: usize, attempt: u64, node: usize },
    /// An answer reaches a watcher.
    Changes { watcher: usize, attempt: u64, reply: Box<Reply> },
    /// An event of the formation of the cluster.
    Founding(founding::Event),
    /// An event of the configuration.
    Control(control::Event),
    /// The fault with this index begins or ends.
    Fault { index: usize, begins: bool },
    /// A resync is ended, or the node or link that ended it is back.
    Boundary { end: ResyncEnd, source: usize, joiner: usize, over: bool },
    /// An unplanned fault begins or ends.
    Strike { fault: Fault, begins: bool },
    /// A stalled local read goes on.
    Leave { node: usize, id: MemberId, read: Box<Stalled> },
    /// The run enters its next phase.
    Phase(Phase),
}

impl Event {
    /// The node that handles the event. While that node is paused, the event waits.
    pub(super) fn waits_for(&self) -> Option<usize> {
        match self {
            Self::Step(node) | Self::Take(node) | Self::Poll(node) | Self::CatchUp(node) => Some(*node),
            Self::Tick { node, .. } | Self::Notice { node, .. } | Self::AskForChanges { node, .. } => Some(*node),
            Self::Request(arrival) => Some(arrival.node),
            Self::Leave { node, .. } | Self::Synced { node, .. } => Some(*node),
            Self::Control(event) => event.waits_for(),
            _ => None,
        }
    }
}

/// A frame, and the incarnations of its sender and receiver.
pub(crate) type Addressed = ([MemberId; 2], ChainFrame);

/// A client's request on its way to a node.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) origin: Origin,
    pub(crate) node: usize,
    pub(crate) request: Request,
    pub(crate) key: Option<RequestKey>,
    /// When the client stops waiting.
    pub(crate) until: u64,
}

/// The phases of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    /// Clients work, things fail.
    Work,
    /// Clients begin nothing more.
    Quiet,
    /// Everything is read once more at every node.
    Verify,
    /// Requests that no client waits for come to their end.
    Drain,
    /// The run is over.
    End,
}
