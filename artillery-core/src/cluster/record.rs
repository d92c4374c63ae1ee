//! Records the progress of the search for other nodes: the state of each seed, the source of each node, received
//! addresses, and refusals.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::{
    discovery::{Candidate, Seed, Source},
    error::ConnectError,
    id::{MemberId, NodeId},
};

/// A seed and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeedStatus {
    /// The seed, as `HOST:PORT` with the host in lower case and an IP address in its shortest form.
    pub seed: String,
    /// The result of the latest attempt.
    pub state: SeedState,
}

/// The state of a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeedState {
    /// The latest attempt failed, or none has ended yet.
    Trying {
        /// Why the last attempt failed, if one has ended.
        last: Option<String>,
    },
    /// The node at the seed refused this node, or this node refused it, for a reason that a retry would not change. A
    /// certificate that is not trusted and an invalid hello are such reasons. Too many connections are not.
    Refused {
        /// The address of that node.
        addr: SocketAddr,
        /// The reason for the refusal.
        reason: ConnectError,
    },
    /// This member answered at the seed. The seed is dialled again once the member is no longer active.
    Met(NodeId),
    /// All addresses of the seed lead to this node itself.
    Itself,
}

/// A peer that this node refused, or an announced peer that refused this node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedPeer {
    /// The address of the peer.
    pub addr: SocketAddr,
    /// [`ConnectError::Rejected`] if this node refused the peer, [`ConnectError::Refused`] if the peer refused this
    /// node. Other variants name a fault that either side detected, such as [`ConnectError::WrongPeer`].
    pub reason: ConnectError,
}

impl RefusedPeer {
    /// Combines an address with a reason.
    pub fn new(addr: SocketAddr, reason: ConnectError) -> Self {
        Self { addr, reason }
    }
}

#[derive(Debug)]
pub(super) struct DiscoveryRecord {
    seeds: watch::Sender<Vec<SeedStatus>>,
    sources: Mutex<NodeSources>,
    /// The other process that owns this node's name, if peers have reported one.
    name_taken: watch::Sender<Option<MemberId>>,
}

#[derive(Debug, Default)]
struct NodeSources {
    by_node: BTreeMap<NodeId, Source>,
    warned: BTreeSet<SocketAddr>,
    met: bool,
    /// Announced and listed addresses, except seeds. For announced ones also why the last dial failed; failures at
    /// listed ones are not recorded here.
    heard: BTreeMap<SocketAddr, Option<String>>,
    /// Announced nodes and listed places, except seeds, that have neither answered nor refused, and were neither
    /// withdrawn nor abandoned.
    unanswered: BTreeSet<Awaited>,
    /// Seeds that also resolve to this node. Their other nodes are not awaited: when they start, they find this node by
    /// the same seed.
    own: BTreeSet<String>,
    /// Peers that were refused, or that refused this node, with the newest reason.
    refused: BTreeMap<SocketAddr, ConnectError>,
    /// Why multicast DNS could not be started although it is enabled.
    no_multicast: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Awaited {
    Node(NodeId),
    Place(Option<Seed>, Vec<SocketAddr>),
}

impl Awaited {
    pub(super) fn of(candidate: &Candidate) -> Self {
        match candidate.node {
            Some(node) => Self::Node(node),
            None => Self::Place(candidate.host.clone(), candidate.addrs.clone()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) addr: SocketAddr,
    /// Why the last dial failed, if it was recorded.
    pub(super) failure: Option<String>,
}

/// Maximum number of nodes whose source is remembered.
const MAX_SOURCES: usize = 4096;

/// Maximum number each of remembered addresses, awaited answers and refused peers.
const MAX_HEARD: usize = 64;

const MAX_WARNED: usize = 1024;

impl DiscoveryRecord {
    pub(super) fn new(seeds: impl Iterator<Item = String>) -> Self {
        let seeds = seeds.map(|seed| SeedStatus { seed, state: SeedState::Trying { last: None } }).collect();
        Self { seeds: watch::Sender::new(seeds), sources: Mutex::default(), name_taken: watch::Sender::new(None) }
    }

    fn sources(&self) -> MutexGuard<'_, NodeSources> {
        // A poisoned lock is still consistent: no code that holds it can panic halfway through a change.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn seeds(&self) -> Vec<SeedStatus> {
        self.seeds.borrow().clone()
    }

    /// Records the state of a seed. Returns whether it has changed.
    pub(super) fn set_state(&self, seed: &str, state: &SeedState) -> bool {
        self.seeds.send_if_modified(|seeds| {
            let Some(known) = seeds.iter_mut().find(|known| known.seed == seed) else { return false };
            let news = known.state != *state;
            known.state = state.clone();
            news
        })
    }

    pub(super) fn set_source(&self, node: NodeId, source: &Source) {
        let mut sources = self.sources();
        if sources.by_node.len() < MAX_SOURCES {
            sources.by_node.entry(node).or_insert_with(|| source.clone());
        }
    }

    pub(super) fn found_by(&self, node: NodeId) -> Option<Source> {
        self.sources().by_node.get(&node).cloned()
    }

    /// Whether to log a warning about `addr`: at most once for each address, whichever side dialled, and for at most
    /// [`MAX_WARNED`] addresses.
    pub(super) fn should_warn(&self, addr: SocketAddr) -> bool {
        let mut sources = self.sources();
        sources.warned.len() < MAX_WARNED && sources.warned.insert(addr)
    }

    /// Records the process that owns this node's name. The first report is kept.
    pub(super) fn set_name_taken(&self, by: MemberId) {
        self.name_taken.send_if_modified(|known| {
            let new = known.is_none();
            known.get_or_insert(by);
            new
        });
    }

    pub(super) async fn name_taken(&self) -> MemberId {
        let mut taken = self.name_taken.subscribe();
        loop {
            let by = *taken.borrow_and_update();
            if let Some(by) = by {
                return by;
            }
            // Unreachable, since `self` owns the sender.
            if taken.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Records that a peer was accepted, or has accepted this node.
    pub(super) fn set_met(&self, node: NodeId) {
        let mut sources = self.sources();
        sources.met = true;
        sources.heard.clear();
        sources.unanswered.remove(&Awaited::Node(node));
    }

    pub(super) fn has_met(&self) -> bool {
        self.sources().met
    }

    pub(super) fn hear(&self, addrs: &[SocketAddr]) {
        let mut sources = self.sources();
        for addr in addrs {
            if !sources.met && sources.heard.len() < MAX_HEARD {
                sources.heard.entry(*addr).or_default();
            }
        }
    }

    pub(super) fn failed(&self, addr: SocketAddr, why: String) {
        if let Some(failure) = self.sources().heard.get_mut(&addr) {
            *failure = Some(why);
        }
    }

    pub(super) fn set_awaited(&self, awaited: Awaited) {
        let mut sources = self.sources();
        if sources.unanswered.len() < MAX_HEARD {
            sources.unanswered.insert(awaited);
        }
    }

    pub(super) fn set_answered(&self, awaited: &Awaited) {
        self.sources().unanswered.remove(awaited);
    }

    /// Records that one address of a seed or listed place belongs to this node.
    pub(super) fn set_own(&self, candidate: &Candidate) {
        match &candidate.source {
            Source::Seed(seed) => drop(self.sources().own.insert(seed.clone())),
            _ => self.set_answered(&Awaited::of(candidate)),
        }
    }

    pub(super) fn is_unanswered(&self) -> bool {
        let sources = self.sources();
        let is_trying = |status: &SeedStatus| {
            matches!(status.state, SeedState::Trying { .. }) && !sources.own.contains(&status.seed)
        };
        self.seeds.borrow().iter().any(is_trying) || !sources.unanswered.is_empty()
    }

    pub(super) fn set_refused(&self, addr: SocketAddr, reason: ConnectError) {
        let mut sources = self.sources();
        if sources.refused.len() < MAX_HEARD || sources.refused.contains_key(&addr) {
            sources.refused.insert(addr, reason);
        }
    }

    pub(super) fn refused(&self) -> Vec<RefusedPeer> {
        let refused = &self.sources().refused;
        refused.iter().map(|(&addr, reason)| RefusedPeer::new(addr, reason.clone())).collect()
    }

    pub(super) fn set_no_multicast(&self, why: String) {
        self.sources().no_multicast = Some(why);
    }

    pub(super) fn no_multicast(&self) -> Option<String> {
        self.sources().no_multicast.clone()
    }

    /// The announced and listed addresses. Empty once a node was met.
    pub(super) fn heard(&self) -> Vec<Heard> {
        let heard = &self.sources().heard;
        heard.iter().map(|(&addr, failure)| Heard { addr, failure: failure.clone() }).collect()
    }

    pub(super) async fn refused_by_all(&self) -> Vec<SeedStatus> {
        let refused = |status: &SeedStatus| matches!(status.state, SeedState::Refused { .. });
        let mut seeds = self.seeds.subscribe();
        loop {
            let now = seeds.borrow_and_update().clone();
            if !now.is_empty() && now.iter().all(refused) && !self.sources().met {
                return now;
            }
            // Unreachable, since `self` owns the sender.
            if seeds.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refusal;

    fn record() -> DiscoveryRecord {
        DiscoveryRecord::new(["x:1".to_owned(), "y:2".to_owned()].into_iter())
    }

    fn refused() -> SeedState {
        SeedState::Refused { addr: ([127, 0, 0, 1], 1).into(), reason: ConnectError::Refused(Refusal::Busy) }
    }

    async fn is_refused(record: &DiscoveryRecord) -> bool {
        tokio::select! {
            biased;
            _ = record.refused_by_all() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn all_seeds_have_to_refuse() {
        let record = record();
        assert!(record.set_state("x:1", &refused()));
        assert!(!record.set_state("x:1", &refused()), "reported once");
        assert!(!is_refused(&record).await);
        record.set_state("y:2", &refused());
        assert!(is_refused(&record).await);
        record.set_state("y:2", &SeedState::Trying { last: None });
        assert!(!is_refused(&record).await);
    }

    #[tokio::test]
    async fn a_node_that_has_met_a_member_is_not_refused() {
        let record = record();
        record.set_met(NodeId::from_name("met"));
        record.set_state("x:1", &refused());
        record.set_state("y:2", &refused());
        assert!(!is_refused(&record).await);
    }

    #[tokio::test]
    async fn without_seeds_none_refuses() {
        assert!(!is_refused(&DiscoveryRecord::new(std::iter::empty())).await);
    }

    #[test]
    fn announcements_are_remembered_until_a_member_is_met() {
        let record = record();
        let addr = |port| SocketAddr::from(([127, 0, 0, 1], port));
        record.hear(&[addr(1), addr(2)]);
        record.failed(addr(2), "silence".into());
        record.failed(addr(3), "silence".into());
        let failure = Some("silence".to_owned());
        assert_eq!(record.heard(), [Heard { addr: addr(1), failure: None }, Heard { addr: addr(2), failure }]);
        (1..200).for_each(|port| record.hear(&[addr(port)]));
        assert_eq!(record.heard().len(), MAX_HEARD);
        record.set_met(NodeId::from_name("met"));
        record.hear(&[addr(1)]);
        assert_eq!(record.heard(), []);
    }

    #[test]
    fn seeds_nodes_and_places_are_waited_for_until_they_answer() {
        let record = DiscoveryRecord::new(["x:1".to_owned()].into_iter());
        assert!(record.is_unanswered());
        record.set_state("x:1", &SeedState::Itself);
        assert!(!record.is_unanswered());
        let named = |host: &str| Awaited::Place(Some(host.parse().unwrap()), Vec::new());
        let [a, b] = ["a", "b"].map(NodeId::from_name);
        for awaited in [Awaited::Node(a), Awaited::Node(b), named("db-1.example:7400")] {
            record.set_awaited(awaited);
        }
        record.set_met(a);
        record.set_answered(&named("db-1.example:7400"));
        assert!(record.is_unanswered(), "another node has answered, and this one hasn't");
        record.set_answered(&Awaited::Node(b));
        assert!(!record.is_unanswered());
    }

    #[test]
    fn a_seed_that_leads_to_this_node_too_is_not_waited_for() {
        let record = record();
        let seed = |name: &str| Candidate::new(Source::Seed(name.to_owned()), None, Vec::new());
        record.set_own(&seed("x:1"));
        assert!(record.is_unanswered(), "the other seed");
        record.set_own(&seed("y:2"));
        assert!(!record.is_unanswered());
    }

    #[test]
    fn refused_peers_are_bounded_and_the_newest_reason_counts() {
        let record = record();
        let addr = |port| SocketAddr::from(([127, 0, 0, 1], port));
        (0..200).for_each(|port| record.set_refused(addr(port), ConnectError::TimedOut));
        record.set_refused(addr(0), ConnectError::NoAddress);
        let refused = record.refused();
        assert_eq!((refused.len(), &refused[0].reason), (MAX_HEARD, &ConnectError::NoAddress));
    }

    #[test]
    fn one_warning_is_enough() {
        let record = record();
        let addr = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!([1, 1, 2].map(|port| record.should_warn(addr(port))), [true, false, true]);
    }
}
