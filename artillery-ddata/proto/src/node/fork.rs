//! Test-only: a description of the state that determines a node's behaviour (docs/adr/0019-model-checking.md).

use std::fmt;

use super::NodeMachine;

impl NodeMachine {
    /// Writes every field that affects behaviour, without the content of the log's entries. Two nodes with equal output
    /// and the same log behave identically.
    pub fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        // Destructured, so that a new field doesn't compile until it is handled here.
        let Self {
            base,
            coordinator,
            acting,
            company,
            leaving,
            giving_way,
            // Derived from the node's reports and the answers to its renewals. Nothing else depends on it.
            readiness: _,
            renewals,
            tick,
        } = self;
        base.describe(out)?;
        coordinator.describe(out)?;
        write!(out, "{:?}", (acting.describe(), renewals, tick, giving_way))?;
        let state = base.state();
        // A node that has served looks for other members only once it knows a successor.
        if !state.served || state.successor.is_some() {
            write!(out, "{:?}", (company, state.successor))?;
        }
        if let Some(parted) = state.parted {
            write!(out, "{parted}")?;
        }
        leaving.describe(company, out)
    }
}
