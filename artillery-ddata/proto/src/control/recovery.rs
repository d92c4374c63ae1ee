//! Recovery of a cluster whose configuration log has permanently lost its quorum (docs/DESIGN.md §5.12): whether it is
//! permitted, from which node's history, and which updates may be missing. Does no I/O: the caller queries the nodes
//! and passes their answers.

use std::{collections::BTreeSet, fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    History, NodeInfo, Relation, Term,
    history::{Branch, ChainBranch},
    log::LogIndex,
};
use crate::{ChainConfig, ChainId, ClusterId, Epoch, MemberId, Sequence, Version};

/// A node's report of its data and its knowledge, for an operator's order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Standing {
    pub me: NodeInfo,
    pub cluster: ClusterId,
    pub history: History,
    /// The last entry of the configuration log that the node knows.
    pub applied: LogIndex,
    /// A quorum of the voters has just confirmed that this node leads.
    pub leads: bool,
    /// The end of the node's copy of the log; `None`: it has no copy.
    pub log: Option<LogEnd>,
    /// The voters known to this node; two sets while one replaces the other.
    pub voters: Vec<BTreeSet<MemberId>>,
    /// How long ago the node sent the renewal for its newest lease: it certainly was a serving member then.
    pub in_touch: Option<Duration>,
    /// How long ago a leader with a confirmed quorum last answered this node. A spare, which gets no lease, is answered
    /// too.
    pub heard: Option<Duration>,
    /// The log has named the node's store as a serving member, or the store held a complete copy of a chain at the
    /// start.
    pub served: bool,
    /// The cluster that succeeds this one, if known.
    pub successor: Option<ClusterId>,
    /// The node serves nothing, because another cluster succeeds its own or its store may hold commits that are missing
    /// in a newer history. It is treated neither as a leader nor as in touch with one.
    pub yields: bool,
    /// The points at which the node's history, and its ancestors, branched off.
    pub branches: Vec<Branch>,
    /// How long ago the node last received a message from another node whose store, in any incarnation, serves a chain,
    /// to its knowledge.
    pub member_heard: Option<Duration>,
    /// Each chain known to this node.
    pub chains: Vec<ChainStanding>,
}

impl Standing {
    /// Corrects an answer that was given `by` ago: `in_touch` and `heard` become older by as much. `member_heard`
    /// stays, because the node may have received newer messages from members.
    #[must_use]
    pub fn aged(self, by: Duration) -> Self {
        let aged = |ago: Option<Duration>| ago.map(|ago| ago.saturating_add(by));
        Self { in_touch: aged(self.in_touch), heard: aged(self.heard), ..self }
    }
}

/// The position of an entry among all entries of the log's group, including entries that change no configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct LogEnd {
    /// The term of the leader that wrote the entry.
    pub term: Term,
    pub index: u64,
}

/// A node's copy of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainStanding {
    /// The newest configuration known to the node.
    pub config: ChainConfig,
    /// The epoch in which the node serves with a complete copy; `None`: it doesn't serve.
    pub serves: Option<Epoch>,
    /// Whether the copy is complete. It may be an old one, or the one found on disk at the start.
    pub whole: bool,
    /// Whether the disk certainly has every update that was committed while this store served. Always true without a
    /// disk.
    pub synced: bool,
    /// The newest version in the copy.
    pub last: Version,
    /// The commit watermark of the copy.
    pub watermark: Sequence,
}

impl ChainStanding {
    /// The epoch up to which the copy of node `me` is known to have every committed update: the epoch in which it, or
    /// an earlier incarnation of its store, serves; otherwise the epoch of its newest version. `None`: the copy is
    /// incomplete or empty.
    pub fn served(&self, me: MemberId) -> Option<Epoch> {
        let of_store = || self.config.serving().any(|id| id.shares_store(me)).then_some(self.config.epoch);
        let of_version = Some(self.last.epoch).filter(|_| !self.last.is_none());
        self.serves.or_else(|| if self.whole { of_store().or(of_version) } else { None })
    }
}

/// How a cluster can be recovered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The history that ends.
    pub history: History,
    /// The node that continues alone.
    pub by: NodeInfo,
    /// Known voters that didn't answer.
    pub silent: BTreeSet<MemberId>,
    /// The kept state of each chain, and possible losses.
    pub chains: Vec<KeptChain>,
    /// The highest epoch that any answering node knows.
    pub newest: Epoch,
    /// The last log entry that any answering node knows.
    pub upto: LogIndex,
}

impl Plan {
    pub fn branch(&self) -> Branch {
        let kept = |kept: &KeptChain| {
            let KeptChain { chain, epoch, last, synced, .. } = *kept;
            ChainBranch { chain, epoch, last, synced }
        };
        Branch { from: self.history, chains: self.chains.iter().map(kept).collect() }
    }
}

/// The result of a recovery.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recovered {
    /// The executed plan.
    pub plan: Plan,
    /// The new history.
    pub history: History,
}

/// The kept state of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptChain {
    pub chain: ChainId,
    /// The epoch up to which the copy is known to have every committed update ([`ChainStanding::served`]).
    pub epoch: Epoch,
    /// The newest version of the copy.
    pub last: Version,
    /// The commit watermark of the copy: the updates between this and `last` become committed.
    pub watermark: Sequence,
    /// How long ago the node that continues certainly was a serving member; `None`: not since it started.
    pub in_touch: Option<Duration>,
    /// The epoch that the chain is known to have reached without that node.
    pub gone_on_to: Option<Epoch>,
    /// The highest commit watermark that any answering node knows.
    pub known: Sequence,
    /// Whether the node's disk certainly has every update that was committed while it served. Always true without a
    /// disk.
    pub synced: bool,
}

impl fmt::Display for KeptChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chain, epoch, last, watermark, in_touch, gone_on_to, known, synced } = self;
        write!(f, "chain {}: everything up to version {last} is kept, as served in epoch {epoch}", chain.0)?;
        let pending = last.sequence.0.saturating_sub(watermark.0);
        if pending > 0 {
            write!(f, "; its last {pending} updates, which were not known to be committed, are committed now")?;
        }
        if *known > last.sequence {
            write!(f, ". MISSING: {} later updates, known to be committed", known.0 - last.sequence.0)?;
        }
        if !synced {
            f.write_str(". May be missing: the last writes before a power cut, which were not synced to its disk")?;
        }
        match gone_on_to {
            Some(newer) => {
                write!(
                    f,
                    ". MISSING: the chain continued to epoch {newer} without it; updates acknowledged since then are lost"
                )
            }
            None => {
                write!(
                    f,
                    ". May be missing: updates that others acknowledged in a later epoch, if they continued without it "
                )?;
                match in_touch {
                    Some(ago) => write!(f, "in the last {:.1} s, since it lost touch with them", ago.as_secs_f64()),
                    None => f.write_str("at some time: it has not been in touch with them since it started"),
                }
            }
        }
    }
}

/// Why a cluster was not recovered. Nothing was changed, except possibly after `Failed`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum NotRecovered {
    /// No node reports the state of its store, not even the node that received the order: it stops, or loads its directory.
    #[error("no node answers")]
    Nobody,
    /// The nodes that answered belong to another cluster.
    #[error("cluster {asked} was named, but the answering nodes belong to {found}")]
    DifferentCluster {
        /// The named cluster.
        asked: ClusterId,
        /// The cluster of the answering nodes.
        found: ClusterId,
    },
    /// The log has a leader with a confirmed quorum.
    #[error("nothing is lost: {leader} leads the configuration log, and a quorum has just confirmed it")]
    Leads { leader: MemberId },
    /// A quorum of the voters answers: they can continue by themselves.
    #[error(
        "nothing is lost: {answer} of the {voters} nodes that keep the configuration log answer, which is a quorum"
    )]
    Quorum {
        /// The number of voters that answer.
        answer: u64,
        /// The number of voters.
        voters: u64,
    },
    /// The cluster was recovered twice, independently.
    #[error("the cluster was recovered twice, as {one} and as {other}: stop the nodes of one of them")]
    Parted { one: History, other: History },
    /// No answering node has a complete copy of this chain.
    #[error("no history of chain {} survives at the nodes that answer: start a new cluster", chain.0)]
    NoHistory {
        /// The chain.
        chain: ChainId,
    },
    /// No answering node has the best surviving copy of every chain.
    #[error("no answering node holds a complete copy of every chain: such a cluster can't be recovered")]
    Scattered,
    /// Another node than the one that received the order has the best history.
    #[error("{by} has the best history that survives")]
    Elsewhere {
        /// The node with the best history.
        by: MemberId,
    },
    /// Another history has already begun.
    #[error("the cluster has already been recovered, with history {found}")]
    OtherHistory {
        /// The current history.
        found: History,
    },
    /// The cluster has no configuration log that could be lost, or this node doesn't follow the log yet.
    #[error("the configuration of this cluster never changes: there is nothing to recover")]
    Static,
    /// The storage of the log failed, or the node doesn't serve yet: it may continue later, or after a restart.
    #[error("a new log could not be created: {0}")]
    Failed(String),
    /// A node was granted a lease, or was answered by a confirmed leader, since the operator's order: a majority of the
    /// voters is alive.
    #[error("nothing is lost: a leader that a majority follows answered {node} {:.1} s ago", ago.as_secs_f64())]
    InTouch {
        /// The node.
        node: MemberId,
        /// The time since that answer, or since the renewal for that lease was sent.
        ago: Duration,
    },
}

/// Whether and how the cluster `asked` can be recovered, according to these nodes.
///
/// Only nodes of the newest history are considered. If the answering nodes could elect a leader among themselves,
/// nothing is lost and nothing is recovered. Of the surviving histories the best is the one served in the newest epoch,
/// then the longest. A serving member holds every committed update of its epoch, so nothing is missing unless the
/// configuration continued without it, or its disk may have lost some ([`KeptChain::synced`]). Copies of nodes that
/// don't serve are considered too: a store whose earlier incarnation served, and the old copy of a former member.
///
/// `waited` is the time since the order was given. A lease that was requested since then, or an answer of a confirmed
/// leader, shows that a majority is alive, even if it can't be reached from here. That majority would continue next to
/// the recovered history, and all its acknowledgements would be lost.
pub fn plan(asked: ClusterId, standings: &[Standing], waited: Duration) -> Result<Plan, NotRecovered> {
    let first = standings.first().ok_or(NotRecovered::Nobody)?;
    if !standings.iter().any(|standing| standing.cluster == asked) {
        return Err(NotRecovered::DifferentCluster { asked, found: first.cluster });
    }
    let all: Vec<_> = standings.iter().filter(|standing| standing.cluster == asked).collect();
    let history = newest_history(&all)?;
    let all: Vec<_> = all.into_iter().filter(|standing| standing.history == history).collect();
    could_lead(&all)?;
    in_touch(&all, waited)?;
    let chosen = best(&all)?;
    let known = all.iter().flat_map(|standing| &standing.chains).map(|chain| chain.config.epoch);
    let newest = known.max().unwrap_or_default();
    let voters = all.iter().flat_map(|standing| standing.voters.iter().flatten()).copied();
    let is_silent = |voter: &MemberId| !all.iter().any(|standing| standing.me.id.shares_store(*voter));
    Ok(Plan {
        history,
        by: chosen.me.clone(),
        silent: voters.filter(is_silent).collect(),
        chains: chosen.chains.iter().filter_map(|chain| kept(chosen, chain, &all)).collect(),
        newest,
        upto: all.iter().map(|standing| standing.applied).max().unwrap_or_default(),
    })
}

fn newest_history(all: &[&Standing]) -> Result<History, NotRecovered> {
    let mut newest = History::default();
    for standing in all {
        match standing.history.relation(newest) {
            Relation::Newer => newest = standing.history,
            Relation::Parted if newest != History::default() => {
                return Err(NotRecovered::Parted { one: newest, other: standing.history });
            }
            Relation::Parted => newest = standing.history,
            Relation::Same | Relation::Older => {}
        }
    }
    Ok(newest)
}

/// Refuses if a node leads, or could be elected by the nodes that answer. A candidate needs the votes of a majority of
/// the voters that it knows. A voter votes for it if the voter's log ends no later than the candidate's.
fn could_lead(all: &[&Standing]) -> Result<(), NotRecovered> {
    if let Some(leader) = all.iter().find(|standing| standing.leads && !standing.yields) {
        return Err(NotRecovered::Leads { leader: leader.me.id });
    }
    let candidates = all.iter().filter(|standing| !standing.yields);
    for candidate in candidates.filter(|standing| standing.voters.iter().any(|set| votes_in(set, standing.me.id))) {
        let votes = |set: &BTreeSet<MemberId>| {
            all.iter().filter(|other| votes_in(set, other.me.id) && other.log <= candidate.log).count()
        };
        if candidate.voters.iter().all(|set| votes(set) * 2 > set.len()) {
            let voters: BTreeSet<_> = candidate.voters.iter().flatten().copied().collect();
            return Err(NotRecovered::Quorum { answer: votes(&voters) as u64, voters: voters.len() as u64 });
        }
    }
    Ok(())
}

/// Whether this incarnation is a voter: all incarnations of one store are the same voter.
fn votes_in(set: &BTreeSet<MemberId>, id: MemberId) -> bool {
    set.iter().any(|voter| voter.shares_store(id))
}

/// Refuses if a majority of the voters was alive after the order was given: a lease that was requested since was
/// granted, or a confirmed leader answered a node.
fn in_touch(all: &[&Standing], waited: Duration) -> Result<(), NotRecovered> {
    let proofs = |standing: &&Standing| {
        let id = standing.me.id;
        [standing.in_touch, standing.heard].into_iter().flatten().map(move |ago| (id, ago))
    };
    let mut asked = all.iter().filter(|standing| !standing.yields).flat_map(proofs);
    match asked.find(|&(_, ago)| ago < waited) {
        Some((node, ago)) => Err(NotRecovered::InTouch { node, ago }),
        None => Ok(()),
    }
}

fn best<'a>(all: &[&'a Standing]) -> Result<&'a Standing, NotRecovered> {
    let chains: BTreeSet<_> =
        all.iter().flat_map(|standing| &standing.chains).map(|chain| chain.config.chain).collect();
    let rank = |standing: &Standing, id: ChainId| {
        let chain = standing.chains.iter().find(|chain| chain.config.chain == id)?;
        Some((chain.served(standing.me.id)?, chain.last))
    };
    let mut candidates: Vec<_> = all.to_vec();
    for &chain in &chains {
        let best = all.iter().filter_map(|standing| rank(standing, chain)).max();
        let best = best.ok_or(NotRecovered::NoHistory { chain })?;
        candidates.retain(|standing| rank(standing, chain) == Some(best));
    }
    // Break ties by the id, so that every node chooses the same one.
    candidates.into_iter().min_by_key(|standing| standing.me.id).ok_or(NotRecovered::Scattered)
}

fn kept(chosen: &Standing, chain: &ChainStanding, all: &[&Standing]) -> Option<KeptChain> {
    let (id, epoch) = (chain.config.chain, chain.served(chosen.me.id)?);
    let known = all.iter().flat_map(|standing| &standing.chains).filter(|other| other.config.chain == id);
    let watermark = known.clone().map(|other| other.watermark).max();
    // A newer epoch in which the chosen node's store serves has committed nothing without it.
    let without = known.filter(|other| other.config.epoch > epoch);
    let without = without.filter(|other| !other.config.serving().any(|id| id.shares_store(chosen.me.id)));
    Some(KeptChain {
        chain: id,
        epoch,
        last: chain.last,
        watermark: chain.watermark,
        in_touch: chosen.in_touch,
        gone_on_to: without.map(|other| other.config.epoch).max(),
        known: watermark.unwrap_or_default(),
        synced: chain.synced,
    })
}

#[cfg(test)]
mod tests;
