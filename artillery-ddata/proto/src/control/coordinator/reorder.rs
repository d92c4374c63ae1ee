//! Reordering the members of a chain by an operator's order (docs/DESIGN.md §5.10).
//!
//! The head is closed first: it orders nothing more, and reports when every update that it ordered is committed. Then
//! all members have the same last version, so no member drops an update when they change places, and no client gets an
//! unknown outcome. If the head isn't closed in time, it continues as before.

use std::collections::BTreeSet;

use super::{known_node::KnownNode, types::CoordinatorOutput, view::View};
use crate::{
    ChainConfig, ChainId, ChainMember, Epoch, MemberId, Role, Timestamp,
    control::{
        log::Configs,
        message::{Close, ReorderError, Report},
    },
};

/// A reorder times out after this many leases.
const REORDER_LEASES: u32 = 2;

#[derive(Clone, PartialEq, Eq, Debug)]
struct Wish {
    token: u64,
    chain: ChainId,
    epoch: Epoch,
    order: Vec<MemberId>,
    until: Timestamp,
    /// The first renewal of the head that was answered with this wish while no later one had been answered.
    said: Option<u64>,
    /// The head has closed: every update that it ordered is committed.
    closed: bool,
}

impl Wish {
    fn members(&self, config: &ChainConfig) -> Vec<ChainMember> {
        let serving = self.order.iter().map(|&id| ChainMember { id, role: Role::Serving });
        serving.chain(config.members.iter().copied().filter(|member| member.role != Role::Serving)).collect()
    }

    /// Whether the head reports that it is closed, and shows an answer with this wish. Without that answer, a report
    /// may refer to the closing for an earlier wish. That closing has expired, and updates that the head has ordered
    /// since would be dropped (trap 55).
    fn is_closed_by(&self, head: &KnownNode, believes_old: bool) -> bool {
        let shows = self.said.is_some_and(|said| head.shown >= said) || believes_old;
        let closed = |report: &Report| report.epoch == self.epoch && report.closed;
        shows && head.told.get(&self.chain).is_some_and(|told| closed(&told.report))
    }

    fn is_for(&self, config: &ChainConfig) -> bool {
        (self.chain, self.epoch) == (config.chain, config.epoch)
    }
}

/// At most one order at a time.
#[derive(Clone, Default, Debug)]
pub(super) struct Reorder(Option<Wish>);

impl Reorder {
    /// `Some`: the current epoch, which already has this order. `None`: the reorder has begun.
    pub(super) fn begin(
        &mut self,
        view: View<'_>,
        token: u64,
        chain: ChainId,
        order: Vec<MemberId>,
    ) -> Result<Option<Epoch>, ReorderError> {
        let config = view.configs().get(chain).ok_or(ReorderError::NoChain { chain })?;
        let (present, wanted): (BTreeSet<_>, BTreeSet<_>) = (config.serving().collect(), order.iter().collect());
        if let Some(&unknown) = order.iter().find(|id| !present.contains(id)) {
            return Err(ReorderError::NotServing { member: unknown });
        }
        if wanted.len() != present.len() || order.len() != present.len() {
            return Err(ReorderError::NotAll { serving: present.len() as u32, named: order.len() as u32 });
        }
        if config.serving().eq(order.iter().copied()) {
            return Ok(Some(config.epoch));
        }
        if self.0.is_some() {
            return Err(ReorderError::Busy);
        }
        let until = view.now + view.settings().lease * REORDER_LEASES;
        self.0 = Some(Wish { token, chain, epoch: config.epoch, order, until, said: None, closed: false });
        Ok(None)
    }

    /// Checks whether the head has closed, or ends the order. `proposes`: a proposal is in flight.
    pub(super) fn follow(&mut self, view: View<'_>, proposes: bool) -> Option<CoordinatorOutput> {
        let wish = self.0.as_mut()?;
        let result = match view.configs().get(wish.chain) {
            Some(config) if config.epoch == wish.epoch => {
                let head = config.head().and_then(|head| view.node(head));
                let old = allows!(view.guards(), BelieveOldClosing);
                let closed = head.is_some_and(|head| wish.is_closed_by(head, old));
                wish.closed = closed || allows!(view.guards(), ReorderOpen);
                if view.now < wish.until || proposes {
                    return None;
                }
                Err(ReorderError::NotClosed)
            }
            Some(config) if config.serving().eq(wish.order.iter().copied()) => Ok(config.epoch),
            _ => Err(ReorderError::Overtaken),
        };
        self.end(result)
    }

    /// Ends the order, if there is one.
    pub(super) fn end(&mut self, result: Result<Epoch, ReorderError>) -> Option<CoordinatorOutput> {
        self.0.take().map(|Wish { token, .. }| CoordinatorOutput::Reordered { token, result })
    }

    /// The members in the ordered order, once the head has closed.
    pub(super) fn members(&self, config: &ChainConfig) -> Option<Vec<ChainMember>> {
        self.0.as_ref().filter(|wish| wish.is_for(config) && wish.closed).map(|wish| wish.members(config))
    }

    /// The chain that `member` must close as its head, if any.
    pub(super) fn to_close(&self, configs: &Configs, member: MemberId) -> Vec<Close> {
        let heads = |wish: &&Wish| {
            configs.get(wish.chain).is_some_and(|config| wish.is_for(config) && config.head() == Some(member))
        };
        let wish = self.0.as_ref().filter(heads);
        wish.map(|wish| Close { chain: wish.chain, epoch: wish.epoch }).into_iter().collect()
    }

    /// The head's renewal `number`, its newest one, is answered with this order.
    pub(super) fn is_said(&mut self, number: u64) {
        if let Some(wish) = &mut self.0 {
            wish.said.get_or_insert(number);
        }
    }
}
