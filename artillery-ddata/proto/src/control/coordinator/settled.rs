//! Whether any one node may be stopped (docs/DESIGN.md §5.3), which is the condition for *ready*.

use super::{
    leave::{is_heir, is_leaving, may_come_back},
    suspicion::Suspicions,
    view::View,
};
use crate::{
    ChainConfig, MemberId,
    control::message::{Farewell, Unsettled},
};

/// Whether each chain has as many living members as it can get, and no node is joining, leaving or new.
pub(super) fn nodes_settled(view: View<'_>, suspicions: &Suspicions) -> Result<(), Unsettled> {
    view.configs().iter().try_for_each(|config| chain_settled(view, suspicions, config))?;
    if let Some(&member) = view.voters().iter().find(|&&id| is_leaving(view, id)) {
        return Err(Unsettled::Leaves { member });
    }
    match view.configs().nodes().find(|founder| view.is_new(founder.id)) {
        Some(new) => Err(Unsettled::New { member: new.id }),
        None => Ok(()),
    }
}

fn chain_settled(view: View<'_>, suspicions: &Suspicions, config: &ChainConfig) -> Result<(), Unsettled> {
    let chain = config.chain;
    if let Some(member) = config.syncing() {
        return Err(Unsettled::Joins { chain, member });
    }
    for member in config.serving() {
        if view.is_gone(member) || suspicions.is_blamed(chain, member).is_some() {
            return Err(Unsettled::Missing { chain, member });
        }
        if view.asks_to_leave(member) {
            return Err(Unsettled::Leaves { member });
        }
    }
    match successor(view, config) {
        Some(member) if config.serving().count() < view.settings().replicas => Err(Unsettled::Short { chain, member }),
        _ => Ok(()),
    }
}

/// A living node that may serve a chain eventually. This leader is considered even if it hasn't renewed yet, because
/// its chains haven't applied the log.
fn successor(view: View<'_>, config: &ChainConfig) -> Option<MemberId> {
    let mut nodes = view.configs().nodes().map(|founder| founder.id);
    let is_named = |id: MemberId| config.members.iter().any(|member| member.id.node == id.node);
    let is_there = |id| view.is_there(id) || (id == view.me() && view.stays(id));
    nodes.find(|&id| !is_named(id) && is_there(id) && !view.has_halted(config.chain, id))
}

/// The effect on its chains when node `id` leaves. `None`: other members seem to be alive, but none has proved it
/// since the request to leave (trap 61).
pub(super) fn farewell(view: View<'_>, id: MemberId) -> Option<Farewell> {
    let is_serving = |config: &&ChainConfig| config.serving().any(|serving| serving == id);
    let is_last = |config: &&ChainConfig| {
        let keeps = |other| other != id && view.stays(other) && !view.has_halted(config.chain, other);
        !config.serving().any(keeps)
    };
    let goes_on =
        |config: &ChainConfig| config.serving().any(|other| view.stays(other) && is_heir(view, config, id, other));
    let goes_on = || view.configs().iter().filter(is_serving).all(goes_on).then_some(Farewell::GoesOn);
    let is_taken_over =
        |config: &ChainConfig| config.syncing().is_some_and(|id| view.stays(id)) || successor(view, config).is_some();
    let is_last_voter = view.voters().iter().eq([&id]);
    let last: Vec<_> = view.configs().iter().filter(is_serving).filter(is_last).collect();
    if last.is_empty() && !is_last_voter {
        return goes_on();
    }
    let is_taken_over = !last.is_empty() && last.iter().all(|config| is_taken_over(config));
    // The disk of a node that will return keeps its chains: the node need not wait for a possible successor.
    let is_awaited = || !view.returns(id) && may_come_back(view, id);
    match (is_taken_over || is_awaited(), last.is_empty()) {
        (true, _) => Some(Farewell::HandsOver),
        (false, true) => goes_on(),
        (false, false) => Some(Farewell::Ends),
    }
}
