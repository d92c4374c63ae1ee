//! Test-only: a description of the state that determines a node's behaviour (docs/adr/0019-model-checking.md).

use std::fmt;

use super::NodeMachine;

impl NodeMachine {
    /// Writes every field that affects behaviour, without the content of the log's entries. Two nodes with equal output
    /// and the same log behave identically.
    pub fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        // Destructured, so that a new field doesn't compile until it is handled here.
        let Self {
            me,
            holder,
            coordinator,
            voters,
            leads,
            acting,
            kept,
            acted,
            met,
            renewals,
            stretch,
            leaving,
            tick,
            // The next three derive from the answers and are only reported, except for parts of `state` that are
            // written below.
            state,
            closed: _,
            was_ready: _,
            company,
            ends_at,
            outputs,
            guards: _,
        } = self;
        holder.describe(out)?;
        coordinator.describe(out)?;
        write!(out, "{:?}", (me, voters, leads, acted, met, renewals, stretch))?;
        if let Some(acting) = acting {
            acting.describe(out)?;
        }
        if let Some(kept) = kept {
            kept.describe(out)?;
        }
        // A node that has served looks for other members only once it knows a successor.
        if !state.served || state.successor.is_some() {
            write!(out, "{:?}", (company, state.successor))?;
        }
        if let Some(parted) = state.parted {
            write!(out, "{parted}")?;
        }
        leaving.describe(company, out)?;
        write!(out, "{:?}", (tick, ends_at, outputs))
    }
}
