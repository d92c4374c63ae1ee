//! Reordering the members of a chain by an operator's order (docs/DESIGN.md §5.10).
//!
//! The head is closed first: it orders nothing more, and reports when every update that it ordered is committed. Then
//! all members have the same last version, so no member drops an update when they change places, and no client gets an
//! unknown outcome. If the head isn't closed in time, it continues as before.

use std::collections::BTreeSet;

use super::{Coordinator, CoordinatorOutput, wish::Wish};
use crate::{
    ChainId, Epoch, MemberId, Timestamp,
    control::message::{Close, ReorderError},
};

/// A reorder times out after this many leases.
const REORDER_LEASES: u32 = 2;

impl Coordinator {
    pub(super) fn reorder(&mut self, now: Timestamp, token: u64, chain: ChainId, order: Vec<MemberId>) {
        let result = match self.wish(now, token, chain, order) {
            Ok(None) => return,
            Ok(Some(epoch)) => Ok(epoch),
            Err(error) => Err(error),
        };
        self.outputs.push_back(CoordinatorOutput::Reordered { token, result });
    }

    fn wish(
        &mut self,
        now: Timestamp,
        token: u64,
        chain: ChainId,
        order: Vec<MemberId>,
    ) -> Result<Option<Epoch>, ReorderError> {
        let leader = self.leader;
        let Some(leading) = &mut self.leading else { return Err(ReorderError::NotLeading { leader }) };
        let config = self.configs.get(chain).ok_or(ReorderError::NoChain { chain })?;
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
        if leading.reorder.is_some() {
            return Err(ReorderError::Busy);
        }
        let until = now + self.settings.lease * REORDER_LEASES;
        leading.reorder = Some(Wish { token, chain, epoch: config.epoch, order, until, said: None, closed: false });
        Ok(None)
    }

    pub(super) fn follow_reorder(&mut self, now: Timestamp) {
        let Some(leading) = &mut self.leading else { return };
        let Some(wish) = &mut leading.reorder else { return };
        let config = self.configs.get(wish.chain);
        let result = match config {
            Some(config) if config.epoch == wish.epoch => {
                let head = config.head().and_then(|head| leading.nodes.get(&head));
                let old = allows!(self.settings.guards, BelieveOldClosing);
                let closed = head.is_some_and(|head| wish.is_closed_by(head, old));
                wish.closed = closed || allows!(self.settings.guards, ReorderOpen);
                if now < wish.until || leading.proposal.is_some() {
                    return;
                }
                Err(ReorderError::NotClosed)
            }
            Some(config) if config.serving().eq(wish.order.iter().copied()) => Ok(config.epoch),
            _ => Err(ReorderError::Overtaken),
        };
        let token = wish.token;
        leading.reorder = None;
        self.outputs.push_back(CoordinatorOutput::Reordered { token, result });
    }

    /// What `member` must close as the head.
    pub(super) fn to_close(&self, member: MemberId) -> Vec<Close> {
        let wish = self.leading.as_ref().and_then(|leading| leading.reorder.as_ref());
        let heads = |wish: &&Wish| {
            self.configs.get(wish.chain).is_some_and(|config| wish.is_for(config) && config.head() == Some(member))
        };
        wish.filter(heads).map(|wish| Close { chain: wish.chain, epoch: wish.epoch }).into_iter().collect()
    }

    pub(super) fn says_close(&mut self, member: MemberId, number: u64, close: &[Close]) {
        let Some(leading) = &mut self.leading else { return };
        let Some(seen) = leading.nodes.get_mut(&member).filter(|seen| number > seen.newest) else { return };
        seen.newest = number;
        if let Some(wish) = leading.reorder.as_mut().filter(|_| !close.is_empty()) {
            wish.said.get_or_insert(number);
        }
    }

    /// Cancels the reorder, because this node no longer leads in this term. The operator must ask the new leader.
    pub(super) fn end_reorder(&mut self) {
        let wish = self.leading.as_mut().and_then(|leading| leading.reorder.take());
        if let Some(Wish { token, .. }) = wish {
            let result = Err(ReorderError::NotLeading { leader: self.leader });
            self.outputs.push_back(CoordinatorOutput::Reordered { token, result });
        }
    }
}
