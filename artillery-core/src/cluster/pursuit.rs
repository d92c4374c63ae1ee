//! Dials the nodes that discovery has found, until they are met or it is known that they won't be.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use rand::RngExt;
use tokio::{
    task::{AbortHandle, Id, JoinSet, try_id},
    time::sleep,
};

use super::{
    board::{Board, SeedState},
    hub::Hub,
    member::MemberEvent,
    prospects::{Place, Prospects},
};
use crate::{
    discovery::{Candidate, Candidates, Source},
    error::{ConnectError, Refusal},
    id::NodeId,
    transport::Endpoint,
};

/// Seeds that are dialled at a time. Operators give them, so they have room of their own.
const MAX_SEEDS: usize = 1024;

/// The first and the longest pause between two rounds of dialling a candidate.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Dials candidates.
pub(super) struct Pursuit {
    pub(super) endpoint: Endpoint,
    pub(super) hub: Arc<Hub>,
    pub(super) board: Arc<Board>,
}

/// All that is dialled.
#[derive(Default)]
struct Pursued {
    tasks: JoinSet<Option<Dialled>>,
    prospects: Prospects,
    /// The task of each place that is dialled.
    places: BTreeMap<Place, (Source, AbortHandle)>,
    seeds: BTreeMap<String, (Vec<SocketAddr>, AbortHandle)>,
}

/// What came of one round at a place that was announced.
struct Dialled {
    place: Place,
    /// Of the task that dialled: the place may have been given up and taken up anew meanwhile.
    task: Option<Id>,
    round: Round,
}

/// How a round of dialling ended.
enum Round {
    /// A node is there, and has accepted us.
    Met(NodeId),
    /// It is this node.
    Itself,
    /// Refused, and will be again.
    Refused(SocketAddr, ConnectError),
    /// Nothing answers there, or has no time.
    Failed(String),
}

impl Pursuit {
    pub(super) fn new(endpoint: Endpoint, hub: Arc<Hub>, board: Arc<Board>) -> Self {
        Self { endpoint, hub, board }
    }

    /// Pursues all `candidates`, for as long as it runs.
    pub(super) async fn run(self, mut candidates: Candidates) {
        let pursuit = Arc::new(self);
        let mut pursued = Pursued::default();
        let mut more = true;
        while more || !pursued.tasks.is_empty() {
            tokio::select! {
                candidate = next(&mut candidates), if more => match candidate {
                    Some(candidate) => pursuit.consider(candidate, &mut pursued),
                    None => more = false,
                },
                Some(done) = pursued.tasks.join_next(), if !pursued.tasks.is_empty() => {
                    // A task that was given up has nothing to say.
                    if let Ok(Some(dialled)) = done {
                        pursuit.dialled(dialled, &mut pursued);
                    }
                }
            }
        }
    }

    fn consider(self: &Arc<Self>, candidate: Candidate, pursued: &mut Pursued) {
        if let Source::Seed(seed) = &candidate.source {
            let seed = seed.clone();
            return self.consider_seed(seed, candidate, pursued);
        }
        if candidate.gone {
            let end = pursued.prospects.gone(candidate.node, &candidate.addrs);
            return pursued.give_up(&end);
        }
        if self.known(&candidate).is_some() {
            return;
        }
        // What the membership says of a node comes under that node's certificate.
        if let Some(member) = candidate.node.and_then(|node| self.hub.member(node)) {
            pursued.prospects.proved(member.id.node, member.addr);
        }
        let orders = pursued.prospects.announced(candidate.node, &candidate.addrs);
        pursued.give_up(&orders.end);
        for place in orders.begin {
            self.begin(place, candidate.source.clone(), Duration::ZERO, pursued);
        }
    }

    fn consider_seed(self: &Arc<Self>, seed: String, candidate: Candidate, pursued: &mut Pursued) {
        match pursued.seeds.get(&seed) {
            Some((addrs, task)) if *addrs == candidate.addrs && !candidate.gone && !task.is_finished() => return,
            Some((_, task)) => task.abort(),
            None if candidate.gone => return,
            None if pursued.seeds.len() >= MAX_SEEDS => {
                tracing::debug!(?candidate, "too many seeds");
                return;
            }
            None => {}
        }
        pursued.seeds.remove(&seed);
        if !candidate.gone {
            let addrs = candidate.addrs.clone();
            let task = pursued.tasks.spawn(Arc::clone(self).pursue_seed(seed.clone(), candidate));
            pursued.seeds.insert(seed, (addrs, task));
        }
    }

    /// Has a place dialled once, after a pause.
    fn begin(self: &Arc<Self>, place: Place, source: Source, pause: Duration, pursued: &mut Pursued) {
        let (pursuit, found_by) = (Arc::clone(self), source.clone());
        let task = pursued.tasks.spawn(async move {
            sleep(pause).await;
            let candidate = Candidate { addrs: vec![place.addr], node: place.node, source: found_by, gone: false };
            let round = match pursuit.known(&candidate) {
                Some(node) => Round::Met(node),
                None => pursuit.round(&candidate).await,
            };
            Some(Dialled { place, task: try_id(), round })
        });
        pursued.places.insert(place, (source, task));
    }

    fn dialled(self: &Arc<Self>, Dialled { place, task, round }: Dialled, pursued: &mut Pursued) {
        if pursued.places.get(&place).map(|(_, running)| running.id()) != task {
            return;
        }
        let Some((source, _)) = pursued.places.remove(&place) else { return };
        match round {
            Round::Met(node) => {
                let end = pursued.prospects.answered(node, place.addr);
                pursued.give_up(&end);
            }
            Round::Itself => pursued.prospects.over(place),
            Round::Refused(addr, reason) => {
                pursued.prospects.over(place);
                if self.board.warns_of(addr) {
                    tracing::warn!(%addr, %reason, "a node that was found is skipped");
                }
            }
            Round::Failed(_) => {
                if let Some(rounds) = pursued.prospects.failed(place) {
                    self.begin(place, source, pause(rounds), pursued);
                }
            }
        }
    }

    /// A seed was given by somebody who wants it: it is tried for ever.
    async fn pursue_seed(self: Arc<Self>, seed: String, candidate: Candidate) -> Option<Dialled> {
        let mut pause = PAUSES.0;
        loop {
            let state = match self.round(&candidate).await {
                Round::Itself => {
                    self.board.note(&seed, &SeedState::Itself);
                    return None;
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

    /// The node of a candidate, if that is a member that is well and stands where the candidate says.
    fn known(&self, candidate: &Candidate) -> Option<NodeId> {
        let member = candidate.node.and_then(|node| self.hub.member(node))?;
        let node = member.id.node;
        if !candidate.addrs.contains(&member.addr) || !self.hub.is_active(node) {
            return None;
        }
        self.board.found(node, &candidate.source);
        Some(node)
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

impl Pursued {
    /// Stops dialling these places.
    fn give_up(&mut self, places: &[Place]) {
        for place in places {
            if let Some((_, task)) = self.places.remove(place) {
                task.abort();
            }
        }
    }
}

/// The pause after so many rounds in vain.
fn pause(rounds: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(rounds.saturating_sub(1));
    by_chance(PAUSES.0.saturating_mul(doubled).min(PAUSES.1))
}

/// Waits, and doubles the pause.
async fn rest(pause: &mut Duration) {
    sleep(by_chance(*pause)).await;
    *pause = (*pause * 2).min(PAUSES.1);
}

/// The same or less, down to half of it.
#[allow(clippy::disallowed_methods, reason = "nodes that dial in step would go on so for ever")]
fn by_chance(pause: Duration) -> Duration {
    pause.mul_f64(1.0 - rand::rng().random::<f64>() / 2.0)
}
