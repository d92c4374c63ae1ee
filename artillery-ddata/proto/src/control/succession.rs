//! Whether a cluster may be replaced by a new one (docs/DESIGN.md §5.13): only if no incarnation that ever served
//! answers. Does no I/O: the caller queries the nodes and passes their answers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{NodeInfo, recovery::Standing};
use crate::{ClusterId, MemberId, Role};

/// A member whose last message is less than this many leases old is treated as alive.
pub const ALIVE_LEASES: u32 = 3;

/// The role of a node once it has abandoned its cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replacement {
    /// It creates the cluster that succeeds the abandoned one.
    Create,
    /// It joins that cluster.
    Join,
}

/// Why a cluster was not replaced by a new one. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum NotReplaced {
    /// No node reports the state of its store, not even the node that received the order: it loads its directory.
    #[error("no node answers")]
    Nobody,
    #[error("cluster {asked} was named, but the answering nodes belong to {found}")]
    DifferentCluster {
        asked: ClusterId,
        /// The cluster of the answering nodes.
        found: ClusterId,
    },
    /// A node that has served a chain answers: it may hold acknowledged updates.
    #[error(
        "{node} has served a chain and may hold data. If the configuration log is lost, `artillery-ctl recover` lets it continue; if that finds no history, restart this node first"
    )]
    Served { node: String },
    /// A node that doesn't serve holds data of the cluster, on its disk or from an earlier membership.
    #[error(
        "{node} holds data of the cluster: `artillery-ctl recover` lets it continue. To discard that data too, start this node with an empty directory, or stop it"
    )]
    Holds { node: String },
    /// Since the order was given, or less than [`ALIVE_LEASES`] leases ago, a node has received a message from another
    /// one that serves a chain.
    #[error("{node} received a message from a serving node {:.1} s ago: that node may hold data", ago.as_secs_f64())]
    InTouch {
        /// The receiver of the message.
        node: String,
        ago: Duration,
    },
    #[error(
        "cluster {by} already succeeds it: restart the nodes that should join {by}. If that cluster is lost too, start them with their usual flags"
    )]
    Succeeded { by: ClusterId },
    /// Another node than the one that received the order must create the new cluster.
    #[error("{} is the node that creates the new cluster", by.name)]
    Elsewhere { by: Box<NodeInfo> },
    /// The cluster has no configuration log, so its members never change; or this node doesn't follow the log yet.
    #[error("the configuration of this cluster never changes: start its nodes again")]
    Static,
    /// The node that received the order stops, has ended, or is leaving.
    #[error("the node stops")]
    Stopped,
}

/// The node that creates the successor of cluster `asked`: of the answering nodes, the one with the lowest id.
///
/// An incarnation that has served may hold acknowledged updates, and so may a store on a disk, so the cluster can't be
/// replaced while one of them answers any node. A node that never served asks all serving members after two leases
/// without a message of any. So a message is considered if it is less than [`ALIVE_LEASES`] leases old, or was received
/// since the order was given, `waited` ago. To create a cluster, no node may know of one that already succeeds this
/// one.
pub fn plan(
    asked: ClusterId,
    standings: &[Standing],
    waited: Duration,
    lease: Duration,
    replacement: Replacement,
) -> Result<NodeInfo, NotReplaced> {
    let first = standings.first().ok_or(NotReplaced::Nobody)?;
    let all: Vec<_> = standings.iter().filter(|standing| standing.cluster == asked).collect();
    let by = all.iter().map(|standing| &standing.me).min_by_key(|founder| founder.id);
    let by = by.ok_or(NotReplaced::DifferentCluster { asked, found: first.cluster })?;
    let is_named = |id: MemberId| {
        let mut known = all.iter().flat_map(|standing| &standing.chains);
        known.any(|chain| chain.config.role(id) == Some(Role::Serving))
    };
    if let Some(standing) = all.iter().find(|standing| standing.served || is_named(standing.me.id)) {
        return Err(NotReplaced::Served { node: standing.me.name.clone() });
    }
    let holds = |standing: &Standing| standing.chains.iter().any(|chain| chain.whole && !chain.last.is_none());
    if let Some(standing) = all.iter().find(|standing| holds(standing)) {
        return Err(NotReplaced::Holds { node: standing.me.name.clone() });
    }
    for standing in &all {
        if let Some(ago) = standing.member_heard.filter(|ago| *ago < waited.max(lease * ALIVE_LEASES)) {
            return Err(NotReplaced::InTouch { node: standing.me.name.clone(), ago });
        }
    }
    match all.iter().find_map(|standing| standing.successor).filter(|_| replacement == Replacement::Create) {
        Some(by) => Err(NotReplaced::Succeeded { by }),
        None => Ok(by.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Replacement::*, *};
    use crate::{
        ChainConfig, Sequence, Version,
        control::{log::LogIndex, recovery::ChainStanding},
        fixtures::{self, founder, incarnation as id, serving},
    };

    const CLUSTER: ClusterId = ClusterId(7);
    const WAITED: Duration = Duration::from_secs(4);
    const LEASE: Duration = Duration::from_secs(1);

    /// A node of a cluster in which the first incarnations of nodes 1 to 3 serve the chain.
    fn standing(node: u8, incarnation: u128) -> Standing {
        let config = ChainConfig { index: 9, ..serving(4, &[1, 2, 3]) };
        let chain = ChainStanding {
            config,
            serves: None,
            whole: true,
            synced: true,
            last: Version::NONE,
            watermark: Sequence(0),
        };
        let me = NodeInfo { id: id(node, incarnation), ..founder(node) };
        Standing { applied: LogIndex(9), chains: vec![chain], ..fixtures::standing(me, CLUSTER) }
    }

    #[test]
    fn the_lowest_node_that_never_served_creates_the_successor() {
        let all = [standing(3, 2), standing(1, 2), standing(2, 2)];
        assert_eq!(plan(CLUSTER, &all, WAITED, LEASE, Create).unwrap().id, id(1, 2));
    }

    #[test]
    fn an_incarnation_that_served_keeps_the_cluster() {
        let refused = Err(NotReplaced::Served { node: "n2".into() });
        let served = Standing { served: true, ..standing(2, 2) };
        assert_eq!(plan(CLUSTER, &[standing(1, 2), served], WAITED, LEASE, Create), refused);
        assert_eq!(
            plan(CLUSTER, &[standing(1, 2), standing(2, 1)], WAITED, LEASE, Create),
            refused,
            "it doesn't know yet that it serves"
        );
    }

    #[test]
    fn a_member_heard_since_the_order_keeps_the_cluster() {
        let heard = |ago| Standing { member_heard: Some(ago), ..standing(2, 2) };
        let ago = WAITED / 2;
        let refused = Err(NotReplaced::InTouch { node: "n2".into(), ago });
        assert_eq!(plan(CLUSTER, &[standing(1, 2), heard(ago)], WAITED, LEASE, Create), refused);
        assert!(
            plan(CLUSTER, &[standing(1, 2), heard(WAITED * 2)], WAITED, LEASE, Create).is_ok(),
            "of before the order"
        );
    }

    #[test]
    fn a_store_with_data_keeps_the_cluster() {
        let mut back = standing(2, 2);
        back.chains[0].last = Version::new(4, 7);
        let refused = Err(NotReplaced::Holds { node: "n2".into() });
        assert_eq!(plan(CLUSTER, &[standing(1, 2), back.clone()], WAITED, LEASE, Create), refused);
        back.chains[0].whole = false;
        assert!(
            plan(CLUSTER, &[standing(1, 2), back], WAITED, LEASE, Create).is_ok(),
            "an incomplete copy can't be used"
        );
    }

    #[test]
    fn no_answer_and_another_cluster_are_refused() {
        assert_eq!(plan(CLUSTER, &[], WAITED, LEASE, Create), Err(NotReplaced::Nobody));
        let refused = NotReplaced::DifferentCluster { asked: ClusterId(8), found: CLUSTER };
        assert_eq!(plan(ClusterId(8), &[standing(1, 2)], WAITED, LEASE, Create), Err(refused));
        let other = Standing { cluster: ClusterId(8), served: true, ..standing(1, 1) };
        assert_eq!(
            plan(CLUSTER, &[other, standing(2, 2)], WAITED, LEASE, Create).unwrap().id,
            id(2, 2),
            "it belongs to another cluster"
        );
    }

    #[test]
    fn a_member_heard_shortly_before_the_order_keeps_the_cluster() {
        let heard = |ago| Standing { member_heard: Some(ago), ..standing(2, 2) };
        let asked = |ago| plan(CLUSTER, &[standing(1, 2), heard(ago)], Duration::ZERO, LEASE, Create);
        assert!(asked(LEASE * 2).is_err(), "members are asked only every two leases");
        assert!(asked(LEASE * ALIVE_LEASES).is_ok());
    }

    #[test]
    fn one_cluster_succeeds_another_and_others_may_join_it() {
        let told = Standing { successor: Some(ClusterId(9)), ..standing(2, 2) };
        let asked = |replacement| plan(CLUSTER, &[standing(1, 2), told.clone()], WAITED, LEASE, replacement);
        assert_eq!(asked(Create), Err(NotReplaced::Succeeded { by: ClusterId(9) }));
        assert!(asked(Join).is_ok());
    }
}
