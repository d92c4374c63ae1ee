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

pub(crate) fn id(n: u8) -> MemberId {
    incarnation(n, 1)
}

pub(crate) fn incarnation(n: u8, store: u128) -> MemberId {
    MemberId { node: NodeId::from_bytes([n; 16]), incarnation: Incarnation { store, starts: 1 } }
}

/// The `n` that [`incarnation`] was called with.
pub(crate) fn number(member: MemberId) -> u8 {
    member.node.as_bytes()[0]
}

pub(crate) fn founder(n: u8) -> NodeInfo {
    NodeInfo { id: id(n), name: format!("n{n}"), addrs: vec![], host: None }
}

pub(crate) fn chain(epoch: u64, members: impl IntoIterator<Item = ChainMember>) -> ChainConfig {
    let (chain, members) = (ChainId(0), members.into_iter().collect());
    ChainConfig { chain, epoch: Epoch(epoch), index: epoch, mode: Mode::Craq, min_members: 1, members }
}

pub(crate) fn serving(epoch: u64, nodes: &[u8]) -> ChainConfig {
    chain(epoch, nodes.iter().map(|&n| ChainMember { id: id(n), role: Role::Serving }))
}

pub(crate) fn update(version: Version, changes: impl IntoIterator<Item = KeyChange>) -> Update {
    let (kind, outcome) = (UpdateKind::WRITE, RequestOutcome::Done);
    Update { version, kind, request: None, outcome, chain_time: 0, changes: changes.into_iter().collect() }
}

/// A renewal that reports only `applied`: no leave, no promotion, no chains.
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

/// A spare without a log: it has served nothing and has received no message.
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
