//! What becomes of a cluster whose configuration log has lost its quorum for good (docs/DESIGN.md §5.12): whether it may be
//! recovered, from which node's history, and what may be missing in it. Pure: the caller asks the nodes, and hands in their
//! answers.

use std::{collections::BTreeSet, fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::{History, NodeInfo, Relation, Term, branch::Branch, log::LogIndex};
use crate::{ChainConfig, ChainId, ClusterId, Epoch, MemberId, Sequence, Version};

/// A node's answer to the question what it has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Standing {
    /// The node, in its incarnation.
    pub me: NodeInfo,
    /// The cluster that the node belongs to.
    pub cluster: ClusterId,
    /// The history that the node belongs to.
    pub history: History,
    /// The last entry of the configuration log that the node knows.
    pub applied: LogIndex,
    /// A quorum of the voters has just confirmed that this node leads.
    pub leads: bool,
    /// Where the node's copy of the log ends; `None`: it has none.
    pub log: Option<LogEnd>,
    /// The voters, as this node knows them; two sets while one replaces the other.
    pub voters: Vec<BTreeSet<MemberId>>,
    /// How long ago the node's last lease was asked for: the log certainly counted on this node then.
    pub in_touch: Option<Duration>,
    /// How long ago a leader that a quorum had confirmed last answered this node. A spare, which gets no lease, is answered too.
    pub heard: Option<Duration>,
    /// This incarnation has served a chain, or was named as serving one.
    pub served: bool,
    /// The cluster that succeeds this one, if one is known.
    pub successor: Option<ClusterId>,
    /// The node serves nothing, since another cluster succeeds its own, or its store may hold commits that a newer history lacks.
    /// It counts neither as a leader nor as in touch with one.
    pub yields: bool,
    /// Where the node's history, and those that it came from, left the ones before.
    pub branches: Vec<Branch>,
    /// How long ago another incarnation that serves a chain, as far as this node knows, was heard last.
    pub member_heard: Option<Duration>,
    /// Each chain, as this node knows it.
    pub chains: Vec<ChainStanding>,
}

impl Standing {
    /// An answer that was given `by` ago, corrected to now: the node's last touch with the log lies further back by as much. The
    /// node may have heard other members since, so that time stays.
    #[must_use]
    pub fn aged(self, by: Duration) -> Self {
        let aged = |ago: Option<Duration>| ago.map(|ago| ago.saturating_add(by));
        Self { in_touch: aged(self.in_touch), heard: aged(self.heard), ..self }
    }
}

/// The place of an entry among all entries of the log's group, also those that change no configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct LogEnd {
    /// The term of the leader that wrote it.
    pub term: Term,
    /// Its index.
    pub index: u64,
}

/// What a node has of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainStanding {
    /// The newest configuration that the node knows.
    pub config: ChainConfig,
    /// The epoch in which the node serves with a whole copy; `None`: it doesn't.
    pub serves: Option<Epoch>,
    /// Whether the node's copy is whole. It may be an old one, or one that its disk held at the start.
    pub whole: bool,
    /// Whether the disk has certainly kept all that was committed while this store served; so too without a disk.
    pub synced: bool,
    /// The newest version that the node has.
    pub last: Version,
    /// The commit watermark of the node.
    pub watermark: Sequence,
}

impl ChainStanding {
    /// The epoch up to which the copy of node `me` has everything that was committed, as far as is known: that in which it serves,
    /// or in which an earlier life of its store does; else the one of its newest version. `None`: the copy is not whole, or empty.
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
    /// The node that goes on alone.
    pub by: NodeInfo,
    /// Known voters that didn't answer.
    pub silent: BTreeSet<MemberId>,
    /// What is kept of each chain, and what may be missing.
    pub chains: Vec<KeptChain>,
    /// The highest epoch that any answering node knows.
    pub newest: Epoch,
    /// The last log entry that any answering node knows.
    pub upto: LogIndex,
}

/// The result of a recovery.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recovered {
    /// The plan that was carried out.
    pub plan: Plan,
    /// The history that has begun.
    pub history: History,
}

/// What is kept of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptChain {
    /// Which chain.
    pub chain: ChainId,
    /// The epoch in which this history was served last.
    pub epoch: Epoch,
    /// Its newest version.
    pub last: Version,
    /// Its commit watermark: the updates between this and `last` become committed.
    pub watermark: Sequence,
    /// How long ago the log last certainly counted on the node that goes on; `None`: never.
    pub in_touch: Option<Duration>,
    /// The epoch to which the chain is known to have gone on without that node.
    pub gone_on_to: Option<Epoch>,
    /// The highest commit watermark that any answering node knows.
    pub known: Sequence,
    /// Whether the node's disk has certainly kept all that was committed while it served; so too without a disk.
    pub synced: bool,
}

impl fmt::Display for KeptChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chain, epoch, last, watermark, in_touch, gone_on_to, known, synced } = self;
        write!(f, "chain {}: everything up to version {last} is kept, as served in epoch {epoch}", chain.0)?;
        let pending = last.sequence.0.saturating_sub(watermark.0);
        if pending > 0 {
            write!(f, "; the last {pending} updates of it were not known to be committed, and are now")?;
        }
        if *known > last.sequence {
            write!(f, ". MISSING: {} updates behind it, known to be committed", known.0 - last.sequence.0)?;
        }
        if !synced {
            f.write_str(". May be missing: the last writes before a power cut, which its disk was not made to keep")?;
        }
        match gone_on_to {
            Some(newer) => {
                write!(
                    f,
                    ". MISSING: the chain went on to epoch {newer} without it, and all that was acknowledged then"
                )
            }
            None => {
                write!(f, ". May be missing: what others acknowledged in a later epoch, if they went on without it ")?;
                match in_touch {
                    Some(ago) => write!(f, "in the last {:.1} s, since it lost touch with them", ago.as_secs_f64()),
                    None => f.write_str("at some time: it has not been in touch with them since it started"),
                }
            }
        }
    }
}

/// Why a cluster is not recovered. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum NotRecovered {
    /// No node answered.
    #[error("no node answers")]
    Nobody,
    /// The nodes that answered belong to another cluster.
    #[error("cluster {asked} was named, and {found} is there")]
    DifferentCluster {
        /// The named cluster.
        asked: ClusterId,
        /// The cluster that is there.
        found: ClusterId,
    },
    /// The log has a leader that a quorum follows.
    #[error("nothing is lost: {leader} leads the configuration log, and a quorum has just confirmed it")]
    Leads {
        /// The leader.
        leader: MemberId,
    },
    /// A quorum of the voters answers: they can go on by themselves.
    #[error("nothing is lost: {answer} of the {voters} nodes that keep the configuration log answer, enough to go on")]
    Quorum {
        /// How many voters answer.
        answer: u64,
        /// How many voters there are.
        voters: u64,
    },
    /// The cluster was recovered twice, from two sides.
    #[error("the cluster was recovered twice, as {one} and as {other}: stop the nodes of one of them")]
    Parted {
        /// One history.
        one: History,
        /// The other one.
        other: History,
    },
    /// No node that answered holds all of this chain.
    #[error("no history of chain {} survives at the nodes that answer: start a new cluster", chain.0)]
    NoHistory {
        /// Which chain.
        chain: ChainId,
    },
    /// No node that answered holds all chains.
    #[error("no one of the nodes that answer holds the whole of every chain: such a cluster can't be recovered")]
    Scattered,
    /// Another node than the one that was asked has the best history.
    #[error("{by} has the best history that survives")]
    Elsewhere {
        /// The node with the best history.
        by: MemberId,
    },
    /// Another history has begun meanwhile.
    #[error("{found} is the history now: the cluster has been recovered already")]
    OtherHistory {
        /// The present history.
        found: History,
    },
    /// The cluster has no log of configurations that could be lost.
    #[error("the configuration of this cluster never changes: there is nothing to recover")]
    Static,
    /// The storage of the log failed.
    #[error("the log could not be begun anew: {0}")]
    Failed(String),
    /// A node was granted a lease, or answered by a confirmed leader, since an operator gave the order: a majority of the voters
    /// lives.
    #[error("nothing is lost: a leader that a majority follows answered {node} {:.1} s ago", ago.as_secs_f64())]
    InTouch {
        /// Which node.
        node: MemberId,
        /// How long ago that was.
        ago: Duration,
    },
}

/// Whether and how the named cluster can be recovered, by what these nodes say.
///
/// Only nodes of the newest history count. If the answering nodes could elect a leader among themselves nothing is lost, and
/// nothing is recovered. Of the surviving histories the best is the one served in the newest epoch, then the longest. A
/// serving member holds every committed update of its epoch, on its disk if it has one, so nothing is missing unless the
/// configuration went on without it. Copies of nodes that don't serve count too: a store whose earlier life served, and the
/// old copy of a former member.
///
/// `waited` is the time since the order was given. A lease asked for since then, or an answer of a confirmed leader, shows
/// that a majority lives, even if it can't be reached from here. That majority would go on beside the recovered history, and
/// all that it acknowledges would be lost.
///
/// # Errors
/// [`NotRecovered`].
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

/// Refuses if a node leads, or could be elected by the nodes that answer. A candidate needs the votes of a majority of the
/// voters that it knows, and gets those of voters whose log ends no later than its own.
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

/// Whether this life is a voter. A store on a disk is the same voter in each of its lives.
fn votes_in(set: &BTreeSet<MemberId>, id: MemberId) -> bool {
    set.iter().any(|voter| voter.shares_store(id))
}

/// Refuses if a majority of the voters has shown signs of life since the order was given: a lease asked for since was granted,
/// or a confirmed leader answered a node.
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

/// The node that has the best history of every chain.
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
    // Every node must choose the same one of equals.
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
