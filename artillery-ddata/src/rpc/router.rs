//! Picks the node that a request goes to, and retries until the outcome is certain or the deadline has passed.

mod account;
mod attached;
mod begin;
mod doubts;
mod first;
#[cfg(feature = "testing")]
mod observed;
mod once;
mod peers;
mod pick;
mod placing;
mod read;
mod routes;
mod write;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock, Weak},
    time::Duration,
};

use artillery_core::{internal::clock::NodeClock, transport::Endpoint};
use bytes::Bytes;
use tokio::{runtime::Handle, time::Instant};

pub(crate) use self::begin::poll_budget;
pub use self::pick::Spread;
use self::{
    doubts::DoubtfulCalls,
    first::First,
    once::{Tried, ask_here, patience},
    peers::Peers,
    pick::{Attempts, Pick},
};
pub(crate) use self::{
    read::{HowToRead, SentRead},
    routes::{AskError, LearnedRoutes, Routes, ask_on, ask_once},
    write::{HowToWrite, SentWrite, WriteTarget},
};
use super::{
    channel::{Carrier, Question},
    requests::Requests,
};
use crate::{
    Error, MemberId, NodeId, Place, Routing,
    api::{
        Refusal, Reply, Write,
        retry::{Ending, NextAttempt, Repeat, RetryState},
    },
    error::{Advice, NotApplied, Unknown},
    local::{Here, Local},
    message::request::Operation,
    types::update::MAX_KEY,
};

/// No retry begins with less time left: it would more likely end with an unknown outcome than with an answer.
const MIN_ATTEMPT_TIME: Duration = Duration::from_millis(10);
/// About thirty years.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

#[derive(Debug, Clone)]
pub(crate) struct CallAnswer {
    pub(crate) reply: Reply,
    pub(crate) node: MemberId,
    pub(crate) place: Place,
}

/// Routes each key to the members that serve it. Each node and each client has one router.
pub(crate) struct Router {
    /// For tasks that outlive their call.
    me: Weak<Self>,
    routes: Routes,
    /// The largest accepted value, in bytes; `None`: not known here.
    max_value_bytes: Option<u64>,
    carrier: Carrier,
    /// Read at each request by [`Router::peers`]; replaced as a whole by [`Router::change_peers`].
    peers: RwLock<Arc<Peers>>,
    changing: Mutex<()>,
    order: pick::ReadOrder,
    requests: Requests,
    doubts: DoubtfulCalls,
    attached: attached::Attached,
    #[cfg(feature = "testing")]
    pub(crate) observer: std::sync::OnceLock<crate::rpc::observer::Observer>,
}

/// How a call begins.
#[expect(clippy::large_enum_variant, reason = "most calls are over before they need an allocation")]
enum Start {
    Anew,
    /// The first attempt goes to a chain of this node.
    Here(Here),
    /// The first attempt was made.
    InFlight(Box<First>),
    /// Attempts may have been made; their outcomes are unknown.
    Unremembered,
}

/// How a call ended without an answer.
#[derive(Debug)]
pub(crate) enum RequestError {
    Certainly(Error),
    /// A request was sent, and something may have been applied.
    Perhaps(Unknown),
}

impl RequestError {
    /// The error of a read: a read applies nothing, so its outcome is never unknown.
    fn of_read(self) -> Error {
        match self {
            Self::Certainly(error) => error,
            Self::Perhaps(_) => Error::not_applied(NotApplied::TimedOut),
        }
    }
}

impl Router {
    /// The router of a node, which serves from `local` where possible, and uses its routing. Must be called within the
    /// runtime that carries its requests; `is_driven`: whether a thread of its own drives that runtime.
    pub(crate) fn of_node(local: Arc<Local>, endpoint: Endpoint, max_value_bytes: u64, is_driven: bool) -> Arc<Self> {
        Self::made(Routes::Node(local), endpoint, Some(max_value_bytes), Spread::Sticky, is_driven)
    }

    /// The router of a client. Must be called within the runtime that carries its requests.
    pub(crate) fn of_client(routes: Routes, endpoint: Endpoint, spread: Spread) -> Arc<Self> {
        Self::made(routes, endpoint, None, spread, false)
    }

    fn made(
        routes: Routes,
        endpoint: Endpoint,
        max_value_bytes: Option<u64>,
        spread: Spread,
        is_driven: bool,
    ) -> Arc<Self> {
        let order = pick::ReadOrder::new(endpoint.id().node, spread);
        let peers = RwLock::new(Arc::new(Peers { endpoint: Some(endpoint), channels: BTreeMap::new() }));
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            routes,
            max_value_bytes,
            carrier: Carrier { runtime: Handle::current(), is_driven },
            peers,
            changing: Mutex::default(),
            order,
            requests: Requests::default(),
            doubts: DoubtfulCalls::default(),
            attached: attached::Attached::default(),
            #[cfg(feature = "testing")]
            observer: std::sync::OnceLock::new(),
        })
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.carrier.runtime
    }

    /// The service of this type that all handles of this router share. The first call makes it; it must not own the
    /// router.
    pub(crate) fn attached<T: std::any::Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        self.attached.get(make)
    }

    /// The clock of this process.
    pub(crate) fn clock(&self) -> NodeClock {
        self.local().map(|local| local.clock.clone()).unwrap_or_default()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).endpoint.is_none()
    }

    /// The chains served in this process, if it is a node.
    pub(crate) fn local(&self) -> Option<&Local> {
        self.routes.local()
    }

    pub(crate) fn known(&self) -> Option<Arc<Routing>> {
        self.routes.known()
    }

    /// Ends all requests, and drops the endpoint and its links.
    pub(crate) fn stop(&self) {
        self.change_peers(|peers| {
            peers.endpoint = None;
            peers.channels.clear();
        });
    }

    /// Retries until the outcome is certain or `deadline` has passed. An attempt that certainly applied nothing may be
    /// retried. So may any attempt of a read, of the opening of a session, or of a write with a request id. A forwarded
    /// request gets one attempt: its sender decides whether to retry.
    pub(crate) async fn call(&self, question: Question, deadline: Instant) -> Result<CallAnswer, RequestError> {
        self.call_from(Start::Anew, question, deadline, |_, _| false).await
    }

    /// Like [`call`](Self::call), but begins as `start` states. When the session is full, `leaves` receives the earlier
    /// attempts and decides: `true` ends the call, so that the request can move to another session; `false` retries
    /// here.
    async fn call_from(
        &self,
        mut start: Start,
        mut question: Question,
        deadline: Instant,
        leaves: impl Fn(&mut Question, &RetryState) -> bool,
    ) -> Result<CallAnswer, RequestError> {
        let mut tries = match start {
            Start::Unremembered => unremembered(&question.operation),
            _ => RetryState::new(repeat(&question.operation)),
        };
        let mut attempts = Attempts::default();
        let mut unknown = Unknown::TimedOut;
        loop {
            let (tried, asked) = match std::mem::replace(&mut start, Start::Anew) {
                Start::InFlight(first) => Box::pin(self.await_first(first, &question)).await,
                Start::Here(here) => self.attempt(&question, Some(here), &attempts, deadline).await,
                Start::Anew | Start::Unremembered => self.attempt(&question, None, &attempts, deadline).await,
            };
            let mut refusal = None;
            // The error to report if this was the last attempt.
            let (verdict, error) = match tried {
                Tried::Answered(answer) => {
                    let verdict = tries.replied(&answer.reply);
                    let error = match answer.reply {
                        _ if verdict == NextAttempt::Done => return Ok(answer),
                        Reply::Refused(reason) => {
                            refusal = Some(reason);
                            Error::refused(reason, Some(answer.node.node))
                        }
                        _ => Error::not_applied(NotApplied::TimedOut),
                    };
                    (verdict, error)
                }
                Tried::Unanswered(reason) => {
                    unknown = reason;
                    (tries.unanswered(), Error::not_applied(NotApplied::TimedOut))
                }
                Tried::Nothing(error) if error.way_on() == Advice::Change => {
                    (NextAttempt::Over(tries.give_up()), error)
                }
                Tried::Nothing(error) => {
                    match &error {
                        Error::Refused { reason, .. } => refusal = Some(*reason),
                        Error::NotApplied { reason: NotApplied::Unreachable { node, .. } } => attempts.unreached(*node),
                        _ => {}
                    }
                    (NextAttempt::Again, error)
                }
            };
            if refusal == Some(Refusal::OtherHistory) && !question.forwarded {
                // The next request should use newer routing. Boxed, since it is rare: a call's future is as large as
                // everything that it may await.
                Box::pin(self.refresh_routing(deadline)).await;
            }
            let ending = match verdict {
                NextAttempt::Over(ending) => Some(ending),
                _ if refusal == Some(Refusal::SessionFull) && leaves(&mut question, &tries) => Some(tries.give_up()),
                _ => {
                    attempts.failed(asked, refusal);
                    let again = !question.forwarded && Box::pin(self.pause(&mut attempts, deadline)).await;
                    (!again).then(|| tries.give_up())
                }
            };
            match ending {
                None => {}
                Some(Ending::NotApplied(_)) => return Err(RequestError::Certainly(self.unless_stopped(error))),
                Some(Ending::Unknown(Some(Refusal::SessionExpired | Refusal::Forgotten))) => {
                    return Err(RequestError::Perhaps(Unknown::SessionExpired));
                }
                Some(Ending::Unknown(_)) => return Err(RequestError::Perhaps(unknown)),
            }
        }
    }

    /// Asks `here`; without it, the most suitable member.
    async fn attempt(
        &self,
        question: &Question,
        here: Option<Here>,
        attempts: &Attempts,
        deadline: Instant,
    ) -> (Tried, Option<NodeId>) {
        #[cfg(feature = "testing")]
        if let Some(tried) = self.intercept(question, deadline).await {
            return (tried, None);
        }
        let tried = match here.map_or_else(|| self.pick(question, attempts), Pick::Here) {
            Pick::Here(here) => (ask_here(&here, question, deadline).await, Some(here.me.node)),
            Pick::There { member, answers, place, epoch, others } => {
                if let Some(local) = self.local().filter(|_| attempts.is_first()) {
                    local.count_forwarded();
                }
                let patience = others.then(|| patience(question, attempts)).flatten();
                let tried = self.ask_there((member, place), (epoch, answers), question, patience, deadline).await;
                (tried, Some(member.node))
            }
            Pick::NoMember => (Tried::Nothing(Error::not_applied(NotApplied::NotFormed)), None),
        };
        #[cfg(feature = "testing")]
        let tried = self.swallow(tried, question, deadline).await;
        tried
    }

    /// Waits before the next attempt, longer each time, or until the routing changes. Returns whether there may be
    /// another attempt: enough time is left, and the router isn't stopped.
    async fn pause(&self, attempts: &mut Attempts, deadline: Instant) -> bool {
        if Instant::now() >= deadline || self.is_stopped() {
            return false;
        }
        let pause = attempts.next_pause();
        let until = deadline.min(Instant::now() + pause);
        if attempts.doubts_routing() {
            self.refresh_routing(deadline).await;
        }
        self.routes.changed_or(until).await;
        Instant::now() + MIN_ATTEMPT_TIME < deadline
    }
}

pub(crate) fn check_key(key: &Bytes) -> Result<(), Refusal> {
    let (len, limit) = (key.len() as u64, MAX_KEY as u64);
    if len <= limit { Ok(()) } else { Err(Refusal::KeyTooLong { len, limit }) }
}

pub(crate) fn check_value(value: &Bytes, limit: u64) -> Result<(), Refusal> {
    let len = value.len() as u64;
    if len <= limit { Ok(()) } else { Err(Refusal::ValueTooLarge { len, limit }) }
}

fn repeat(operation: &Operation) -> Repeat {
    match operation {
        Operation::Write { request: Some(_), .. } => Repeat::Recorded,
        Operation::Write { request: None, write: Write::OpenSession, .. } => Repeat::Harmless,
        Operation::Write { .. } => Repeat::Twice,
        Operation::Read { .. } | Operation::Admin(_) => Repeat::Harmless,
    }
}

/// The state of a request under a given id, which earlier calls may have used.
fn unremembered(operation: &Operation) -> RetryState {
    match operation {
        Operation::Write { write: Write::Resolve, .. } => RetryState::resolving(),
        _ => RetryState::settling(),
    }
}

/// The instant `timeout` from now, at most [`MAX_TIMEOUT`] ahead.
pub(crate) fn from_now(timeout: Duration) -> Instant {
    after(Instant::now(), timeout)
}

fn after(now: Instant, timeout: Duration) -> Instant {
    now + timeout.min(MAX_TIMEOUT)
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}
