//! What is going to happen in a world.

use artillery_proto::{MemberId, api::Reply, message::ChainFrame, types::update::RequestKey};

use super::{boundary::ResyncEnd, clients::Stalled, control, founding};
use crate::{client::Request, faults::Fault, network::Flight, node::Origin};

/// What is going to happen.
#[derive(Debug)]
pub(crate) enum Event {
    /// A node receives what waits for it.
    Step(usize),
    /// A node takes in what it has received.
    Take(usize),
    /// Messages are taken from a node's replicas.
    Poll(usize),
    /// A node's replicas do what they put off.
    CatchUp(usize),
    /// A replica wanted a tick.
    Tick { node: usize, slot: usize, number: u64 },
    /// A copy of a frame arrives.
    Land { from: usize, to: usize, flight: Flight, frame: Option<Box<Addressed>> },
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
    /// A client begins something.
    Think(usize),
    /// A client tries again.
    Retry { client: usize, number: u64 },
    /// A client waited long enough for an attempt.
    Unanswered { client: usize, number: u64, attempt: u32 },
    /// A client stops waiting.
    GiveUp { client: usize, number: u64 },
    /// A watcher asks for changes, or asks again.
    Watch { watcher: usize, attempt: u64 },
    /// Its question reaches a node.
    AskForChanges { watcher: usize, attempt: u64, node: usize },
    /// An answer to it comes back.
    Changes { watcher: usize, attempt: u64, reply: Box<Reply> },
    /// Something of the forming of the cluster.
    Founding(founding::Event),
    /// Something about the configuration.
    Control(control::Event),
    /// The fault with this index begins or ends.
    Fault { index: usize, begins: bool },
    /// A resync is ended, or whoever did that is over it.
    Boundary { end: ResyncEnd, source: usize, joiner: usize, over: bool },
    /// A fault that nobody planned begins or ends.
    Strike { fault: Fault, begins: bool },
    /// A local read that took long goes on.
    Leave { node: usize, id: MemberId, read: Box<Stalled> },
    /// The run enters its next part.
    Phase(Phase),
}

impl Event {
    /// The node that it waits for, if that does nothing at the moment.
    pub(super) fn waits_for(&self) -> Option<usize> {
        match self {
            Self::Step(node) | Self::Take(node) | Self::Poll(node) | Self::CatchUp(node) => Some(*node),
            Self::Tick { node, .. } | Self::Notice { node, .. } | Self::AskForChanges { node, .. } => Some(*node),
            Self::Request(arrival) => Some(arrival.node),
            Self::Leave { node, .. } => Some(*node),
            Self::Control(event) => event.waits_for(),
            _ => None,
        }
    }
}

/// A frame, and the lives of the nodes that it is from and for.
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

/// Parts of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    /// Clients work, things fail.
    Work,
    /// Clients begin nothing more.
    Quiet,
    /// Everything is read once more at every node.
    Verify,
    /// What nobody waits for any longer comes to its end.
    Drain,
    /// Nothing is left to do.
    End,
}
