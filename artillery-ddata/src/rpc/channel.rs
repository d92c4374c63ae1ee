//! Requests to one node: many concurrently on one connection, each waiting for its own response.
//!
//! Small requests share two streams, one for reads and one for writes. A large request or answer has a stream to
//! itself, so that nothing small waits behind it. Request numbers are unique on the connection: they match answers to
//! requests.

mod apart;
mod calls;
mod lane;

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use artillery_core::{
    config::TransportConfig,
    error::ConnectError,
    transport::{Link, LinkState},
};
use tokio::{runtime::Handle, task::JoinSet, time::Instant};

pub(crate) use self::calls::{CallRoom, LaneCall};
use self::{
    apart::{LargeCalls, Returns},
    lane::Lane,
};
use crate::{
    ChainId, Error, MemberId, NodeId,
    api::Refusal,
    budget,
    error::{NotApplied, Unknown},
    message::request::{AdminOperation, Operation, Response, SMALL},
};

#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) chain: ChainId,
    pub(crate) forwarded: bool,
    /// If set, only this member may answer.
    pub(crate) only: Option<MemberId>,
    pub(crate) operation: Operation,
}

impl Question {
    /// A question about the node at the other end itself.
    pub(crate) fn admin(operation: AdminOperation) -> Self {
        Self { chain: ChainId(0), forwarded: true, only: None, operation: Operation::Admin(operation) }
    }
}

#[derive(Debug)]
pub(crate) enum CallOutcome {
    Answered(Response),
    NotSent(NotSent),
    /// The question was sent, and no answer arrived.
    Unanswered(Unknown),
}

/// Why the node certainly didn't receive a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotSent {
    TimedOut,
    /// The deadline passed while too many requests to the node were in flight.
    Busy,
    /// The connection was lost before the whole request was passed to it.
    Lost,
    Stopped,
    /// The request is larger than the limit for frames, in bytes.
    TooLarge {
        len: u64,
        limit: u64,
    },
    /// The node's protocol doesn't have the operation.
    Unsupported {
        needs: u16,
        has: u16,
    },
}

impl NotSent {
    /// The error of a request to `node`.
    pub(crate) fn error(self, node: NodeId) -> Error {
        match self {
            Self::Busy => Error::refused(Refusal::Busy, None),
            Self::Lost => Error::not_applied(NotApplied::Unreachable { node, reason: None }),
            Self::TimedOut => Error::not_applied(NotApplied::TimedOut),
            Self::Stopped => Error::not_applied(NotApplied::Stopped),
            Self::Unsupported { needs, has } => Error::refused(Refusal::Unsupported { needs, has }, Some(node)),
            Self::TooLarge { len, limit } => Error::refused(Refusal::ValueTooLarge { len, limit }, None),
        }
    }
}

/// The runtime that carries the requests of a node or client.
#[derive(Debug, Clone)]
pub(crate) struct Carrier {
    pub(crate) runtime: Handle,
    /// Whether a dedicated thread drives the runtime, even while no caller's runtime is driven.
    pub(crate) is_driven: bool,
}

impl Carrier {
    /// Whether the runtime's tasks enforce this caller's deadlines. If the caller is in another runtime, this one may
    /// no longer be driven, so the caller enforces its deadlines itself.
    pub(crate) fn keeps_time(&self) -> bool {
        self.is_driven || Handle::try_current().is_ok_and(|here| here.id() == self.runtime.id())
    }
}

/// The channel to one node. Reads have a stream of their own, so that they never wait behind writes.
pub(crate) struct Channel {
    link: Link,
    /// Whether a call has waited in vain for a connection since the last one was lost.
    was_awaited: AtomicBool,
    reads: Lane,
    writes: Lane,
    apart: LargeCalls,
    _returns: JoinSet<()>,
}

impl Channel {
    pub(crate) fn new(link: Link, config: &TransportConfig, carrier: &Carrier) -> Self {
        let numbers = Arc::new(AtomicU64::new(0));
        let lane = |priority| Lane::spawn(link.clone(), priority, config, numbers.clone(), carrier);
        let (reads, writes) = (lane(1), lane(0));
        let apart = LargeCalls::new(link.clone(), config, numbers.clone());
        let asked = [reads.calls().clone(), writes.calls().clone()];
        let mut returns = JoinSet::new();
        returns.spawn_on(Returns::new(link.clone(), asked, apart.waiting().clone()).run(), &carrier.runtime);
        Self { link, was_awaited: AtomicBool::new(false), reads, writes, apart, _returns: returns }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.link.is_up()
    }

    /// Records whether a call that waited for a connection got one.
    pub(crate) fn awaited(&self, is_connected: bool) {
        self.was_awaited.store(!is_connected, Ordering::Relaxed);
    }

    /// Whether there is no connection, and the last dial, or the last wait for a connection, failed. The link keeps
    /// dialling.
    pub(crate) fn is_unreached(&self) -> bool {
        if self.is_connected() {
            self.awaited(true);
            return false;
        }
        self.was_awaited.load(Ordering::Relaxed) || self.failure().is_some()
    }

    pub(crate) fn failure(&self) -> Option<Arc<ConnectError>> {
        match self.link.watch().current() {
            LinkState::Down(reason) => reason,
            LinkState::Up(_) => None,
        }
    }

    /// Asks, and waits for the answer until `deadline`. If no answer has arrived after the duration in `doubts`, the
    /// future in `doubts` starts; the call ends at the latest when this future ends. Dropping the call doesn't recall a
    /// request that was sent.
    pub(crate) async fn ask<'a>(
        &self,
        question: &Question,
        deadline: Instant,
        doubts: Option<(Duration, impl FnOnce() -> Doubts<'a>)>,
    ) -> CallOutcome {
        let bytes = budget::of_operation(&question.operation);
        if bytes > SMALL {
            // Boxed; otherwise the future of every small call would be as large as this one.
            return Box::pin(self.apart.ask(question, bytes, deadline, doubts)).await;
        }
        let lane = self.lane(&question.operation);
        lane.ask(question, budget::on_the_wire(&question.operation), deadline, doubts).await
    }

    /// The capacity for a small question that can be sent at once. `None`: the question is large or would have to wait.
    pub(crate) fn room_now(&self, operation: &Operation) -> Option<CallRoom> {
        if budget::of_operation(operation) > SMALL || !self.is_connected() {
            return None;
        }
        self.lane(operation).room_now(budget::on_the_wire(operation))
    }

    /// Begins a call that the caller polls in place. Use it only where the [carrier](Carrier::keeps_time) enforces the
    /// caller's deadlines. `deadline` is for the node; the call times out at `until`. `None` if the channel is closed.
    pub(crate) fn begin(
        &self,
        room: CallRoom,
        question: Question,
        deadline: Instant,
        until: Instant,
    ) -> Option<LaneCall> {
        self.lane(&question.operation).calls().begin(question, deadline, until, room)
    }

    /// Waits for the outcome of a begun call, like [`ask`](Self::ask).
    pub(crate) async fn outcome<'a>(
        &self,
        question: &Question,
        call: LaneCall,
        (until, deadline): (Instant, Instant),
        doubts: Option<impl FnOnce() -> Doubts<'a>>,
    ) -> CallOutcome {
        self.lane(&question.operation).outcome(call, until, deadline, doubts).await
    }

    fn lane(&self, operation: &Operation) -> &Lane {
        if operation.is_write() { &self.writes } else { &self.reads }
    }
}

/// The future that starts after a long wait for an answer. Boxed, since few calls wait that long.
pub(crate) type Doubts<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// No doubts: the call waits for the node until the deadline.
pub(crate) const NO_DOUBTS: Option<(Duration, fn() -> Doubts<'static>)> = None;
