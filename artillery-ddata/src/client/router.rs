//! Finds who is to be asked, and asks until the answer is certain or the time is up.

mod data;
#[cfg(feature = "testing")]
mod observed;
mod pick;
mod routes;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use artillery_core::{clock, error::ConnectError, transport::Endpoint};
use bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{Instant, timeout_at},
};

pub(crate) use self::data::{HowToRead, HowToWrite};
use self::pick::{Attempts, Pick};
pub(super) use self::routes::ask_on;
pub(crate) use self::routes::{Asked, Routes};
use super::{
    channel::{Channel, NotSent, Outcome, Question},
    requests::Requests,
};
use crate::{
    ChainId, Error, MemberId, NodeId, Place, Routing, Timestamp,
    driver::{
        handle::{ChainHandle, ReadRequest, Responder, WriteRequest},
        local::Local,
    },
    error::{NotApplied, Unknown, WayOn},
    replica::{Query, Refusal, Reply, Write},
    tries::{Ending, Repeat, Tries, Verdict},
    update::MAX_KEY,
    wire::request::{Operation, ResponseAnswer},
};

/// A connection that isn't there yet is waited for so long before somebody else is tried, or the routing is asked for.
const CONNECT_PATIENCE: Duration = Duration::from_millis(250);

/// A read that one member hasn't answered for so long is put to another one.
const READ_PATIENCE: Duration = Duration::from_secs(1);

/// With less time left nothing is tried any more: the outcome would rather be unknown than good.
const LEAST_TRY: Duration = Duration::from_millis(10);

/// A reply and who gave it.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) node: MemberId,
    pub(crate) place: Place,
}

/// One per node and per client: the way from a key to those who answer for it.
pub(crate) struct Router {
    routes: Routes,
    /// The largest value that is taken, in bytes, where that is known here.
    max_value_bytes: Option<u64>,
    runtime: Handle,
    /// Looked up at each request without a lock; replaced as a whole by [`Router::change_peers`].
    peers: ArcSwap<Peers>,
    changing: Mutex<()>,
    order: pick::Order,
    requests: Requests,
    /// Who writes down what is asked and answered, in a test.
    #[cfg(feature = "testing")]
    pub(crate) observer: std::sync::OnceLock<crate::testing::Observer>,
}

#[derive(Clone)]
struct Peers {
    /// `None` once stopped.
    endpoint: Option<Endpoint>,
    channels: BTreeMap<NodeId, Arc<Channel>>,
}

/// How a call ended that has no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Nothing was applied, and nothing will be.
    Certainly(Error),
    /// It may have been.
    Perhaps(Unknown),
}

impl Failed {
    /// Of a read, which applies nothing whatever comes of it.
    fn of_read(self) -> Error {
        match self {
            Self::Certainly(error) => error,
            Self::Perhaps(_) => Error::not_applied(NotApplied::TimedOut),
        }
    }
}

/// What came of one try.
enum Tried {
    Answered(Answer),
    /// Certainly nothing: may be tried again, if that helps.
    Nothing(Error),
    /// The read or write may have been taken in.
    Unanswered(Unknown),
}

impl Router {
    /// The router of a node: what is here is asked here, and the routing comes from `local`. To be called within the
    /// runtime whose tasks are to carry its requests.
    pub(crate) fn of_node(local: Arc<Local>, endpoint: Endpoint, max_value_bytes: u64) -> Arc<Self> {
        Arc::new(Self::new(Routes::Node(local), endpoint, Some(max_value_bytes), super::Spread::Sticky))
    }

    pub(crate) fn new(routes: Routes, endpoint: Endpoint, max_value_bytes: Option<u64>, spread: super::Spread) -> Self {
        let order = pick::Order::new(endpoint.id().node, spread);
        let peers = ArcSwap::from_pointee(Peers { endpoint: Some(endpoint), channels: BTreeMap::new() });
        Self {
            routes,
            max_value_bytes,
            runtime: Handle::current(),
            peers,
            changing: Mutex::default(),
            order,
            requests: Requests::default(),
            #[cfg(feature = "testing")]
            observer: std::sync::OnceLock::new(),
        }
    }

    /// The runtime that carries its requests.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
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
    pub(crate) async fn call(&self, question: Question, deadline: Instant) -> Result<Answer, Failed> {
        self.call_again(question, deadline, None).await
    }

    /// The same for a request of which it is known already what came of `earlier` attempts.
    async fn call_again(
        &self,
        question: Question,
        deadline: Instant,
        earlier: Option<Tries>,
    ) -> Result<Answer, Failed> {
        let mut tries = earlier.unwrap_or_else(|| Tries::new(repeat(&question.operation)));
        let mut attempts = Attempts::default();
        let mut unknown = Unknown::TimedOut;
        loop {
            let (tried, asked) = self.attempt(&question, &attempts, deadline).await;
            let mut refusal = None;
            // What is said if this was the last attempt.
            let (verdict, error) = match tried {
                Tried::Answered(answer) => {
                    let verdict = tries.replied(&answer.reply);
                    let error = match answer.reply {
                        _ if verdict == Verdict::Done => return Ok(answer),
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
                Tried::Nothing(error) if error.way_on() == WayOn::Change => (Verdict::Over(tries.give_up()), error),
                Tried::Nothing(error) => {
                    if let Error::Refused { reason, .. } = &error {
                        refusal = Some(*reason);
                    }
                    (Verdict::Again, error)
                }
            };
            let ending = match verdict {
                Verdict::Over(ending) => Some(ending),
                _ => {
                    attempts.failed(asked, refusal);
                    let again = !question.forwarded && self.pause(&mut attempts, deadline).await;
                    (!again).then(|| tries.give_up())
                }
            };
            match ending {
                None => {}
                Some(Ending::NotApplied(_)) => return Err(Failed::Certainly(error)),
                Some(Ending::Unknown(Some(Refusal::SessionExpired | Refusal::Forgotten))) => {
                    return Err(Failed::Perhaps(Unknown::SessionExpired));
                }
                Some(Ending::Unknown(_)) => return Err(Failed::Perhaps(unknown)),
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

    async fn try_once(&self, question: &Question, attempts: &Attempts, deadline: Instant) -> (Tried, Option<NodeId>) {
        match self.pick(question, attempts) {
            Pick::Here(handle, me, place) => (ask_here(handle, me, place, question, deadline).await, Some(me.node)),
            Pick::There { member, place, others } => {
                if let Some(local) = self.local().filter(|_| attempts.is_first()) {
                    local.count_forwarded();
                }
                let tried = self.ask_there(member, place, others, question, deadline).await;
                (tried, Some(member.node))
            }
            Pick::Nobody => (Tried::Nothing(Error::not_applied(NotApplied::NotFormed)), None),
        }
    }

    async fn ask_there(
        &self,
        member: MemberId,
        place: Place,
        others: bool,
        question: &Question,
        deadline: Instant,
    ) -> Tried {
        let channel = match self.reached(member.node, deadline).await {
            Ok(channel) => channel,
            // A refusal may name somebody whom the routing doesn't know yet.
            Err(Error::NotApplied { reason: NotApplied::UnknownNode(node) }) => {
                return Tried::Nothing(Error::not_applied(NotApplied::Unreachable { node, reason: None }));
            }
            Err(error) => return Tried::Nothing(error),
        };
        // Who asks for changes wants to wait.
        let waits = matches!(question.operation, Operation::Read { query: Query::Changes(_), .. });
        let is_read = !question.operation.is_write();
        let until = if is_read && others && !waits { deadline.min(Instant::now() + READ_PATIENCE) } else { deadline };
        match channel.ask(question.clone(), until).await {
            Outcome::Answered(response) => match response.answer {
                ResponseAnswer::Reply(reply) => {
                    let node = response.by.unwrap_or(member);
                    let place = if node == member { place } else { self.place(question.chain, node) };
                    Tried::Answered(Answer { reply, node, place })
                }
                _ => Tried::Unanswered(Unknown::NoAnswer),
            },
            Outcome::NotSent(reason) => Tried::Nothing(not_sent(reason, member.node)),
            Outcome::Unanswered(reason) => Tried::Unanswered(reason),
        }
    }

    fn place(&self, chain: ChainId, member: MemberId) -> Place {
        self.known().and_then(|routing| Some(routing.chain(chain)?.place(member))).unwrap_or(Place::Spare)
    }

    /// The way to a node, once there is a connection; it isn't waited for as long as the call may take.
    async fn reached(&self, node: NodeId, deadline: Instant) -> Result<Arc<Channel>, Error> {
        let channel = self.channel(node)?;
        if channel.is_connected() {
            return Ok(channel);
        }
        let until = deadline.min(Instant::now() + CONNECT_PATIENCE);
        match timeout_at(until, channel.link().connected()).await {
            Ok(Ok(_)) => Ok(channel),
            Ok(Err(ConnectError::EndpointClosed)) => Err(Error::not_applied(NotApplied::Stopped)),
            Ok(Err(reason)) => {
                Err(Error::not_applied(NotApplied::Unreachable { node, reason: Some(Arc::new(reason)) }))
            }
            Err(_) => Err(Error::not_applied(NotApplied::Unreachable { node, reason: channel.failure() })),
        }
    }

    fn channel(&self, node: NodeId) -> Result<Arc<Channel>, Error> {
        if let Some(channel) = self.peers.load().channels.get(&node) {
            return Ok(channel.clone());
        }
        let routing = self.known();
        self.change_peers(|peers| {
            let Some(endpoint) = &peers.endpoint else { return Err(Error::not_applied(NotApplied::Stopped)) };
            // Somebody else may have been first.
            if let Some(channel) = peers.channels.get(&node) {
                return Ok(channel.clone());
            }
            let known = routing.as_ref().and_then(|routing| routing.nodes.get(&node));
            let Some(known) = known else { return Err(Error::not_applied(NotApplied::UnknownNode(node))) };
            let link = endpoint.link(node, known.addrs.clone());
            let channel = Arc::new(Channel::new(link, endpoint.config(), &self.runtime));
            peers.channels.insert(node, channel.clone());
            Ok(channel)
        })
    }

    /// One change after the other, each seen as a whole.
    fn change_peers<T>(&self, change: impl FnOnce(&mut Peers) -> T) -> T {
        // A panic leaves nothing half done: what is changed is a copy.
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut peers = Peers::clone(&self.peers.load());
        let result = change(&mut peers);
        self.peers.store(Arc::new(peers));
        result
    }

    fn is_connected(&self, node: NodeId) -> bool {
        self.peers.load().channels.get(&node).is_some_and(|channel| channel.is_connected())
    }

    /// Waits a little, growing from try to try, or until there is another routing. Whether there is time for a try.
    async fn pause(&self, attempts: &mut Attempts, deadline: Instant) -> bool {
        if Instant::now() >= deadline || self.peers.load().endpoint.is_none() {
            return false;
        }
        let pause = attempts.next_pause();
        let until = deadline.min(Instant::now() + pause);
        if attempts.doubts_routing() {
            self.refresh_routing(deadline).await;
        }
        self.routes.changed_or(until).await;
        Instant::now() + LEAST_TRY < deadline
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
        Operation::Write { request: None, write: Write::OpenSession } => Repeat::Harmless,
        Operation::Write { .. } => Repeat::Twice,
        Operation::Read { .. } | Operation::Routing | Operation::Status => Repeat::Harmless,
    }
}

fn not_sent(reason: NotSent, node: NodeId) -> Error {
    match reason {
        NotSent::Busy => Error::refused(Refusal::Busy, None),
        NotSent::Lost => Error::not_applied(NotApplied::Unreachable { node, reason: None }),
        NotSent::TimedOut => Error::not_applied(NotApplied::TimedOut),
        NotSent::Stopped => Error::not_applied(NotApplied::Stopped),
        NotSent::TooLarge { len, limit } => Error::refused(Refusal::ValueTooLarge { len, limit }, None),
    }
}

/// Asks the chain of this very node.
async fn ask_here(handle: ChainHandle, me: MemberId, place: Place, question: &Question, deadline: Instant) -> Tried {
    let (responder, reply) = oneshot::channel();
    let (responder, until) = (Responder::Caller(responder), on_the_clock(deadline));
    let is_write = question.operation.is_write();
    let handed = async {
        match &question.operation {
            Operation::Read { query, mode, floor } => {
                let (query, mode, floor) = (query.clone(), *mode, *floor);
                handle.read(ReadRequest { query, mode, floor, deadline: until, responder }).await;
            }
            Operation::Write { request, write } => {
                let (request, write) = (*request, write.clone());
                handle.write(WriteRequest { request, write, deadline: until, responder }).await;
            }
            Operation::Routing | Operation::Status => {}
        }
    };
    if timeout_at(deadline, handed).await.is_err() {
        return Tried::Nothing(Error::refused(Refusal::Busy, Some(me.node)));
    }
    match timeout_at(deadline, reply).await {
        Ok(Ok(reply)) => Tried::Answered(Answer { reply, node: me, place }),
        Ok(Err(_)) if is_write => Tried::Unanswered(Unknown::NoAnswer),
        Ok(Err(_)) => Tried::Nothing(Error::not_applied(NotApplied::Stopped)),
        Err(_) => Tried::Unanswered(Unknown::TimedOut),
    }
}

/// When so much time will have passed; of what no clock can hold, in thirty years.
pub(crate) fn from_now(timeout: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    Instant::now() + timeout.min(FAR)
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
