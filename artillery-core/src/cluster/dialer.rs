//! Dials the nodes that discovery finds.
//!
//! A target that was announced, by multicast DNS or with a node id, is dialled until it is met, turns out to be this
//! node, refuses permanently, is withdrawn after a failure, or fails too often. Any other place, such as a seed, is
//! dialled until its source withdraws it or it turns out to be this node. Both kinds are bounded, see `targets` and
//! `places`.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    task::{AbortHandle, Id, JoinSet, try_id},
    time::sleep,
};

use super::{
    hub::MemberHub,
    member::MemberEvent,
    places::DialPlaces,
    record::{Awaited, DiscoveryRecord, SeedState},
    round::RoundOutcome,
    targets::{DialTarget, DialTargets},
};
use crate::{
    discovery::{Candidate, Candidates, Source},
    error::ConnectError,
    id::NodeId,
    random,
    transport::{Endpoint, reach::without_zone, staggered::first_of},
};

/// The first and shortest pause between two rounds of dialling. Jitter shortens it further.
const MIN_ROUND_PAUSE: Duration = Duration::from_millis(100);

const MAX_ROUND_PAUSE: Duration = Duration::from_secs(5);

/// The longest pause between two rounds of dialling a listed place while this node belongs to no formation: such a node
/// waits for its seeds before it forms one.
const MAX_FREE_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Dialer {
    pub(super) endpoint: Endpoint,
    pub(super) hub: Arc<MemberHub>,
    pub(super) record: Arc<DiscoveryRecord>,
}

#[derive(Default)]
struct DialerState {
    tasks: JoinSet<Option<RoundResult>>,
    targets: DialTargets,
    dialled: BTreeMap<DialTarget, (Source, AbortHandle)>,
    places: DialPlaces<AbortHandle>,
}

/// The outcome of one round at an announced target.
struct RoundResult {
    target: DialTarget,
    /// The task that dialled. The result is ignored if another task has replaced it.
    task: Option<Id>,
    round: RoundOutcome,
}

impl Dialer {
    pub(super) fn new(endpoint: Endpoint, hub: Arc<MemberHub>, record: Arc<DiscoveryRecord>) -> Self {
        Self { endpoint, hub, record }
    }

    /// Dials all `candidates`, until the stream ends and no dial is in progress.
    pub(super) async fn run(self, mut candidates: Candidates) {
        let dialer = Arc::new(self);
        let mut state = DialerState::default();
        let mut more = true;
        while more || !state.tasks.is_empty() {
            tokio::select! {
                // A fixed order keeps runs reproducible.
                biased;
                candidate = next(&mut candidates), if more => match candidate {
                    Some(candidate) => dialer.on_candidate(candidate, &mut state),
                    None => more = false,
                },
                Some(done) = state.tasks.join_next(), if !state.tasks.is_empty() => {
                    // An aborted task has no result.
                    if let Ok(Some(result)) = done {
                        dialer.on_round(result, &mut state);
                    }
                }
            }
        }
    }

    fn on_candidate(self: &Arc<Self>, candidate: Candidate, state: &mut DialerState) {
        if candidate.node.is_none() && candidate.source != Source::Mdns {
            return self.on_listed(candidate, state);
        }
        if candidate.gone {
            let end = state.targets.on_gone(candidate.node, &candidate.addrs);
            state.give_up(&end);
            if !candidate.node.is_some_and(|node| state.targets.dials(node)) {
                self.record.set_answered(&Awaited::of(&candidate));
            }
            return;
        }
        if self.known_member(&candidate).is_some() {
            return;
        }
        // A member's addresses are reported only by members, which have shown their certificates. No stranger can
        // invent them, so they are treated as proven.
        if let Some(member) = candidate.node.and_then(|node| self.hub.member(node)) {
            member.addrs.iter().rev().for_each(|&addr| state.targets.set_proven(member.id.node, addr));
        }
        self.record.hear(&candidate.addrs);
        self.record.set_awaited(Awaited::of(&candidate));
        let changes = state.targets.on_announced(candidate.node, &candidate.addrs);
        state.give_up(&changes.end);
        for target in changes.begin {
            self.dial(target, candidate.source.clone(), Duration::ZERO, state);
        }
    }

    fn on_listed(self: &Arc<Self>, candidate: Candidate, state: &mut DialerState) {
        if candidate.gone {
            self.record.set_answered(&Awaited::of(&candidate));
            state.places.withdraw(&candidate).iter().for_each(AbortHandle::abort);
        } else if state.places.must_begin(&candidate, AbortHandle::is_finished) {
            // Seeds have states of their own.
            if !matches!(candidate.source, Source::Seed(_)) {
                self.record.hear(&candidate.addrs);
                self.record.set_awaited(Awaited::of(&candidate));
            }
            let task = state.tasks.spawn(Arc::clone(self).dial_place(candidate.clone()));
            state.places.insert(candidate, task).iter().for_each(AbortHandle::abort);
        }
    }

    fn dial(self: &Arc<Self>, target: DialTarget, source: Source, pause: Duration, state: &mut DialerState) {
        let (dialer, found_by) = (Arc::clone(self), source.clone());
        let task = state.tasks.spawn(async move {
            sleep(pause).await;
            let candidate = Candidate::new(found_by, target.node, vec![target.addr]);
            let round = match dialer.known_member(&candidate) {
                Some(node) => RoundOutcome::Met(node),
                None => dialer.dial_round(&candidate).await,
            };
            Some(RoundResult { target, task: try_id(), round })
        });
        state.dialled.insert(target, (source, task));
    }

    fn on_round(self: &Arc<Self>, RoundResult { target, task, round }: RoundResult, state: &mut DialerState) {
        if state.dialled.get(&target).map(|(_, running)| running.id()) != task {
            return;
        }
        let Some((source, _)) = state.dialled.remove(&target) else { return };
        match round {
            RoundOutcome::Met(node) => {
                self.record.set_answered(&Awaited::Node(node));
                self.answered(target);
                let end = state.targets.on_answered(node, target.addr);
                state.give_up(&end);
            }
            RoundOutcome::Itself => {
                self.answered(target);
                state.targets.remove(target);
            }
            RoundOutcome::Refused(addr, reason) => {
                self.record.failed(addr, reason.to_string());
                self.record.set_refused(addr, reason.clone());
                state.targets.remove(target);
                // Two hosts on separate networks may have the same address.
                if matches!(reason, ConnectError::WrongPeer { .. }) {
                    tracing::debug!(%addr, %reason, "an announced address belongs to another node");
                } else {
                    self.answered(target);
                    if self.record.should_warn(addr) {
                        tracing::warn!(%addr, %reason, "ignoring a discovered node");
                    }
                }
            }
            RoundOutcome::Failed(why) => {
                self.record.failed(target.addr, why);
                match state.targets.on_failed(target) {
                    Some(rounds) => self.dial(target, source, round_pause(rounds), state),
                    None => self.answered(target),
                }
            }
        }
    }

    fn answered(&self, target: DialTarget) {
        if let Some(node) = target.node {
            self.record.set_answered(&Awaited::Node(node));
        }
    }

    /// Dials a listed place until its node is met, and again once that node is no longer an active member. Ends if the
    /// place is this node itself. Operators expect their seeds to be met, so the number of attempts is unlimited.
    async fn dial_place(self: Arc<Self>, candidate: Candidate) -> Option<RoundResult> {
        let mut pause = MIN_ROUND_PAUSE;
        loop {
            let state = match self.dial_round(&candidate).await {
                RoundOutcome::Itself => {
                    self.set_state(&candidate, &SeedState::Itself);
                    return None;
                }
                RoundOutcome::Met(node) => {
                    self.set_state(&candidate, &SeedState::Met(node));
                    self.until_inactive(node).await;
                    pause = MIN_ROUND_PAUSE;
                    continue;
                }
                RoundOutcome::Refused(addr, reason) => SeedState::Refused { addr, reason },
                RoundOutcome::Failed(why) => SeedState::Trying { last: Some(why) },
            };
            self.set_state(&candidate, &state);
            let most = if self.endpoint.cluster_id().is_none() { MAX_FREE_PAUSE } else { MAX_ROUND_PAUSE };
            sleep(jitter(pause)).await;
            pause = (pause * 2).min(most);
        }
    }

    /// Records the state of a listed place, and reports a new refusal.
    fn set_state(&self, candidate: &Candidate, state: &SeedState) {
        let refusal = match state {
            SeedState::Refused { addr, reason } => Some((*addr, reason)),
            _ => None,
        };
        if !matches!(state, SeedState::Trying { .. }) {
            self.record.set_answered(&Awaited::of(candidate));
        }
        match (&candidate.source, refusal) {
            (Source::Seed(seed), refusal) => {
                if self.record.set_state(seed, state)
                    && let Some((addr, reason)) = refusal
                {
                    tracing::warn!(%seed, %addr, %reason, "a seed refused this node");
                    self.hub.push(MemberEvent::SeedRefused { seed: seed.clone(), addr, reason: reason.clone() });
                }
            }
            (source, Some((addr, reason))) if self.record.should_warn(addr) => {
                tracing::warn!(%source, %addr, %reason, "a discovered node refused this node");
            }
            _ => {}
        }
    }

    async fn until_inactive(&self, node: NodeId) {
        loop {
            sleep(MAX_ROUND_PAUSE).await;
            if !self.hub.is_active(node) {
                return;
            }
        }
    }

    /// The candidate's node, if it is an active member at one of the candidate's addresses. Also records the source.
    fn known_member(&self, candidate: &Candidate) -> Option<NodeId> {
        let member = candidate.node.and_then(|node| self.hub.member(node))?;
        let node = member.id.node;
        let is_known = |addr: &SocketAddr| member.addrs.contains(&without_zone(*addr));
        if !candidate.addrs.iter().any(is_known) || !self.hub.is_active(node) {
            return None;
        }
        self.record.set_source(node, &candidate.source);
        Some(node)
    }

    /// Dials all addresses of a candidate until one accepts.
    async fn dial_round(&self, candidate: &Candidate) -> RoundOutcome {
        let addrs = match candidate.resolve().await {
            Ok(addrs) => addrs,
            Err(error) => return RoundOutcome::Failed(error.to_string()),
        };
        match first_of(addrs, |addr| self.dial_addr(candidate, addr)).await {
            Ok(node) => RoundOutcome::Met(node),
            Err(failures) => RoundOutcome::of_failures(self.endpoint.id(), &candidate.addrs, failures),
        }
    }

    async fn dial_addr(&self, candidate: &Candidate, addr: SocketAddr) -> Result<NodeId, ConnectError> {
        let connected = match candidate.node {
            Some(node) => self.endpoint.connect_to(node, addr).await,
            None => self.endpoint.connect(addr).await,
        };
        // Recorded immediately, since the other addresses may never answer.
        if connected.as_ref().is_err_and(|error| error.is_itself(self.endpoint.id())) {
            self.record.set_own(candidate);
        }
        let connection = connected?;
        // The connection may be dropped: the endpoint has reported the peer to the membership, which dials a link of
        // its own.
        let node = connection.peer().id.node;
        self.record.set_source(node, &candidate.source);
        Ok(node)
    }
}

async fn next(candidates: &mut Candidates) -> Option<Candidate> {
    std::future::poll_fn(|cx| candidates.as_mut().poll_next(cx)).await
}

impl DialerState {
    fn give_up(&mut self, dialled: &[DialTarget]) {
        for target in dialled {
            if let Some((_, task)) = self.dialled.remove(target) {
                task.abort();
            }
        }
    }
}

fn round_pause(rounds: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(rounds.saturating_sub(1));
    jitter(MIN_ROUND_PAUSE.saturating_mul(doubled).min(MAX_ROUND_PAUSE))
}

/// Shortens the pause at random by up to a half.
fn jitter(pause: Duration) -> Duration {
    pause.mul_f64(1.0 - random::fraction() / 2.0)
}
