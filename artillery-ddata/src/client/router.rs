//! Finds who is to be asked, and asks until the answer is certain or the time is up.

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

use self::pick::{Attempts, Pick};
pub(super) use self::routes::ask_on;
pub(crate) use self::routes::{Asked, Routes};
use super::channel::{Channel, NotSent, Outcome, Question};
use crate::{
    ChainId, Error, MemberId, NodeId, Place, Routing, Timestamp,
    control::chain_of,
    driver::{
        handle::{ChainHandle, ReadRequest, Responder, WriteRequest},
        local::Local,
    },
    error::{NotApplied, Unknown, WayOn},
    replica::{ReadMode, Refusal, Reply, Write},
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
}

#[derive(Clone)]
struct Peers {
    /// `None` once stopped.
    endpoint: Option<Endpoint>,
    channels: BTreeMap<NodeId, Arc<Channel>>,
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
        Self { routes, max_value_bytes, runtime: Handle::current(), peers, changing: Mutex::default(), order }
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

    pub(crate) async fn read(&self, key: Bytes, mode: ReadMode, timeout: Duration) -> Result<Answer, Error> {
        check_key(&key)?;
        let deadline = Instant::now() + timeout;
        let chain = self.chain_of(&key, deadline).await?;
        self.call(Question { chain, forwarded: false, operation: Operation::Read { key, mode } }, deadline).await
    }

    pub(crate) async fn write(&self, write: Write, timeout: Duration) -> Result<Answer, Error> {
        let (key, value) = match &write {
            Write::Put { key, value } => (key, Some(value)),
            Write::Delete { key } => (key, None),
            Write::CompareAndSwap { key, value, .. } => (key, value.as_ref()),
        };
        check_key(key)?;
        check_value(value, self.max_value_bytes)?;
        let deadline = Instant::now() + timeout;
        let chain = self.chain_of(key, deadline).await?;
        self.call(Question { chain, forwarded: false, operation: Operation::Write(write) }, deadline).await
    }

    /// Waits for the cluster to be formed, since until then no key belongs anywhere.
    async fn chain_of(&self, key: &[u8], deadline: Instant) -> Result<ChainId, Error> {
        let routing = match self.known() {
            Some(routing) => routing,
            None => self.routes.formed(deadline).await.ok_or(Error::not_applied(NotApplied::NotFormed))?,
        };
        Ok(chain_of(key, routing.chains.len() as u32))
    }

    /// Asks whoever must be asked until the answer is certain. What was certainly not applied is tried again until
    /// `deadline`; so is a read, whatever became of it. A write that may have been applied never is. What is handed on
    /// for others is tried once: they can try again, and know best whether they want to.
    pub(crate) async fn call(&self, question: Question, deadline: Instant) -> Result<Answer, Error> {
        let is_write = question.operation.is_write();
        let mut attempts = Attempts::default();
        loop {
            let (tried, asked) = self.attempt(&question, &attempts, deadline).await;
            let mut refusal = None;
            let error = match tried {
                Tried::Answered(answer) => match retried(&answer.reply, is_write) {
                    None => return Ok(answer),
                    Some(reason) => {
                        refusal = Some(reason);
                        Error::refused(reason, Some(answer.node.node))
                    }
                },
                Tried::Unanswered(reason) if is_write => return Err(Error::unknown(reason)),
                Tried::Unanswered(_) => Error::not_applied(NotApplied::TimedOut),
                Tried::Nothing(error) if error.way_on() == WayOn::Change => return Err(error),
                Tried::Nothing(error) => error,
            };
            attempts.failed(asked, refusal);
            if question.forwarded || !self.pause(&mut attempts, deadline).await {
                return Err(error);
            }
        }
    }

    async fn attempt(&self, question: &Question, attempts: &Attempts, deadline: Instant) -> (Tried, Option<NodeId>) {
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
        let is_read = !question.operation.is_write();
        let until = if is_read && others { deadline.min(Instant::now() + READ_PATIENCE) } else { deadline };
        match channel.ask(question.clone(), until).await {
            Outcome::Answered(response) => match response.answer {
                ResponseAnswer::Reply(reply) => {
                    let node = response.by.unwrap_or(member);
                    let place = if node == member { place } else { self.place(question.chain, node) };
                    Tried::Answered(Answer { reply, node, place })
                }
                _ => Tried::Unanswered(Unknown::NoAnswer),
            },
            Outcome::NotSent(reason) => Tried::Nothing(not_sent(reason)),
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
            let channel = Arc::new(Channel::new(link, endpoint.config().max_frame_bytes, &self.runtime));
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

fn check_key(key: &Bytes) -> Result<(), Error> {
    if key.len() <= MAX_KEY {
        return Ok(());
    }
    Err(Error::refused(Refusal::KeyTooLong { len: key.len() as u64, limit: MAX_KEY as u64 }, None))
}

fn check_value(value: Option<&Bytes>, limit: Option<u64>) -> Result<(), Error> {
    let (Some(value), Some(limit)) = (value, limit) else { return Ok(()) };
    let len = value.len() as u64;
    if len <= limit { Ok(()) } else { Err(Error::refused(Refusal::ValueTooLarge { len, limit }, None)) }
}

/// The refusal, if trying again may help.
fn retried(reply: &Reply, is_write: bool) -> Option<Refusal> {
    match reply {
        Reply::Refused(refusal) => match refusal {
            Refusal::NoChain | Refusal::NotHead(_) | Refusal::NotTail(_) | Refusal::Busy | Refusal::NoLease => {
                Some(*refusal)
            }
            Refusal::StoreFailed if !is_write => Some(*refusal),
            _ => None,
        },
        _ => None,
    }
}

fn not_sent(reason: NotSent) -> Error {
    match reason {
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
            Operation::Read { key, mode } => {
                let (key, mode) = (key.clone(), *mode);
                handle.read(ReadRequest { key, mode, deadline: until, responder }).await;
            }
            Operation::Write(write) => {
                handle.write(WriteRequest { write: write.clone(), deadline: until, responder }).await;
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

/// A deadline by the clock of chains.
pub(crate) fn on_the_clock(deadline: Instant) -> Timestamp {
    clock::now() + deadline.saturating_duration_since(Instant::now())
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}
