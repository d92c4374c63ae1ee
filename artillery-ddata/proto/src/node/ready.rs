//! When a node is ready: it fulfils its role, and any other node may be stopped (docs/DESIGN.md §5.3).

use super::{NodeMachine, NodeOutput, Successor, Unready};
use crate::{
    ChainConfig, Role, Timestamp,
    control::message::{Report, Unsettled},
};

impl NodeMachine {
    /// Records, from the reports of a renewal, which chains are closed. Readiness is decided when the renewal is
    /// answered; newer configurations may be in force by then.
    pub(super) fn look_at_chains(&mut self, reports: &[Report]) {
        let is_open = |config: &&ChainConfig| {
            let report = reports.iter().find(|report| report.chain == config.chain);
            report.is_some_and(|report| report.open && report.epoch == config.epoch && !report.halted)
        };
        let closed = self.state.configs.iter().filter(|config| config.role(self.me).is_some() && !is_open(config));
        self.closed = closed.map(|config| config.chain).collect();
    }

    /// Updates readiness by the leader's statement, which is valid at the time of its answer.
    pub(super) fn see_whether_ready(&mut self, now: Timestamp, settled: Result<(), Unsettled>) {
        let unready = self.unready(now, settled).err();
        self.state.unready = unready;
        if unready.is_none() && !self.was_ready {
            self.was_ready = true;
            self.outputs.push_back(NodeOutput::Ready);
        }
    }

    fn unready(&self, now: Timestamp, settled: Result<(), Unsettled>) -> Result<(), Unready> {
        if let Some(by) = self.state.parted {
            return Err(Unready::Parted { by });
        }
        if let Some(Successor { by, .. }) = self.state.successor.filter(|successor| successor.yields) {
            return Err(Unready::Yields { by });
        }
        if self.configs().is_over() {
            return Err(Unready::Over);
        }
        if self.state.orphaned {
            return Err(Unready::Orphaned);
        }
        if self.loads() {
            return Err(Unready::Loads);
        }
        for config in self.state.configs.iter() {
            let chain = config.chain;
            match config.role(self.me) {
                None => {}
                Some(Role::Serving) if self.closed.contains(&chain) => return Err(Unready::Closed { chain }),
                Some(Role::Serving) if self.state.lease <= now => return Err(Unready::NoLease),
                Some(Role::Serving) => {}
                Some(_) => return Err(Unready::Joins { chain }),
            }
        }
        if allows!(self.guards, ReadyUnsettled) { Ok(()) } else { Ok(settled?) }
    }
}
