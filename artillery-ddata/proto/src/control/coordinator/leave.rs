//! Leaving: a node resigns only after the leader has agreed, and withdraws its resignation when it can no longer be
//! removed (docs/adr/0028-leaving-and-voters.md).

use super::{known_node::KnownNode, view::View};
use crate::{
    ChainConfig, MemberId, Role,
    control::message::{Leave, LeaveStage},
};

/// A resignation that has led to no removal for this many times `suspect` is withdrawn.
const RESIGNATION_SUSPECTS: u32 = 2;

/// The next step of a leaving node, if one is due: it may resign, or must withdraw its resignation. `proposes`: a
/// proposal is in flight, which may be the removal.
pub(super) fn next_step(view: View<'_>, id: MemberId, proposes: bool) -> Option<Leave> {
    let said = view.node(id)?.leaver.said;
    match said.stage {
        LeaveStage::Asks if may_resign(view, id) => Some(said.resigned()),
        LeaveStage::Resigned if !proposes && is_stuck(view, id) => Some(said.back(LeaveStage::Asks)),
        _ => None,
    }
}

/// Whether the serving member `other` keeps the chain available when `id` leaves. It must be this leader, or have shown
/// an answer that was given after the request to leave. A node that was just killed has sent recent messages too:
/// relying on it could lose the last copy (trap 61).
pub(super) fn is_heir(view: View<'_>, config: &ChainConfig, id: MemberId, other: MemberId) -> bool {
    let Some(leaver) = view.node(id).map(|seen| seen.leaver) else { return false };
    let seen = view.node(other);
    let stays = !view.is_gone(other)
        && view.nodes().fence_of(other).is_none()
        && !seen.is_some_and(|seen| seen.leaver.agreed)
        && !view.has_halted(config.chain, other);
    let is_proven = seen.is_some_and(|seen| seen.proven >= leaver.asked);
    let lived = other == view.me() || is_proven || allows!(view.guards(), BelieveOldMessages);
    other != id && stays && lived
}

/// Whether a node is still leaving. A node that will return has left once it is gone and no longer has a place in a
/// chain. This leader itself is treated as leaving as long as it asks to leave.
pub(super) fn is_leaving(view: View<'_>, id: MemberId) -> bool {
    let is_out = view.returns(id) && id != view.me() && view.is_gone(id) && !view.configs().names(id);
    view.asks_to_leave(id) && !is_out
}

/// Whether the chains of a leaving node can continue without it.
///
/// A node that will return keeps its place if all other members leave too. Otherwise, when all nodes are stopped,
/// the members would be removed down to one, and only its store could open the chain again.
fn may_resign(view: View<'_>, id: MemberId) -> bool {
    let may_inherit = |other| !view.returns(id) || !view.asks_to_leave(other);
    let is_heir = |config: &ChainConfig, other| may_inherit(other) && is_heir(view, config, id, other);
    let mut chains = view.configs().iter().filter(|config| config.role(id) == Some(Role::Serving));
    chains.all(|config| config.serving().any(|other| is_heir(config, other))) || allows!(view.guards(), AgreeAtOnce)
}

/// Whether the removal of a resigned node fails: no other member of one of its chains is alive, or the removal takes
/// too long.
fn is_stuck(view: View<'_>, id: MemberId) -> bool {
    let Some(leaver) = view.node(id).map(|seen| seen.leaver) else { return false };
    let alone = |config: &ChainConfig| config.serving().all(|other| other == id || view.is_gone(other));
    let mut chains = view.configs().iter().filter(|config| config.role(id) == Some(Role::Serving));
    let late = view.now - leaver.resigned >= view.settings().suspect * RESIGNATION_SUSPECTS;
    chains.any(|config| late || alone(config)) && !allows!(view.guards(), KeepResigned)
}

/// Whether a node other than `id` may be available soon: it renewed within `forget` and doesn't leave permanently, or
/// it hasn't renewed in this term but still has a place in a chain or a vote. Until this leader has observed the nodes
/// for `suspect`, the answer is yes.
pub(super) fn may_come_back(view: View<'_>, id: MemberId) -> bool {
    let has_newer = |id: MemberId| view.nodes().iter().any(|(other, _)| other.node == id.node && other > id);
    let may_come = |seen: &KnownNode| !seen.leaver.said.is_for_good() && view.now - seen.heard < view.settings().forget;
    let known = view.configs().nodes().map(|founder| founder.id).chain(view.nodes().iter().map(|(id, _)| id));
    let mut others = known.filter(|&other| other.node != id.node && !has_newer(other));
    let has_place = |other| view.configs().names(other) || view.votes(other);
    let may = |other| view.node(other).map_or_else(|| has_place(other), may_come);
    view.age() < view.settings().suspect || others.any(may)
}
