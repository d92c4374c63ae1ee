use super::known_node::KnownNode;
use crate::{ChainConfig, ChainId, ChainMember, Epoch, MemberId, Role, Timestamp, control::message::Report};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wish {
    pub(super) token: u64,
    pub(super) chain: ChainId,
    pub(super) epoch: Epoch,
    pub(super) order: Vec<MemberId>,
    pub(super) until: Timestamp,
    /// The first renewal of the head that was answered with this wish, and that was its newest answered one then.
    pub(super) said: Option<u64>,
    /// The head has closed: every update that it ordered is committed.
    pub(super) closed: bool,
}

impl Wish {
    pub(super) fn members(&self, config: &ChainConfig) -> Vec<ChainMember> {
        let serving = self.order.iter().map(|&id| ChainMember { id, role: Role::Serving });
        serving.chain(config.members.iter().copied().filter(|member| member.role != Role::Serving)).collect()
    }

    /// Whether the head reports that it is closed, and shows an answer with this wish. Without that answer, a report
    /// may refer to the closing for an earlier wish. That closing has expired, and updates that the head has ordered
    /// since would be dropped (trap 55).
    pub(super) fn is_closed_by(&self, head: &KnownNode, believes_old: bool) -> bool {
        let shows = self.said.is_some_and(|said| head.shown >= said) || believes_old;
        let closed = |report: &Report| report.epoch == self.epoch && report.closed;
        shows && head.told.get(&self.chain).is_some_and(|told| closed(&told.report))
    }

    pub(super) fn is_for(&self, config: &ChainConfig) -> bool {
        (self.chain, self.epoch) == (config.chain, config.epoch)
    }
}
