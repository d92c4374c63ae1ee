//! The leader's next change of the configuration, if any.

use std::collections::BTreeMap;

use super::{
    accepted_loss::Loss,
    give_way::Sealing,
    leave::is_heir,
    reason::{ChangeReason, Why},
    reopen::reopened,
    reorder::Reorder,
    suspicion::Suspicions,
    view::View,
};
use crate::{
    ChainConfig, ChainMember, MemberId, NodeId, Role,
    control::{
        NodeInfo,
        log::{ChainChange, ConfigChange},
        message::Promotion,
    },
};

/// Operators' orders, and the seal.
#[derive(Clone, Default, Debug)]
pub(super) struct Orders {
    pub(super) reorder: Reorder,
    pub(super) loss: Loss,
    pub(super) sealing: Sealing,
}

/// The next change and its reasons, if any. Changes of chains have priority over changes of nodes, since writes may
/// wait for them. Nothing changes once the cluster is over.
pub(super) fn change(
    view: View<'_>,
    orders: &Orders,
    suspicions: &Suspicions,
) -> Option<(ConfigChange, Vec<ChangeReason>)> {
    let configs = view.configs();
    if configs.is_over() {
        return None;
    }
    if let Some(ordered) = orders.sealing.change(view).or_else(|| orders.loss.change(configs)) {
        return Some(ordered);
    }
    let chains: Vec<_> = configs.iter().filter_map(|config| of_chain(view, orders, suspicions, config)).collect();
    if !chains.is_empty() {
        let why = chains.iter().flat_map(|change| reasons(view, suspicions, &change.config)).collect();
        return Some((ConfigChange::Chains(chains), why));
    }
    let (add, remove) = (incarnations_to_add(view), incarnations_to_remove(view));
    (!add.is_empty() || !remove.is_empty()).then(|| (ConfigChange::Nodes { add, remove }, Vec::new()))
}

fn of_chain(view: View<'_>, orders: &Orders, suspicions: &Suspicions, config: &ChainConfig) -> Option<ChainChange> {
    if let Some(members) = reopened(view, config) {
        return Some(ChainChange { replaces: config.epoch, config: ChainConfig { members, ..config.clone() } });
    }
    let mut members = that_stay(view, suspicions, config);
    let is_blamed = |id| suspicions.is_blamed(config.chain, id).is_some();
    let syncing = config.syncing().filter(|&id| view.stays(id) && !is_blamed(id));
    match syncing {
        Some(id) => {
            let promoted = asks_for(view, config, id) && members.len() == config.serving().count();
            let role = if promoted { Role::Serving } else { Role::Syncing };
            members.push(ChainMember { id, role });
        }
        None if wants_joiner(view, &members) => {
            let tail = members.last().map(|member| member.id);
            members.extend(
                suspicions.outside().spare(view, config, tail).map(|id| ChainMember { id, role: Role::Syncing }),
            );
        }
        None => {}
    }
    if members == config.members {
        members = orders.reorder.members(config)?;
    }
    (members != config.members)
        .then(|| ChainChange { replaces: config.epoch, config: ChainConfig { members, ..config.clone() } })
}

/// Whether a chain with these members needs a joiner: they are too few, or all of them leave and must hand over
/// first.
fn wants_joiner(view: View<'_>, members: &[ChainMember]) -> bool {
    let hands_over = || members.iter().all(|member| view.asks_to_leave(member.id)) && !allows!(view.guards(), KeepLast);
    members.len() < view.settings().replicas || hands_over()
}

/// The serving members that can't be removed now. At least one stays.
fn that_stay(view: View<'_>, suspicions: &Suspicions, config: &ChainConfig) -> Vec<ChainMember> {
    let serving = || config.members.iter().filter(|member| member.role == Role::Serving).copied();
    let goes = |id| view.is_gone(id) || suspicions.is_blamed(config.chain, id).is_some();
    let lives = |id| view.lives(id) || (view.lived(id) && !serving().any(|member| view.is_gone(member.id)));
    let serves = |id| !view.has_halted(config.chain, id);
    if !serving().any(|member| lives(member.id) && !goes(member.id) && serves(member.id)) {
        return serving().collect();
    }
    // A chain can continue without a leaving member if another one stays.
    let has_heir = |id| !view.has_resigned(id) || config.serving().any(|other| is_heir(view, config, id, other));
    let may_go = |id| view.leases_expired(id) && view.leadership_confirmed(id) && has_heir(id);
    serving().filter(|member| !(goes(member.id) && may_go(member.id))).collect()
}

/// Whether the tail requests, in the current epoch, the promotion of the joiner `member` (rule 5.6).
fn asks_for(view: View<'_>, config: &ChainConfig, member: MemberId) -> bool {
    let Some(seen) = config.tail().and_then(|tail| view.node(tail)) else { return false };
    let counts = |wish: &Promotion| {
        let is_of_now = wish.epoch == config.epoch || allows!(view.guards(), PromoteInAnyEpoch);
        wish.chain == config.chain && wish.member == member && is_of_now
    };
    seen.promotions.iter().any(counts)
}

fn reasons(view: View<'_>, suspicions: &Suspicions, config: &ChainConfig) -> Vec<ChangeReason> {
    let Some(before) = view.configs().get(config.chain) else { return Vec::new() };
    let chain = config.chain;
    let went = |id| match suspicions.is_blamed(chain, id) {
        Some(why) => why,
        None if view.has_resigned(id) => Why::Left,
        None => Why::Silent,
    };
    let gone = before.members.iter().filter(|member| config.role(member.id).is_none());
    let gone = gone.map(|member| ChangeReason { chain, member: member.id, why: went(member.id) });
    let came = config.members.iter().filter_map(|member| {
        let why = match (before.role(member.id), member.role) {
            (None, Role::Serving) => Why::Reopened,
            (None, _) => Why::Joins,
            (Some(Role::Syncing), Role::Serving) => Why::Promoted,
            _ => return None,
        };
        Some(ChangeReason { chain, member: member.id, why })
    });
    let mut reasons: Vec<_> = gone.chain(came).collect();
    if reasons.is_empty() {
        reasons.extend(config.head().map(|member| ChangeReason { chain, member, why: Why::Reordered }));
    }
    reasons
}

/// Incarnations that are not in the log yet, or that have other addresses or another host name there. Until the known
/// incarnation of a node is gone, another one must wait: two processes may claim to be the same node.
fn incarnations_to_add(view: View<'_>) -> Vec<NodeInfo> {
    let mut known: BTreeMap<NodeId, &NodeInfo> =
        view.configs().nodes().map(|founder| (founder.id.node, founder)).collect();
    let mut add = Vec::new();
    for (id, seen) in view.nodes().iter().filter(|(id, _)| view.is_there(*id)) {
        let free = known.get(&id.node).is_none_or(|other| match other.id == id {
            true => **other != seen.founder,
            false => view.is_gone(other.id),
        });
        if free {
            known.insert(id.node, &seen.founder);
            add.push(seen.founder.clone());
        }
    }
    add
}

fn incarnations_to_remove(view: View<'_>) -> Vec<MemberId> {
    let all = view.configs().nodes().map(|founder| founder.id).filter(|&id| !view.configs().names(id));
    all.filter(|&id| view.silence(id) >= view.settings().forget).collect()
}
