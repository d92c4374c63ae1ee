//! An operator accepts the loss of a chain: no store that served last is available and known to be complete. The chain
//! is opened again from the best available store, or empty (docs/DESIGN.md §5.8).
//!
//! Such an order must not discard any available data. So it waits until all living nodes have reported their copies,
//! and is refused while a serving member is alive, or while a store is back that may open the chain by itself.

use std::cmp::Reverse;

use super::{
    reason::{ChangeReason, Why},
    reopen::{highest_watermark, reopened},
    types::CoordinatorOutput,
    view::View,
};
use crate::{
    ChainConfig, ChainId, ChainMember, Epoch, MemberId, Role, Sequence, Timestamp, Version,
    control::{
        log::{ChainChange, ConfigChange, Configs},
        message::StoreHolding,
        placement::rank,
        reopening::{NotReopened, Reopened},
    },
};

#[derive(Clone, PartialEq, Eq, Debug)]
struct LossOrder {
    token: u64,
    chain: ChainId,
    /// The chain's epoch when the order was given.
    epoch: Epoch,
    until: Timestamp,
    /// The node that will serve; `None` while none is certain.
    choice: Option<Heir>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Heir {
    id: MemberId,
    last: Version,
    known: Sequence,
}

/// Why the chain can't be opened right now.
enum Hindrance {
    Final(NotReopened),
    Passing(NotReopened),
}

/// The order in progress: at most one.
#[derive(Clone, Default, Debug)]
pub(super) struct Loss(Option<LossOrder>);

impl Loss {
    pub(super) fn begin(&mut self, view: View<'_>, token: u64, chain: ChainId) -> Result<(), NotReopened> {
        let config = view.configs().get(chain).ok_or(NotReopened::NoChain { chain })?;
        if self.0.is_some() {
            return Err(NotReopened::Busy);
        }
        // Time for all nodes to report their copies, for leases to expire, and for the round that confirms this leader.
        let until = view.now + view.settings().reopen + 3 * view.settings().lease_and_drift();
        self.0 = Some(LossOrder { token, chain, epoch: config.epoch, until, choice: None });
        Ok(())
    }

    /// Chooses the node that will serve, or ends the order: it is executed, refused, overtaken or out of time.
    /// `proposes`: a proposal is in flight.
    pub(super) fn follow(&mut self, view: View<'_>, proposes: bool) -> Option<CoordinatorOutput> {
        let order = self.0.as_mut()?;
        let result = match view.configs().get(order.chain) {
            Some(config) if config.epoch == order.epoch => {
                if proposes {
                    return None;
                }
                let heir = heir(view, config);
                order.choice = heir.as_ref().ok().copied();
                match heir {
                    Ok(_) => return None,
                    Err(Hindrance::Passing(_)) if view.now < order.until => return None,
                    Err(Hindrance::Passing(why) | Hindrance::Final(why)) => Err(why),
                }
            }
            _ => order.outcome(view.configs()),
        };
        self.end(result)
    }

    /// Ends the order, if there is one.
    pub(super) fn end(&mut self, result: Result<Reopened, NotReopened>) -> Option<CoordinatorOutput> {
        self.0.take().map(|LossOrder { token, .. }| CoordinatorOutput::Reopened { token, result })
    }

    /// The ordered change, once it can be made.
    pub(super) fn change(&self, configs: &Configs) -> Option<(ConfigChange, Vec<ChangeReason>)> {
        let LossOrder { chain, epoch, choice, .. } = *self.0.as_ref()?;
        let config = configs.get(chain).filter(|config| config.epoch == epoch)?;
        let member = choice?.id;
        let members = vec![ChainMember { id: member, role: Role::Serving }];
        let change = ChainChange { replaces: epoch, config: ChainConfig { members, ..config.clone() } };
        let why = ChangeReason { chain, member, why: Why::AcceptedLoss };
        Some((ConfigChange::AcceptLoss(change), vec![why]))
    }
}

impl LossOrder {
    /// The outcome of the order, once the chain is in a later epoch.
    fn outcome(&self, configs: &Configs) -> Result<Reopened, NotReopened> {
        let made = configs.loss(self.chain).filter(|loss| loss.epoch > self.epoch);
        let (loss, heir) = made.zip(self.choice).ok_or(NotReopened::Overtaken)?;
        let Heir { id, last, known } = heir;
        Ok(Reopened { chain: self.chain, epoch: loss.epoch, by: id, last, known })
    }
}

/// The node that may serve the chain now, provided that the order discards no available data.
fn heir(view: View<'_>, config: &ChainConfig) -> Result<Heir, Hindrance> {
    config.serving().try_for_each(|id| is_lost(view, config, id))?;
    if let Some(first) = reopened(view, config).and_then(|members| members.first().copied()) {
        return Err(Hindrance::Final(NotReopened::Whole { member: first.id }));
    }
    let settled = config.serving().all(|id| is_silent(view, id));
    let are_over = config.serving().all(|id| view.leases_expired(id) && view.leadership_confirmed(id));
    if !(settled && are_over) {
        return Err(Hindrance::Passing(NotReopened::Unconfirmed));
    }
    if let Some((member, _)) = view.nodes().iter().find(|(id, node)| node.loads && view.is_there(*id)) {
        return Err(Hindrance::Passing(NotReopened::Comes { member }));
    }
    let known = highest_watermark(view, config);
    let best = best_store(view, config).map(|(id, held)| Heir { id, last: held.last, known });
    let free = || empty_node(view, config).map(|id| Heir { id, last: Version::NONE, known });
    best.or_else(free).ok_or(Hindrance::Passing(NotReopened::NoNode))
}

/// Whether the member has been silent long enough to exclude a brief disconnection, in which it could still answer
/// callers. By then each living node has renewed with this leader, and stores that were about to return are back.
fn is_silent(view: View<'_>, id: MemberId) -> bool {
    view.silence(id) >= view.settings().lease_and_drift() + view.settings().reopen
}

/// Checks that a serving member has failed, and that its store is unavailable or may be incomplete.
fn is_lost(view: View<'_>, config: &ChainConfig, member: MemberId) -> Result<(), Hindrance> {
    if !view.is_gone(member) {
        let was_heard = view.node(member).is_some() || member == view.me();
        let lives = NotReopened::Lives { member };
        return Err(if was_heard { Hindrance::Final(lives) } else { Hindrance::Passing(lives) });
    }
    let mut later = view.later_lives(member).rev();
    let Some((life, node)) = later.find(|(life, _)| !view.is_gone(*life)) else { return Ok(()) };
    let comes = Hindrance::Passing(NotReopened::Comes { member: life });
    let Some(held) = node.holds.get(&config.chain) else { return Err(comes) };
    let has_all = held.whole && held.synced && held.last.sequence >= highest_watermark(view, config);
    match (has_all && !allows!(view.guards(), LoseWhole), view.can_open(config.chain, life)) {
        (false, _) => Ok(()),
        (true, true) => Err(Hindrance::Final(NotReopened::Whole { member: life })),
        (true, false) => Err(comes),
    }
}

/// The complete store with the highest last version, among the nodes that can open the chain.
fn best_store(view: View<'_>, config: &ChainConfig) -> Option<(MemberId, StoreHolding)> {
    let able = view.nodes().iter().filter(|&(id, _)| view.can_open(config.chain, id));
    let stores = able.filter_map(|(id, node)| Some((id, *node.holds.get(&config.chain)?)));
    let whole = stores.filter(|(_, held)| held.whole && !held.last.is_none());
    whole.max_by_key(|&(id, held)| (held.last, Reverse(id)))
}

/// The node at which the chain starts empty. A joiner isn't eligible, since its store is already partly filled.
fn empty_node(view: View<'_>, config: &ChainConfig) -> Option<MemberId> {
    let may_serve = |&id: &MemberId| view.may_take_part(config.chain, id);
    let free = view.configs().nodes().map(|node| node.id).filter(|&id| config.role(id).is_none());
    rank(view.settings().cluster, config.chain, free.filter(may_serve)).into_iter().next()
}
