//! Dials whoever discovery has found, until they are met or it is known that they won't be.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use rand::RngExt;
use tokio::{
    task::{AbortHandle, JoinSet},
    time::sleep,
};

use super::{
    board::{Board, SeedState},
    hub::Hub,
    member::MemberEvent,
};
use crate::{
    discovery::{Candidate, Candidates, Source},
    error::{ConnectError, Refusal},
    id::NodeId,
    transport::Endpoint,
};

/// Candidates that are pursued at a time.
const MAX_PURSUED: usize = 1024;

/// The first and the longest pause between two rounds of dialling a candidate.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A candidate that is no seed is given up after so many rounds, until it is found again.
const ROUNDS: u32 = 20;

/// Dials candidates.
pub(super) struct Pursuit {
    pub(super) endpoint: Endpoint,
    pub(super) hub: Arc<Hub>,
    pub(super) board: Arc<Board>,
}

/// What is pursued once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Seed(String),
    Node(NodeId),
    Place(Vec<SocketAddr>),
}

/// How a round of dialling ended.
enum Round {
    /// Somebody is there, and has accepted us.
    Met(NodeId),
    /// It is this node.
    Itself,
    /// Refused, and will be again.
    Refused(SocketAddr, ConnectError),
    /// Nobody is there, or they have no time.
    Failed(String),
}

impl Pursuit {
    pub(super) fn new(endpoint: Endpoint, hub: Arc<Hub>, board: Arc<Board>) -> Self {
        Self { endpoint, hub, board }
    }

    /// Pursues all `candidates`, for as long as it runs.
    pub(super) async fn run(self, mut candidates: Candidates) {
        let pursuit = Arc::new(self);
        let mut tasks = JoinSet::new();
        let mut pursued: BTreeMap<Key, (Vec<SocketAddr>, AbortHandle)> = BTreeMap::new();
        let mut more = true;
        while more || !tasks.is_empty() {
            tokio::select! {
                candidate = next(&mut candidates), if more => match candidate {
                    Some(candidate) => {
                        pursued.retain(|_, (_, task)| !task.is_finished());
                        pursuit.consider(candidate, &mut tasks, &mut pursued);
                    }
                    None => more = false,
                },
                _ = tasks.join_next(), if !tasks.is_empty() => {}
            }
        }
    }

    fn consider(
        self: &Arc<Self>,
        candidate: Candidate,
        tasks: &mut JoinSet<()>,
        pursued: &mut BTreeMap<Key, (Vec<SocketAddr>, AbortHandle)>,
    ) {
        let key = match (&candidate.source, candidate.node) {
            (Source::Seed(seed), _) => Key::Seed(seed.clone()),
            (_, Some(node)) => Key::Node(node),
            (_, None) => Key::Place(candidate.addrs.clone()),
        };
        match pursued.get(&key) {
            Some((addrs, _)) if *addrs == candidate.addrs && !candidate.gone => return,
            Some((_, task)) => task.abort(),
            None if candidate.gone => return,
            None if pursued.len() >= MAX_PURSUED => {
                tracing::debug!(?candidate, "too many candidates");
                return;
            }
            None => {}
        }
        if candidate.gone {
            pursued.remove(&key);
            return;
        }
        let addrs = candidate.addrs.clone();
        let task = match key.clone() {
            Key::Seed(seed) => tasks.spawn(Arc::clone(self).pursue_seed(seed, candidate)),
            _ => tasks.spawn(Arc::clone(self).pursue_found(candidate)),
        };
        pursued.insert(key, (addrs, task));
    }

    /// A seed was given by somebody who wants it: it is tried for ever.
    async fn pursue_seed(self: Arc<Self>, seed: String, candidate: Candidate) {
        let mut pause = PAUSES.0;
        loop {
            let state = match self.round(&candidate).await {
                Round::Itself => {
                    self.board.note(&seed, &SeedState::Itself);
                    return;
                }
                Round::Met(node) => {
                    self.board.note(&seed, &SeedState::Met(node));
                    self.while_a_member(node).await;
                    pause = PAUSES.0;
                    continue;
                }
                Round::Refused(addr, reason) => SeedState::Refused { addr, reason },
                Round::Failed(why) => SeedState::Trying { last: Some(why) },
            };
            if self.board.note(&seed, &state)
                && let SeedState::Refused { addr, reason } = state
            {
                tracing::warn!(%seed, %addr, %reason, "a seed does not let this node in");
                self.hub.push(MemberEvent::SeedRefused { seed: seed.clone(), addr, reason });
            }
            rest(&mut pause).await;
        }
    }

    /// Looks after a node now and then, and returns when it is no member that is well.
    async fn while_a_member(&self, node: NodeId) {
        loop {
            sleep(PAUSES.1).await;
            if !self.hub.is_active(node) {
                return;
            }
        }
    }

    /// Somebody whom no one has asked for: skipped if it does not want us or we it, with one warning.
    async fn pursue_found(self: Arc<Self>, candidate: Candidate) {
        let mut pause = PAUSES.0;
        for _ in 0..ROUNDS {
            if self.is_known(&candidate) {
                return;
            }
            match self.round(&candidate).await {
                Round::Met(_) | Round::Itself => return,
                Round::Refused(addr, reason) => {
                    if self.board.warns_of(addr) {
                        tracing::warn!(%addr, %reason, "a node that was found is skipped");
                    }
                    return;
                }
                Round::Failed(_) => rest(&mut pause).await,
            }
        }
    }

    fn is_known(&self, candidate: &Candidate) -> bool {
        let member = candidate.node.and_then(|node| self.hub.member(node));
        let known =
            member.filter(|member| candidate.addrs.contains(&member.addr) && self.hub.is_active(member.id.node));
        if let Some(member) = &known {
            self.board.found(member.id.node, &candidate.source);
        }
        known.is_some()
    }

    /// Dials all addresses of a candidate until somebody accepts.
    async fn round(&self, candidate: &Candidate) -> Round {
        let addrs = match candidate.resolve().await {
            Ok(addrs) => addrs,
            Err(error) => return Round::Failed(error.to_string()),
        };
        let mut outcome = Round::Failed("no address".into());
        for addr in addrs {
            let dialled = match candidate.node {
                Some(node) => self.endpoint.connect_to(node, addr).await,
                None => self.endpoint.connect(addr).await,
            };
            match dialled {
                // The endpoint has told the membership of it, which makes a link of its own.
                Ok(connection) => {
                    let node = connection.peer().id.node;
                    self.board.found(node, &candidate.source);
                    return Round::Met(node);
                }
                Err(ConnectError::Refused(Refusal::Itself(other))) if other == self.endpoint.id() => {
                    return Round::Itself;
                }
                // Another address may have better news, but a refusal says more than silence.
                Err(error) if is_final(&error) => outcome = Round::Refused(addr, error),
                Err(error) => {
                    if let Round::Failed(why) = &mut outcome {
                        *why = format!("{addr}: {error}");
                    }
                }
            }
        }
        outcome
    }
}

/// Whether the next try will end in the same way.
fn is_final(error: &ConnectError) -> bool {
    match error {
        ConnectError::Refused(refusal) | ConnectError::Rejected(refusal) => {
            !matches!(refusal, Refusal::Busy | Refusal::TimedOut)
        }
        ConnectError::Untrusted(_)
        | ConnectError::WrongPeer { .. }
        | ConnectError::Malformed(_)
        | ConnectError::BadAddress { .. } => true,
        ConnectError::TimedOut | ConnectError::Lost(_) | ConnectError::NoAddress | ConnectError::EndpointClosed => {
            false
        }
    }
}

async fn next(candidates: &mut Candidates) -> Option<Candidate> {
    std::future::poll_fn(|cx| candidates.as_mut().poll_next(cx)).await
}

/// Waits, and doubles the pause.
async fn rest(pause: &mut Duration) {
    #[allow(clippy::disallowed_methods, reason = "nodes that dial in step would go on so for ever")]
    let chance = rand::rng().random::<f64>();
    sleep(pause.mul_f64(1.0 - chance / 2.0)).await;
    *pause = (*pause * 2).min(PAUSES.1);
}
