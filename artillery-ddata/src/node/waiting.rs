//! Why a node isn't ready, or no longer serves. Does no I/O: it maps the facts of the node to the reasons.

#[cfg(test)]
mod tests;
mod text;

use std::{net::SocketAddr, time::Duration};

use artillery_core::{MemberId, RefusedPeer, SeedState, SeedStatus, Timestamp, error::ConnectError};
use artillery_proto::control::encounter::Encountered;

use super::loading::Loading;
use crate::{
    ChainId, ClusterId,
    control::formation::{FormationPhase, RejectReason},
    driver::forming::FormationFacts,
};

const MAX_REFUSED: usize = 8;

/// A node that isn't ready first reports the reasons after this time.
const FIRST_REPORT: Duration = Duration::from_secs(3);

/// The time between two reports of a node that still isn't ready.
const REPORT_PERIOD: Duration = Duration::from_secs(30);

/// A reason why a node isn't ready, or no longer serves. `Display` gives each reason as one line in plain English.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitingFor {
    /// More nodes must be seen before a cluster is formed.
    MoreNodes {
        /// The number of nodes without a cluster that are seen, this one included.
        seen: usize,
        /// How many nodes form the cluster ([`Config::expect`](crate::config::Config::expect)).
        expected: u16,
        /// The node that expects this number, if this one expects fewer.
        by: Option<MemberId>,
    },
    /// Enough nodes are seen, and this node looks for more before it forms a cluster with them.
    Search,
    /// A node was started with other settings of the chains ([`Config::chains`](crate::config::Config::chains)).
    OtherSettings {
        /// Which node.
        node: MemberId,
    },
    /// Enough nodes are seen, and they have yet to agree on a cluster.
    Agreement,
    /// The node's settings state that the cluster exists ([`Config::existing`](crate::config::Config::existing)), but
    /// no node of it has answered.
    ExistingCluster {
        /// Other nodes without a cluster.
        free: usize,
        /// Whether the node has a directory, which holds no cluster.
        has_directory: bool,
    },
    /// The node's cluster was abandoned, and no node of the cluster that it joins instead has answered
    /// ([`NodeBuilder::join_after`](crate::NodeBuilder::join_after)).
    Successor {
        /// The cluster that was abandoned.
        after: ClusterId,
    },
    /// A seed at which no member has answered. Only a node without a cluster lists its seeds.
    Seed(SeedStatus),
    /// Multicast DNS is enabled, but not available. Only a node without a cluster lists this.
    NoMulticast {
        /// The error.
        why: String,
    },
    /// A peer that this node has refused, or that has refused this node. Only a node without a cluster lists such
    /// peers, at most eight, and no seeds among them.
    Refused(RefusedPeer),
    /// The node loads its directory.
    Loading(Loading),
    /// Too many voters of the configuration log are away, so the others are no majority: no lease is renewed, and no
    /// configuration changes.
    Majority {
        /// The names of the voters that seem to be away.
        away: Vec<String>,
        /// The number of all voters.
        voters: usize,
    },
    /// No leader of the configuration log, confirmed by a majority, answers this node.
    Leader,
    /// The node joins a chain and copies its data.
    Copy {
        /// Which chain.
        chain: ChainId,
        /// The number of records received, if a copy is in progress.
        records: Option<u64>,
    },
    /// The node is a member of a chain that is not open here.
    NotOpen {
        /// Which chain.
        chain: ChainId,
    },
    /// The node must serve a chain, and has no lease.
    NoLease {
        /// Which chain.
        chain: ChainId,
    },
    /// A chain has stopped serving at this node.
    Halted {
        /// Which chain.
        chain: ChainId,
        /// The reason.
        why: String,
    },
    /// This node serves no chain, and no member of a chain has answered its read yet.
    Member,
    /// The leader has not yet confirmed that the cluster is settled, which means that no other node joins, leaves or is
    /// missing.
    Confirmation,
    /// Another cluster of the same name and secret was met, and it is not settled which one stays.
    AnotherCluster {
        /// The other cluster.
        other: ClusterId,
        /// The condition that settles it.
        why: String,
    },
    /// The cluster is not settled: another node joins, leaves or is missing; or an operator has to act.
    Unsettled {
        /// The reason.
        why: String,
    },
    /// The node has stopped, or will never be ready.
    Stopped {
        /// The reason.
        why: String,
    },
}

/// The facts of a chain in which this node has a role.
#[derive(Debug, Clone)]
pub(crate) struct ChainFacts {
    pub(crate) chain: ChainId,
    pub(crate) is_joiner: bool,
    pub(crate) received: Option<u64>,
    pub(crate) is_open: bool,
    pub(crate) is_leased: bool,
    pub(crate) halted: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) serves: bool,
    pub(crate) ended: Option<String>,
    pub(crate) has_cluster: bool,
    pub(crate) has_directory: bool,
    /// `None` before the node has begun to look for others.
    pub(crate) formation: Option<FormationFacts>,
    pub(crate) seeds: Vec<SeedStatus>,
    pub(crate) no_multicast: Option<String>,
    pub(crate) refused: Vec<RefusedPeer>,
    pub(crate) loading: Option<Loading>,
    /// The names of the voters, and whether they seem to be alive.
    pub(crate) voters: Vec<(String, bool)>,
    /// Whether a leader confirmed by a majority has answered recently, or the configuration is fixed.
    pub(crate) is_led: bool,
    /// Whether no chain has a role for this node.
    pub(crate) is_spare: bool,
    /// Whether the leader has confirmed that the cluster is settled, or the configuration is fixed.
    pub(crate) is_confirmed: bool,
    pub(crate) chains: Vec<ChainFacts>,
    pub(crate) another_cluster: Option<Encountered>,
    /// A further reason, which no other field expresses.
    pub(crate) unsettled: Option<String>,
}

impl Facts {
    /// The names of the voters that are away, if the rest is no majority.
    fn majority_away(&self) -> Option<Vec<String>> {
        let away: Vec<_> = self.voters.iter().filter(|(_, there)| !there).map(|(name, _)| name.clone()).collect();
        (away.len() * 2 >= self.voters.len() && !away.is_empty()).then_some(away)
    }
}

/// Why the node isn't ready, or no longer serves; empty, if it serves.
pub(crate) fn waiting_for(facts: &Facts) -> Vec<WaitingFor> {
    if let Some(why) = &facts.ended {
        return vec![WaitingFor::Stopped { why: why.clone() }];
    }
    match facts {
        Facts { serves: true, .. } => Vec::new(),
        Facts { has_cluster: false, .. } => for_a_cluster(facts),
        _ => for_its_place(facts),
    }
}

/// The reasons of a node without a cluster.
fn for_a_cluster(facts: &Facts) -> Vec<WaitingFor> {
    let formation = facts.formation.as_ref().and_then(|formation| match formation.phase {
        FormationPhase::Free { .. } if formation.only_joins && formation.after.is_some() => {
            formation.after.map(|after| WaitingFor::Successor { after })
        }
        FormationPhase::Free { seen, .. } if formation.only_joins => {
            let has_directory = facts.has_directory;
            Some(WaitingFor::ExistingCluster { free: seen.saturating_sub(1), has_directory })
        }
        FormationPhase::Free { refused: Some((node, RejectReason::Settings)), .. } => {
            Some(WaitingFor::OtherSettings { node })
        }
        FormationPhase::Free { seen, expect, expected_by, .. } if seen < usize::from(expect) => {
            Some(WaitingFor::MoreNodes { seen, expected: expect, by: expected_by })
        }
        FormationPhase::Free { searches: true, .. } => Some(WaitingFor::Search),
        FormationPhase::Free { .. } | FormationPhase::Accepted(_) => Some(WaitingFor::Agreement),
        _ => None,
    });
    let is_of_a_seed = |addr: SocketAddr| {
        facts.seeds.iter().any(|seed| matches!(seed.state, SeedState::Refused { addr: seed, .. } if seed == addr))
    };
    let seeds = facts.seeds.iter().filter(|seed| !matches!(seed.state, SeedState::Met(_) | SeedState::Itself));
    let refused = facts.refused.iter().filter(|peer| !is_of_a_seed(peer.addr) && is_telling(&peer.reason));
    formation
        .into_iter()
        .chain(seeds.cloned().map(WaitingFor::Seed))
        .chain(facts.no_multicast.clone().map(|why| WaitingFor::NoMulticast { why }))
        .chain(refused.take(MAX_REFUSED).cloned().map(WaitingFor::Refused))
        .collect()
}

/// Whether a refusal may be why two nodes don't find each other.
fn is_telling(reason: &ConnectError) -> bool {
    !matches!(reason, ConnectError::WrongPeer { .. } | ConnectError::EndpointClosed)
}

/// The reasons of a node that belongs to a cluster.
fn for_its_place(facts: &Facts) -> Vec<WaitingFor> {
    let mut reasons: Vec<_> = facts.loading.map(WaitingFor::Loading).into_iter().collect();
    match facts.majority_away() {
        Some(away) => reasons.push(WaitingFor::Majority { away, voters: facts.voters.len() }),
        None if !facts.is_led => reasons.push(WaitingFor::Leader),
        None => {}
    }
    // A chain doesn't exist before the directory is loaded.
    let chains = facts.chains.iter().filter(|_| facts.loading.is_none());
    reasons.extend(chains.filter_map(of_a_chain));
    reasons.extend(
        facts.another_cluster.map(|met| WaitingFor::AnotherCluster { other: met.other.cluster, why: met.to_string() }),
    );
    reasons.extend(facts.unsettled.clone().map(|why| WaitingFor::Unsettled { why }));
    if reasons.is_empty() {
        reasons.push(if facts.is_spare && facts.is_confirmed { WaitingFor::Member } else { WaitingFor::Confirmation });
    }
    reasons
}

fn of_a_chain(facts: &ChainFacts) -> Option<WaitingFor> {
    let chain = facts.chain;
    match facts {
        ChainFacts { halted: Some(why), .. } => Some(WaitingFor::Halted { chain, why: why.clone() }),
        ChainFacts { is_joiner: true, received, .. } => Some(WaitingFor::Copy { chain, records: *received }),
        ChainFacts { is_open: false, .. } => Some(WaitingFor::NotOpen { chain }),
        ChainFacts { is_leased: false, .. } => Some(WaitingFor::NoLease { chain }),
        _ => None,
    }
}

/// Decides when a node reports why it isn't ready.
#[derive(Debug, Default)]
pub(crate) struct Reminder {
    next: Option<Timestamp>,
}

impl Reminder {
    pub(crate) fn is_due(&mut self, now: Timestamp, serves: bool) -> bool {
        if serves {
            self.next = None;
            return false;
        }
        let next = *self.next.get_or_insert(now + FIRST_REPORT);
        let is_due = now >= next;
        if is_due {
            self.next = Some(now + REPORT_PERIOD);
        }
        is_due
    }
}

pub(crate) fn line(reasons: &[WaitingFor]) -> String {
    reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
