//! The routing: which chains exist and where their members are. A node has its own; a client queries it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use artillery_core::internal::watch;
use artillery_core::{
    discovery::Seed,
    error::ConnectError,
    internal::first_of,
    transport::{Connection, Endpoint, StreamKind},
};
use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{Instant, sleep_until, timeout_at},
};

use super::{Router, from_now};
use crate::{
    ChainConfig, ChainId, Error, NodeAddress, NodeId, Routing,
    error::NotApplied,
    local::Local,
    message::request::{AdminOperation, Operation, Request, ResponseAnswer},
    rpc::{
        Candidates, NoAnswer, SourceTasks,
        channel::{CallOutcome, Channel, NO_DOUBTS, Question},
    },
    wire::{
        request::{decode_response, encode_request},
        streams::REQUESTS,
    },
};

/// How long one node may take to answer with its routing.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long one refresh may take, over all nodes.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(5);
/// How much longer the other answers are awaited after the first one.
const LATE_ANSWER_GRACE: Duration = Duration::from_millis(20);
/// How many unconnected nodes are asked in addition to the connected ones.
const MAX_UNCONNECTED: usize = 4;

pub(crate) enum Routes {
    /// A node, which learns the routing by itself.
    Node(Arc<Local>),
    /// A client, which queries nodes.
    Asked(LearnedRoutes),
}

pub(crate) struct LearnedRoutes {
    known: watch::Sender<Arc<Routing>>,
    candidates: Candidates,
    _sources: SourceTasks,
    /// Held during a query, so that queries run one at a time. A query serves all callers that were waiting when it
    /// began. `asked` counts the queries.
    asking: Mutex<()>,
    asked: AtomicU64,
    /// Whether a background refresh is running. The caller that started it may have timed out.
    under_way: AtomicBool,
}

impl LearnedRoutes {
    pub(crate) fn new(routing: Arc<Routing>, candidates: Candidates, sources: SourceTasks) -> Self {
        Self {
            known: watch::Sender::new(routing),
            candidates,
            _sources: sources,
            asking: Mutex::new(()),
            asked: AtomicU64::new(0),
            under_way: AtomicBool::new(false),
        }
    }
}

impl Routes {
    pub(super) fn local(&self) -> Option<&Local> {
        match self {
            Self::Node(local) => Some(local),
            Self::Asked(_) => None,
        }
    }

    pub(super) fn known(&self) -> Option<Arc<Routing>> {
        match self {
            Self::Node(local) => local.routing().borrow().clone(),
            Self::Asked(asked) => Some(asked.known.borrow().clone()),
        }
    }

    pub(super) async fn formed(&self, deadline: Instant) -> Option<Arc<Routing>> {
        match self {
            Self::Node(local) => {
                let mut routing = local.routing();
                let formed = timeout_at(deadline, routing.wait_for(Option::is_some)).await;
                formed.ok()?.ok()?.clone()
            }
            Self::Asked(_) => self.known(),
        }
    }

    /// Waits until the routing satisfies `is_such`; never returns if it never does.
    pub(super) async fn wait_for(&self, is_such: impl Fn(&Routing) -> bool) {
        let known = match self {
            Self::Node(local) => local.routing().wait_for(|known| known.as_deref().is_some_and(&is_such)).await.is_ok(),
            Self::Asked(asked) => asked.known.subscribe().wait_for(|known| is_such(known)).await.is_ok(),
        };
        if !known {
            std::future::pending().await
        }
    }

    pub(super) async fn changed_or(&self, until: Instant) {
        let changed = async {
            match self {
                Self::Node(local) => drop(local.routing().changed().await),
                Self::Asked(asked) => drop(asked.known.subscribe().changed().await),
            }
        };
        tokio::select! {
            biased;
            () = changed => {}
            () = sleep_until(until) => {}
        }
    }
}

impl Router {
    /// At a client, queries the routing, and ignores errors. The refresh continues when its caller times out: otherwise
    /// a client whose calls all end early would never get newer routing. At a node, does nothing.
    pub(super) async fn refresh_routing(&self, deadline: Instant) {
        let (Routes::Asked(asked), Some(me)) = (&self.routes, self.me.upgrade()) else { return };
        let until = deadline.min(Instant::now() + ASK_TIMEOUT);
        if asked.under_way.swap(true, Ordering::AcqRel) {
            drop(timeout_at(until, asked.asking.lock()).await);
            return;
        }
        let going_on = self.carrier.runtime.spawn(async move {
            drop(me.refresh_within(REFRESH_TIMEOUT).await);
            if let Routes::Asked(asked) = &me.routes {
                asked.under_way.store(false, Ordering::Release);
            }
        });
        drop(timeout_at(until, going_on).await);
    }

    pub(crate) async fn refresh_within(&self, timeout: Duration) -> Result<Arc<Routing>, Error> {
        self.begin_call().await?;
        let deadline = from_now(timeout);
        let refreshed = timeout_at(deadline, self.refresh(deadline)).await;
        refreshed.unwrap_or_else(|_| Err(Error::not_applied(NotApplied::TimedOut)))
    }

    async fn refresh(&self, deadline: Instant) -> Result<Arc<Routing>, Error> {
        let Routes::Asked(asked) = &self.routes else {
            return self.known().ok_or(Error::not_applied(NotApplied::NotFormed));
        };
        let before = asked.asked.load(Ordering::Relaxed);
        let _turn = asked.asking.lock().await;
        let now = asked.known.borrow().clone();
        // Another caller has queried since this call began. The answer to that query is as new. If it got none, this is
        // the old routing.
        if asked.asked.load(Ordering::Relaxed) > before {
            return Ok(now);
        }
        asked.asked.fetch_add(1, Ordering::Relaxed);
        let routing = match self.ask_members(&now, deadline).await {
            Some(routing) => Some(routing),
            None => self.ask_candidates(asked, deadline).await,
        };
        let Some(routing) = routing else { return Err(Error::not_applied(NotApplied::TimedOut)) };
        Ok(self.on_routing(asked, routing))
    }

    /// Asks all connected nodes, and some unconnected ones. Connected nodes may be dead or outdated, and a client that
    /// only writes is connected to the head alone. Merges the first answer, and those that follow soon, into the newest
    /// configuration of each chain.
    async fn ask_members(&self, routing: &Routing, deadline: Instant) -> Option<Routing> {
        let mut asked = JoinSet::new();
        let peers = self.peers();
        let (connected, others): (Vec<_>, Vec<_>) = routing.nodes.keys().partition(|&&node| peers.is_connected(node));
        let is_member = |node: NodeId| routing.chains.iter().flat_map(ChainConfig::serving).any(|id| id.node == node);
        let (members, spares): (Vec<_>, Vec<_>) = others.into_iter().partition(|&&node| is_member(node));
        for &node in connected.into_iter().chain(members.into_iter().chain(spares).take(MAX_UNCONNECTED)) {
            let Ok(channel) = self.channel(node) else { continue };
            asked.spawn_on(async move { ask_routing(&channel, deadline).await }, &self.carrier.runtime);
        }
        let mut heard: Option<Routing> = None;
        let mut until = deadline;
        while let Ok(Some(answer)) = timeout_at(until, asked.join_next()).await {
            if let Ok(Some(answer)) = answer {
                heard = Some(heard.map_or(answer.clone(), |heard| heard.merged(answer)));
                until = until.min(Instant::now() + LATE_ANSWER_GRACE);
            }
        }
        heard
    }

    async fn ask_candidates(&self, asked: &LearnedRoutes, deadline: Instant) -> Option<Routing> {
        let endpoint = self.peers().endpoint.clone()?;
        let known = asked.known.borrow().clone();
        let of_nodes: Vec<_> = known.nodes.values().map(places).collect();
        let mut places = in_turn(of_nodes.iter().map(|places| &places[..]));
        places.extend(asked.candidates.all());
        let endpoint = &endpoint;
        let asked = first_of(places, |place| async move {
            // Nodes may have moved: resolve each name now.
            let addrs = timeout_at(deadline, place.resolve()).await.map_err(drop)?.map_err(drop)?;
            first_of(addrs, |addr| ask_at(endpoint, addr, deadline)).await.map_err(drop)
        });
        asked.await.ok()
    }

    /// Merges newer routing into the known one, updates the addresses of channels, and drops the channels of nodes that
    /// have left.
    fn on_routing(&self, asked: &LearnedRoutes, new: Routing) -> Arc<Routing> {
        asked.known.send_if_modified(|known| {
            let merged = known.merged(new);
            let changed = **known != merged;
            if changed {
                *known = Arc::new(merged);
            }
            changed
        });
        let known = asked.known.borrow().clone();
        self.change_peers(|peers| {
            peers.channels.retain(|node, _| known.nodes.contains_key(node));
            for (node, channel) in &peers.channels {
                if let Some(address) = known.nodes.get(node) {
                    channel.link().set_addresses(address.addrs.clone());
                }
            }
        });
        known
    }

    /// The status that this node reports, as JSON text.
    pub(crate) async fn node_status_json(&self, node: NodeId, timeout: Duration) -> Result<String, Error> {
        match self.ask_node(node, AdminOperation::Status, timeout).await.map_err(NoAnswer::of_query)? {
            ResponseAnswer::Status(json) => Ok(String::from_utf8_lossy(&json).into_owned()),
            _ => Err(Error::not_applied(NotApplied::Unreachable { node, reason: None })),
        }
    }

    /// Asks exactly this node, without retry.
    pub(crate) async fn ask_node(
        &self,
        node: NodeId,
        operation: AdminOperation,
        timeout: Duration,
    ) -> Result<ResponseAnswer, NoAnswer> {
        self.begin_call().await?;
        let deadline = from_now(timeout);
        let channel = self.reached(node, deadline).await?;
        let question = Question::admin(operation);
        match channel.ask(&question, deadline, NO_DOUBTS).await {
            CallOutcome::Answered(response) => Ok(response.answer),
            CallOutcome::NotSent(reason) => Err(reason.error(node).into()),
            CallOutcome::Unanswered(reason) => Err(NoAnswer::Unanswered { node, reason: reason.into() }),
        }
    }
}

async fn ask_at(endpoint: &Endpoint, addr: SocketAddr, deadline: Instant) -> Result<Routing, ()> {
    let until = deadline.min(Instant::now() + ASK_TIMEOUT);
    match timeout_at(until, endpoint.connect(addr)).await {
        Ok(Ok(connection)) => ask_on(&connection, until, false).await.ok().flatten().ok_or(()),
        _ => Err(()),
    }
}

/// Locations of a node: its first address, its host name, and its other addresses.
fn places(node: &NodeAddress) -> Vec<Seed> {
    let mut places: Vec<_> = node.addrs.iter().copied().map(Seed::from).collect();
    if let Some(name) = node.host.as_deref().and_then(|host| host.parse().ok()) {
        places.insert(places.len().min(1), name);
    }
    places
}

/// The first location of each node, then the second ones, and so on: the addresses of a dead node must not delay those
/// of others.
fn in_turn<'a, P: Clone + 'a>(nodes: impl Iterator<Item = &'a [P]>) -> Vec<P> {
    let nodes: Vec<_> = nodes.collect();
    let most = nodes.iter().map(|places| places.len()).max().unwrap_or(0);
    (0..most).flat_map(|at| nodes.iter().filter_map(move |places| places.get(at).cloned())).collect()
}

async fn ask_routing(channel: &Channel, deadline: Instant) -> Option<Routing> {
    let question = Question::admin(AdminOperation::Routing);
    let until = deadline.min(Instant::now() + ASK_TIMEOUT);
    timeout_at(until, channel.link().connected()).await.ok()?.ok()?;
    match channel.ask(&question, until, NO_DOUBTS).await {
        CallOutcome::Answered(response) => match response.answer {
            ResponseAnswer::Routing(routing) => routing.map(|routing| *routing),
            _ => None,
        },
        _ => None,
    }
}

/// Queries the routing over `connection`. `None`: the node's cluster isn't formed yet, or was replaced by another one.
/// With `anyway`, a node of a replaced cluster answers, too.
pub(crate) async fn ask_on(
    connection: &Connection,
    until: Instant,
    anyway: bool,
) -> Result<Option<Routing>, ConnectError> {
    let operation = if anyway { AdminOperation::RoutingAnyway } else { AdminOperation::Routing };
    match ask_once(connection, operation, until).await {
        Ok(ResponseAnswer::Routing(routing)) => Ok(routing.map(|routing| *routing)),
        Ok(_) => Err(ConnectError::Malformed("the answer doesn't match the request".to_owned())),
        Err(AskError::NotSent(reason) | AskError::Unanswered(reason)) => Err(reason),
    }
}

/// Why the node at the other end of a connection gave no answer.
pub(crate) enum AskError {
    /// The node certainly didn't receive the question.
    NotSent(ConnectError),
    Unanswered(ConnectError),
}

/// Asks on a stream of its own, without retry.
pub(crate) async fn ask_once(
    connection: &Connection,
    operation: AdminOperation,
    until: Instant,
) -> Result<ResponseAnswer, AskError> {
    let malformed = |what: &dyn std::fmt::Display| ConnectError::Malformed(what.to_string());
    let opened = async {
        let stream = connection.open_bi(StreamKind(REQUESTS), 1).await.map_err(|error| malformed(&error))?;
        let deadline_ms = until.saturating_duration_since(Instant::now()).as_millis() as u32;
        let operation = Operation::Admin(operation);
        let request = Request { number: 1, chain: ChainId(0), deadline_ms, forwarded: true, operation };
        Ok((stream, encode_request(&request, connection.peer().version).map_err(|error| malformed(&error))?))
    };
    let opened = timeout_at(until, opened).await.unwrap_or(Err(ConnectError::TimedOut));
    let ((mut writer, mut reader), request) = opened.map_err(AskError::NotSent)?;
    let asked = async {
        writer.send(&request.header, &request.body).await.map_err(|error| malformed(&error))?;
        let frame = reader.next().await.map_err(|error| malformed(&error))?;
        writer.finish();
        let Some(frame) = frame else { return Err(malformed(&"no answer")) };
        Ok(decode_response(&frame).map_err(|error| malformed(&error))?.answer)
    };
    timeout_at(until, asked).await.unwrap_or(Err(ConnectError::TimedOut)).map_err(AskError::Unanswered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_asked_in_turn() {
        let at = |ip: u8| SocketAddr::from(([10, 0, 0, ip], 7400));
        let nodes = [vec![at(1), at(2), at(3)], vec![], vec![at(4)], vec![at(5), at(6)]];
        let order = in_turn(nodes.iter().map(|addrs| &addrs[..]));
        assert_eq!(order, [at(1), at(4), at(5), at(2), at(6), at(3)]);
        assert_eq!(in_turn::<SocketAddr>([].into_iter()), []);
    }

    #[test]
    fn the_name_of_a_node_is_its_second_place() {
        let at = |ip: u8| SocketAddr::from(([10, 0, 0, ip], 7400));
        let node = |addrs, host: &str| NodeAddress { name: "n".into(), addrs, host: Some(host.into()) };
        let shown = |node| places(&node).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(shown(node(vec![at(1), at(2)], "db:1")), ["10.0.0.1:7400", "db:1", "10.0.0.2:7400"]);
        assert_eq!(shown(node(vec![], "db:1")), ["db:1"]);
        assert_eq!(shown(node(vec![at(1)], "no name")), ["10.0.0.1:7400"]);
    }
}
