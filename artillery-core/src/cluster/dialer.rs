//! Dials the nodes that discovery has found, until they are met or it is known that they won't be.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use rand::RngExt;
use tokio::{
    task::{AbortHandle, Id, JoinSet, try_id},
    time::sleep,
};

use super::{
    hub::MemberHub,
    member::MemberEvent,
    record::{DiscoveryRecord, SeedState},
    targets::{DialTarget, DialTargets},
};
use crate::{
    discovery::{Candidate, Candidates, Source},
    error::{ConnectError, Refusal},
    id::NodeId,
    transport::Endpoint,
};

/// Seeds that are dialled at a time. Operators give them, so they have room of their own.
const MAX_SEEDS: usize = 1024;

/// The first and shortest pause between two rounds of dialling.
const MIN_ROUND_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause between two rounds of dialling.
const MAX_ROUND_PAUSE: Duration = Duration::from_secs(5);

/// Dials candidates.
pub(super) struct Dialer {
    pub(super) endpoint: Endpoint,
    pub(super) hub: Arc<MemberHub>,
    pub(super) record: Arc<DiscoveryRecord>,
}

/// All that is dialled.
#[derive(Default)]
struct DialerState {
    tasks: JoinSet<Option<RoundResult>>,
    targets: DialTargets,
    /// The task of each place that is dialled.
    places: BTreeMap<DialTarget, (Source, AbortHandle)>,
    seeds: BTreeMap<String, (Vec<SocketAddr>, AbortHandle)>,
}

/// What came of one round at a place that was announced.
struct RoundResult {
    place: DialTarget,
    /// Of the task that dialled: the place may have been given up and taken up anew meanwhile.
    task: Option<Id>,
    round: RoundOutcome,
}

/// How a round of dialling ended.
enum RoundOutcome {
    /// A node is there, and has accepted us.
    Met(NodeId),
    /// It is this node.
    Itself,
    /// Refused, and will be again.
    Refused(SocketAddr, ConnectError),
    /// Nothing answers there, or has no time.
    Failed(String),
}

impl Dialer {
    pub(super) fn new(endpoint: Endpoint, hub: Arc<MemberHub>, record: Arc<DiscoveryRecord>) -> Self {
        Self { endpoint, hub, record }
    }

    /// Pursues all `candidates`, for as long as it runs.
    pub(super) async fn run(self, mut candidates: Candidates) {
        let dialer = Arc::new(self);
        let mut state = DialerState::default();
        let mut more = true;
        while more || !state.tasks.is_empty() {
            tokio::select! {
                candidate = next(&mut candidates), if more => match candidate {
                    Some(candidate) => dialer.consider(candidate, &mut state),
                    None => more = false,
                },
                Some(done) = state.tasks.join_next(), if !state.tasks.is_empty() => {
                    // A task that was given up has nothing to say.
                    if let Ok(Some(dialled)) = done {
                        dialer.dialled(dialled, &mut state);
                    }
                }
            }
        }
    }

    fn consider(self: &Arc<Self>, candidate: Candidate, state: &mut DialerState) {
        if let Source::Seed(seed) = &candidate.source {
            let seed = seed.clone();
            return self.consider_seed(seed, candidate, state);
        }
        if candidate.gone {
            let end = state.targets.gone(candidate.node, &candidate.addrs);
            return state.give_up(&end);
        }
        if self.known(&candidate).is_some() {
            return;
        }
        // What the membership says of a node comes under that node's certificate.
        if let Some(member) = candidate.node.and_then(|node| self.hub.member(node)) {
            state.targets.proved(member.id.node, member.addr);
        }
        let orders = state.targets.announced(candidate.node, &candidate.addrs);
        state.give_up(&orders.end);
        for place in orders.begin {
            self.begin(place, candidate.source.clone(), Duration::ZERO, state);
        }
    }

    fn consider_seed(self: &Arc<Self>, seed: String, candidate: Candidate, state: &mut DialerState) {
        match state.seeds.get(&seed) {
            Some((addrs, task)) if *addrs == candidate.addrs && !candidate.gone && !task.is_finished() => return,
            Some((_, task)) => task.abort(),
            None if candidate.gone => return,
            None if state.seeds.len() >= MAX_SEEDS => {
                tracing::debug!(?candidate, "too many seeds");
                return;
            }
            None => {}
        }
        state.seeds.remove(&seed);
        if !candidate.gone {
            let addrs = candidate.addrs.clone();
            let task = state.tasks.spawn(Arc::clone(self).pursue_seed(seed.clone(), candidate));
            state.seeds.insert(seed, (addrs, task));
        }
    }

    /// Has a place dialled once, after a pause.
    fn begin(self: &Arc<Self>, place: DialTarget, source: Source, pause: Duration, state: &mut DialerState) {
        let (dialer, found_by) = (Arc::clone(self), source.clone());
        let task = state.tasks.spawn(async move {
            sleep(pause).await;
            let candidate = Candidate { addrs: vec![place.addr], node: place.node, source: found_by, gone: false };
            let round = match dialer.known(&candidate) {
                Some(node) => RoundOutcome::Met(node),
                None => dialer.round(&candidate).await,
            };
            Some(RoundResult { place, task: try_id(), round })
        });
        state.places.insert(place, (source, task));
    }

    fn dialled(self: &Arc<Self>, RoundResult { place, task, round }: RoundResult, state: &mut DialerState) {
        if state.places.get(&place).map(|(_, running)| running.id()) != task {
            return;
        }
        let Some((source, _)) = state.places.remove(&place) else { return };
        match round {
            RoundOutcome::Met(node) => {
                let end = state.targets.answered(node, place.addr);
                state.give_up(&end);
            }
            RoundOutcome::Itself => state.targets.over(place),
            RoundOutcome::Refused(addr, reason) => {
                state.targets.over(place);
                if self.record.warns_of(addr) {
                    tracing::warn!(%addr, %reason, "a node that was found is skipped");
                }
            }
            RoundOutcome::Failed(_) => {
                if let Some(rounds) = state.targets.failed(place) {
                    self.begin(place, source, pause(rounds), state);
                }
            }
        }
    }

    /// A seed was given by somebody who wants it: it is tried for ever.
    async fn pursue_seed(self: Arc<Self>, seed: String, candidate: Candidate) -> Option<RoundResult> {
        let mut pause = MIN_ROUND_PAUSE;
        loop {
            let state = match self.round(&candidate).await {
                RoundOutcome::Itself => {
                    self.record.note(&seed, &SeedState::Itself);
                    return None;
                }
                RoundOutcome::Met(node) => {
                    self.record.note(&seed, &SeedState::Met(node));
                    self.while_a_member(node).await;
                    pause = MIN_ROUND_PAUSE;
                    continue;
                }
                RoundOutcome::Refused(addr, reason) => SeedState::Refused { addr, reason },
                RoundOutcome::Failed(why) => SeedState::Trying { last: Some(why) },
            };
            if self.record.note(&seed, &state)
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
            sleep(MAX_ROUND_PAUSE).await;
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
        self.record.found(node, &candidate.source);
        Some(node)
    }

    /// Dials all addresses of a candidate until somebody accepts.
    async fn round(&self, candidate: &Candidate) -> RoundOutcome {
        let addrs = match candidate.resolve().await {
            Ok(addrs) => addrs,
            Err(error) => return RoundOutcome::Failed(error.to_string()),
        };
        let mut outcome = RoundOutcome::Failed("no address".into());
        for addr in addrs {
            let dialled = match candidate.node {
                Some(node) => self.endpoint.connect_to(node, addr).await,
                None => self.endpoint.connect(addr).await,
            };
            match dialled {
                // The endpoint has told the membership of it, which makes a link of its own.
                Ok(connection) => {
                    let node = connection.peer().id.node;
                    self.record.found(node, &candidate.source);
                    return RoundOutcome::Met(node);
                }
                Err(ConnectError::Refused(Refusal::Itself(other))) if other == self.endpoint.id() => {
                    return RoundOutcome::Itself;
                }
                // Another address may have better news, but a refusal says more than silence.
                Err(error) if is_final(&error) => outcome = RoundOutcome::Refused(addr, error),
                Err(error) => {
                    if let RoundOutcome::Failed(why) = &mut outcome {
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

impl DialerState {
    /// Stops dialling these places.
    fn give_up(&mut self, places: &[DialTarget]) {
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
    by_chance(MIN_ROUND_PAUSE.saturating_mul(doubled).min(MAX_ROUND_PAUSE))
}

/// Waits, and doubles the pause.
async fn rest(pause: &mut Duration) {
    sleep(by_chance(*pause)).await;
    *pause = (*pause * 2).min(MAX_ROUND_PAUSE);
}

/// The same or less, down to half of it.
#[allow(clippy::disallowed_methods, reason = "nodes that dial in step would go on so for ever")]
fn by_chance(pause: Duration) -> Duration {
    pause.mul_f64(1.0 - rand::rng().random::<f64>() / 2.0)
}
