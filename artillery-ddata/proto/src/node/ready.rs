//! When a node is ready: it fulfils its role, and any other node may be stopped (docs/DESIGN.md §5.3).

use std::collections::BTreeSet;

use super::{NodeOutput, Successor, Unready, base::Base};
use crate::{
    ChainConfig, ChainId, Epoch, Role, Timestamp,
    control::message::{Report, Unsettled},
};

#[derive(Clone, Default, Debug)]
pub(super) struct Readiness {
    /// The open chains, and the epochs in which they were open, as of the newest renewal.
    open: BTreeSet<(ChainId, Epoch)>,
    was_ready: bool,
}

impl Readiness {
    /// Records, from the reports of a renewal, which chains are open. Readiness is decided when the renewal is
    /// answered. Newer configurations may be in force when the answer arrives: their epochs are treated as closed until
    /// the next renewal.
    pub(super) fn look_at_chains(&mut self, reports: &[Report], base: &Base) {
        let is_open = |config: &&ChainConfig| {
            let report = reports.iter().find(|report| report.chain == config.chain);
            report.is_some_and(|report| report.open && report.epoch == config.epoch && !report.halted)
        };
        let open = base.state().configs.iter().filter(is_open);
        self.open = open.map(|config| (config.chain, config.epoch)).collect();
    }

    /// Updates readiness by the leader's statement, which is valid at the time of its answer.
    pub(super) fn see_whether_ready(&mut self, now: Timestamp, settled: Result<(), Unsettled>, base: &mut Base) {
        let unready = self.unready(now, settled, base).err();
        base.state_mut().unready = unready;
        if unready.is_none() && !self.was_ready {
            self.was_ready = true;
            base.push(NodeOutput::Ready);
        }
    }

    fn unready(&self, now: Timestamp, settled: Result<(), Unsettled>, base: &Base) -> Result<(), Unready> {
        let state = base.state();
        if let Some(by) = state.parted {
            return Err(Unready::Parted { by });
        }
        if let Some(Successor { by, .. }) = state.successor.filter(|successor| successor.yields) {
            return Err(Unready::Yields { by });
        }
        if base.configs().is_over() {
            return Err(Unready::Over);
        }
        if state.orphaned {
            return Err(Unready::Orphaned);
        }
        if base.loads() {
            return Err(Unready::Loads);
        }
        for config in state.configs.iter() {
            let (chain, epoch) = (config.chain, config.epoch);
            match config.role(base.me()) {
                None => {}
                Some(Role::Serving) if !self.open.contains(&(chain, epoch)) => return Err(Unready::Closed { chain }),
                Some(Role::Serving) if state.lease <= now => return Err(Unready::NoLease),
                Some(Role::Serving) => {}
                Some(_) => return Err(Unready::Joins { chain }),
            }
        }
        if allows!(base.guards(), ReadyUnsettled) { Ok(()) } else { Ok(settled?) }
    }
}
