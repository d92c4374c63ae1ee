//! Requests to one node: many at a time on one connection, each waiting for its own response.
//!
//! Small ones share two streams, one for reads and one for writes. A large one has a stream to itself, and so has a large
//! answer, so that nothing small stands behind either of them. Numbers are unique on the connection, so that any answer
//! finds its request.

mod apart;
mod calls;
mod lane;

use std::{
    pin::Pin,
    sync::{Arc, atomic::AtomicU64},
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
    ChainId, MemberId, budget,
    error::Unknown,
    message::request::{Operation, Response, SMALL},
};

/// What is asked of a node.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) chain: ChainId,
    pub(crate) forwarded: bool,
    /// Nobody else will do.
    pub(crate) only: Option<MemberId>,
    pub(crate) operation: Operation,
}

/// What came of a question.
#[derive(Debug)]
pub(crate) enum CallOutcome {
    Answered(Response),
    /// It was never handed to a connection.
    NotSent(NotSent),
    /// It was, and there is no answer.
    Unanswered(Unknown),
}

/// Why nobody can have taken a question in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotSent {
    TimedOut,
    /// The time was up while too much was under way to the node.
    Busy,
    /// The connection was lost before all of it was handed over.
    Lost,
    /// The endpoint is closed.
    Stopped,
    /// Larger than frames may be, in bytes.
    TooLarge {
        len: u64,
        limit: u64,
    },
}

/// What carries the requests of a node or client.
#[derive(Debug, Clone)]
pub(crate) struct Carrier {
    pub(crate) runtime: Handle,
    /// A thread of its own drives it, even if its callers' runtimes are not driven any more.
    pub(crate) is_driven: bool,
}

impl Carrier {
    /// Whether its tasks keep the time of this caller. If they run in another runtime than the caller, that runtime may not be driven any
    /// more, so the caller has to keep the time by itself.
    pub(crate) fn keeps_time(&self) -> bool {
        self.is_driven || Handle::try_current().is_ok_and(|here| here.id() == self.runtime.id())
    }
}

/// The way to one node. Reads have a stream of their own, so that they needn't stand behind writes.
pub(crate) struct Channel {
    link: Link,
    reads: Lane,
    writes: Lane,
    apart: LargeCalls,
    /// Takes in large answers; ends with the channel.
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
        Self { link, reads, writes, apart, _returns: returns }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.link.is_up()
    }

    /// Why there is no connection, as far as is known.
    pub(crate) fn failure(&self) -> Option<Arc<ConnectError>> {
        match self.link.watch().current() {
            LinkState::Down(reason) => reason,
            LinkState::Up(_) => None,
        }
    }

    /// Asks, and waits for the answer until `deadline`. Once there has been none for as long as `doubts` say, the end of what
    /// they do ends it too. Dropped, it leaves nothing behind but the request itself, if that was sent.
    pub(crate) async fn ask<'a>(
        &self,
        question: &Question,
        deadline: Instant,
        doubts: Option<(Duration, impl FnOnce() -> Doubts<'a>)>,
    ) -> CallOutcome {
        let bytes = budget::of_operation(&question.operation);
        if bytes > SMALL {
            // Boxed: the future of a small call would have room for it, too.
            return Box::pin(self.apart.ask(question, bytes, deadline, doubts)).await;
        }
        let lane = self.lane(&question.operation);
        lane.ask(question, budget::on_the_wire(&question.operation), deadline, doubts).await
    }

    /// Room for a small question that can be asked now; `None`: it is large, or would have to wait.
    pub(crate) fn room_now(&self, operation: &Operation) -> Option<CallRoom> {
        if budget::of_operation(operation) > SMALL || !self.is_connected() {
            return None;
        }
        self.lane(operation).room_now(budget::on_the_wire(operation))
    }

    /// Begins to ask, for a caller that polls the call in place, and whose time the [carrier](Carrier::keeps_time) keeps. The node is told
    /// of `deadline`; time is up at `until`. `None`: nothing is asked here any more.
    pub(crate) fn begin(
        &self,
        room: CallRoom,
        question: Question,
        deadline: Instant,
        until: Instant,
    ) -> Option<LaneCall> {
        self.lane(&question.operation).calls().begin(question, deadline, until, room)
    }

    /// What comes of a call that was begun for this question, as [`ask`](Self::ask) says it.
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

/// What is done when there is no answer for some time. Boxed: few calls come so far.
pub(crate) type Doubts<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Without doubts: that node is waited for until the deadline.
pub(crate) const NO_DOUBTS: Option<(Duration, fn() -> Doubts<'static>)> = None;
