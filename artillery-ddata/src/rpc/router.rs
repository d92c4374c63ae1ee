//! Finds who is to be asked, and asks until the answer is certain or the time is up.

mod account;
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
    sync::{Arc, Mutex, RwLock, Weak},
    time::Duration,
};

use artillery_core::{internal::clock, transport::Endpoint};
use bytes::Bytes;
use tokio::{runtime::Handle, time::Instant};

pub use self::pick::Spread;
use self::{doubts::DoubtfulCalls, first::First, once::Tried, peers::Peers, pick::Attempts};
pub(crate) use self::{
    read::{BegunRead, HowToRead},
    routes::{LearnedRoutes, Routes, ask_on, ask_once},
    write::{BegunWrite, HowToWrite},
};
use super::{
    channel::{Carrier, Question},
    requests::Requests,
};
use crate::{
    Error, MemberId, NodeId, Place, Routing, Timestamp,
    api::{
        Refusal, Reply, Write,
        retry::{Ending, NextAttempt, Repeat, RetryState},
    },
    error::{Advice, NotApplied, Unknown},
    local::Local,
    message::request::Operation,
    types::update::MAX_KEY,
};

/// With less time left nothing is tried any more: the outcome would rather be unknown than good.
const MIN_ATTEMPT_TIME: Duration = Duration::from_millis(10);

/// A reply and who gave it.
#[derive(Debug, Clone)]
pub(crate) struct CallAnswer {
    pub(crate) reply: Reply,
    pub(crate) node: MemberId,
    pub(crate) place: Place,
}

/// One per node and per client: the way from a key to those who answer for it.
pub(crate) struct Router {
    /// For what goes on when a call is over.
    me: Weak<Self>,
    routes: Routes,
    /// The largest value that is taken, in bytes, where that is known here.
    max_value_bytes: Option<u64>,
    carrier: Carrier,
    /// Looked up at each request by [`Router::peers`]; replaced as a whole by [`Router::change_peers`].
    peers: RwLock<Arc<Peers>>,
    changing: Mutex<()>,
    order: pick::ReadOrder,
    requests: Requests,
    doubts: DoubtfulCalls,
    /// Who writes down what is asked and answered, in a test.
    #[cfg(feature = "testing")]
    pub(crate) observer: std::sync::OnceLock<crate::rpc::observer::Observer>,
}

/// What is known of a request when its attempts begin.
enum Earlier {
    /// There was none.
    None,
    /// The first one was begun.
    First(Box<First>),
    /// There were some, of which nothing is known.
    Unremembered,
}

/// How a call ended that has no answer.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// Nothing was applied, and nothing will be.
    Certainly(Error),
    /// It may have been.
    Perhaps(Unknown),
}

impl RequestError {
    /// Of a read, which applies nothing whatever comes of it.
    fn of_read(self) -> Error {
        match self {
            Self::Certainly(error) => error,
            Self::Perhaps(_) => Error::not_applied(NotApplied::TimedOut),
        }
    }
}

impl Router {
    /// The router of a node: what is here is asked here, and the routing comes from `local`. To be called within the
    /// runtime whose tasks are to carry its requests, and which a thread of its own drives or not.
    pub(crate) fn of_node(local: Arc<Local>, endpoint: Endpoint, max_value_bytes: u64, is_driven: bool) -> Arc<Self> {
        Self::made(Routes::Node(local), endpoint, Some(max_value_bytes), Spread::Sticky, is_driven)
    }

    /// The router of a client, in the runtime whose tasks are to carry its requests.
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
            #[cfg(feature = "testing")]
            observer: std::sync::OnceLock::new(),
        })
    }

    /// The runtime that carries its requests.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.carrier.runtime
    }

    /// Whether nothing is asked any more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.peers().endpoint.is_none()
    }

    /// What is served in this process.
    pub(crate) fn local(&self) -> Option<&Local> {
        self.routes.local()
    }

    /// The routing as it is known here.
    pub(crate) fn known(&self) -> Option<Arc<Routing>> {
        self.routes.known()
    }

    /// Asks nobody any more, and lets go of the endpoint and its links.
    pub(crate) fn stop(&self) {
        self.change_peers(|peers| {
            peers.endpoint = None;
            peers.channels.clear();
        });
    }

    /// Asks until the answer is certain. What was certainly not applied is tried again until `deadline`; so is a read, and
    /// a write that has a request id, whatever became of it. What is handed on for others is tried once: they can try
    /// again, and know best whether they want to.
    pub(crate) async fn call(&self, question: Question, deadline: Instant) -> Result<CallAnswer, RequestError> {
        self.call_again(question, deadline, Earlier::None, |_, _| false).await
    }

    /// The same for a request of which something is known or under way already. `leaves` is asked when its session is full, with the
    /// attempts so far: whether it is to be made in another one rather than here again.
    async fn call_again(
        &self,
        mut question: Question,
        deadline: Instant,
        earlier: Earlier,
        leaves: impl Fn(&mut Question, &RetryState) -> bool,
    ) -> Result<CallAnswer, RequestError> {
        let (mut tries, mut first) = match earlier {
            Earlier::None => (RetryState::new(repeat(&question.operation)), None),
            Earlier::First(first) => (RetryState::new(repeat(&question.operation)), Some(first)),
            Earlier::Unremembered => (RetryState::settling(), None),
        };
        let mut attempts = Attempts::default();
        let mut unknown = Unknown::TimedOut;
        loop {
            let (tried, asked) = match first.take() {
                Some(first) => Box::pin(self.await_first(first, &question)).await,
                None => self.attempt(&question, &attempts, deadline).await,
            };
            let mut refusal = None;
            // What is said if this was the last attempt.
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
                    if let Error::Refused { reason, .. } = &error {
                        refusal = Some(*reason);
                    }
                    (NextAttempt::Again, error)
                }
            };
            if refusal == Some(Refusal::OtherHistory) && !question.forwarded {
                // The next request is to go by newer routing. Boxed, since it is rare: a call's future has room for all that the
                // call may await.
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
                Some(Ending::NotApplied(_)) => return Err(RequestError::Certainly(error)),
                Some(Ending::Unknown(Some(Refusal::SessionExpired | Refusal::Forgotten))) => {
                    return Err(RequestError::Perhaps(Unknown::SessionExpired));
                }
                Some(Ending::Unknown(_)) => return Err(RequestError::Perhaps(unknown)),
            }
        }
    }

    async fn attempt(&self, question: &Question, attempts: &Attempts, deadline: Instant) -> (Tried, Option<NodeId>) {
        #[cfg(feature = "testing")]
        if let Some(tried) = self.intercept(question, deadline).await {
            return (tried, None);
        }
        let tried = self.try_once(question, attempts, deadline).await;
        #[cfg(feature = "testing")]
        let tried = self.swallow(tried, question, deadline).await;
        tried
    }

    /// Waits a little, growing from try to try, or until there is another routing. Whether there is time for a try.
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

/// What it does to ask for an operation twice.
fn repeat(operation: &Operation) -> Repeat {
    match operation {
        Operation::Write { request: Some(_), .. } => Repeat::Recorded,
        Operation::Write { request: None, write: Write::OpenSession, .. } => Repeat::Harmless,
        Operation::Write { .. } => Repeat::Twice,
        Operation::Read { .. }
        | Operation::Routing
        | Operation::RoutingAnyway
        | Operation::Status
        | Operation::Arrange(_)
        | Operation::Survey
        | Operation::Recover { .. }
        | Operation::Found { .. } => Repeat::Harmless,
    }
}

/// When so much time will have passed; of what no clock can hold, in thirty years.
pub(crate) fn from_now(timeout: Duration) -> Instant {
    after(Instant::now(), timeout)
}

fn after(now: Instant, timeout: Duration) -> Instant {
    const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    now + timeout.min(MAX_TIMEOUT)
}

/// A deadline by the clock of chains.
pub(crate) fn on_the_clock(deadline: Instant) -> Timestamp {
    clock::now() + deadline.saturating_duration_since(Instant::now())
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}
