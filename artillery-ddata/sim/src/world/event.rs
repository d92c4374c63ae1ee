//! Events of a world, which its queue holds until they are due.

use artillery_proto::{MemberId, api::Reply, message::ChainFrame, types::update::RequestKey};

use super::{boundary::ResyncEnd, clients::Stalled, contenders, control, followers, founding};
use crate::{client::Request, faults::Fault, network::Flight, node::Origin};

#[derive(Debug)]
pub(crate) enum Event {
    // A node receives its queued inputs.
    Step(usize),
    // A node processes the inputs that it received.
    Take(usize),
    // A node polls messages from its replicas and sends them.
    Poll(usize),
    Synced { node: usize, id: MemberId },
    CatchUp(usize),
    Tick { node: usize, slot: usize, number: u64 },
    // A copy of a frame arrives; `None` if it was lost.
    Land { from: usize, to: usize, flight: Flight, frame: Option<Box<Addressed>> },
    Young(usize),
    Notice { node: usize, peer: usize, generation: u64, connected: bool },
    // A node learns the configuration of a chain.
    Enter { node: usize, slot: usize },
    Lease(usize),
    Request(Box<Arrival>),
    Reply(Origin, Box<Reply>),
    // A client begins an operation.
    Think(usize),
    Retry { client: usize, number: u64 },
    Unanswered { client: usize, number: u64, attempt: u32 },
    GiveUp { client: usize, number: u64 },
    Watch { watcher: usize, attempt: u64 },
    AskForChanges { watcher: usize, attempt: u64, node: usize },
    Changes { watcher: usize, attempt: u64, reply: Box<Reply> },
    Contend(contenders::Event),
    Follow(followers::Event),
    Founding(founding::Event),
    Control(control::Event),
    Fault { index: usize, begins: bool },
    // A resync is interrupted, or the node or link is restored.
    Boundary { end: ResyncEnd, source: usize, joiner: usize, over: bool },
    // An unplanned fault begins or ends.
    Strike { fault: Fault, begins: bool },
    // A stalled local read resumes.
    Leave { node: usize, id: MemberId, read: Box<Stalled> },
    Phase(Phase),
}

impl Event {
    /// The node that must be running to handle the event. The event waits while that node is paused or busy.
    pub(super) fn waits_for(&self) -> Option<usize> {
        match self {
            Self::Step(node) | Self::Take(node) | Self::Poll(node) | Self::CatchUp(node) => Some(*node),
            Self::Tick { node, .. } | Self::Notice { node, .. } | Self::AskForChanges { node, .. } => Some(*node),
            Self::Request(arrival) => Some(arrival.node),
            Self::Leave { node, .. } | Self::Synced { node, .. } => Some(*node),
            Self::Control(event) => event.waits_for(),
            Self::Contend(event) => event.waits_for(),
            Self::Follow(event) => event.waits_for(),
            _ => None,
        }
    }
}

/// A frame with the incarnations of its sender and receiver.
pub(crate) type Addressed = ([MemberId; 2], ChainFrame);

#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) origin: Origin,
    pub(crate) node: usize,
    pub(crate) request: Request,
    pub(crate) key: Option<RequestKey>,
    pub(crate) until: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    /// Clients send requests, and faults occur.
    Work,
    /// Clients begin no further operations.
    Quiet,
    /// Every key is read once more at every live node that serves all chains.
    Verify,
    /// Waits for requests whose clients no longer wait.
    Drain,
    End,
}
