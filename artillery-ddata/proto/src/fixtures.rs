//! The nodes and configurations that unit tests are about.

use crate::{
    ChainConfig, ChainId, ChainMember, ClusterId, Epoch, Incarnation, MemberId, Mode, NodeId, Role, Version,
    control::{
        History, NodeInfo,
        log::LogIndex,
        message::{Leave, Renewal},
        recovery::Standing,
    },
    types::update::{KeyChange, RequestOutcome, Update, UpdateKind},
};

/// The first incarnation of node `n`.
pub(crate) fn id(n: u8) -> MemberId {
    incarnation(n, 1)
}

/// The incarnation of node `n` that has this store.
pub(crate) fn incarnation(n: u8, store: u128) -> MemberId {
    MemberId { node: NodeId::from_bytes([n; 16]), incarnation: Incarnation { store, starts: 1 } }
}

/// The number of a node.
pub(crate) fn number(member: MemberId) -> u8 {
    member.node.as_bytes()[0]
}

/// The first incarnation of node `n`, as a cluster knows it.
pub(crate) fn founder(n: u8) -> NodeInfo {
    NodeInfo { id: id(n), name: format!("n{n}"), addrs: vec![], host: None }
}

/// A configuration of chain 0 that names these members.
pub(crate) fn chain(epoch: u64, members: impl IntoIterator<Item = ChainMember>) -> ChainConfig {
    let (chain, members) = (ChainId(0), members.into_iter().collect());
    ChainConfig { chain, epoch: Epoch(epoch), index: epoch, mode: Mode::Craq, min_members: 1, members }
}

/// A configuration of chain 0 in which these nodes serve.
pub(crate) fn serving(epoch: u64, nodes: &[u8]) -> ChainConfig {
    chain(epoch, nodes.iter().map(|&n| ChainMember { id: id(n), role: Role::Serving }))
}

/// A write of these changes.
pub(crate) fn update(version: Version, changes: impl IntoIterator<Item = KeyChange>) -> Update {
    let (kind, outcome) = (UpdateKind::WRITE, RequestOutcome::Done);
    Update { version, kind, request: None, outcome, chain_time: 0, changes: changes.into_iter().collect() }
}

/// A renewal in which node `n` has nothing to tell but where it stands.
pub(crate) fn renewal(n: u8, number: u64, applied: LogIndex) -> Renewal {
    let (leave, promotions, reports) = (Leave::default(), vec![], vec![]);
    Renewal {
        number,
        answered: 0,
        me: founder(n),
        applied,
        leave,
        promotions,
        reports,
        holds: vec![],
        position: None,
        loads: false,
    }
}

/// A node of this cluster that has served nothing, heard of no other node, and keeps no log.
pub(crate) fn standing(me: NodeInfo, cluster: ClusterId) -> Standing {
    Standing {
        me,
        cluster,
        history: History::first(cluster),
        applied: LogIndex(0),
        leads: false,
        log: None,
        voters: vec![],
        in_touch: None,
        heard: None,
        served: false,
        member_heard: None,
        successor: None,
        yields: false,
        branches: vec![],
        chains: vec![],
    }
}
