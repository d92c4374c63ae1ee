//! Test-only: what a node's conduct depends on, written down (docs/adr/0019-model-checking.md).

use std::fmt;

use super::NodeMachine;

impl NodeMachine {
    /// Writes down all that the node's conduct depends on, except the content of the log's entries. Two nodes that write the same
    /// and share a log go on in the same way.
    ///
    /// # Errors
    /// The error of `out`.
    pub fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        // Names every field, so that a forgotten new one doesn't compile.
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
            // The next three follow from the answers and are only shown, except for parts of `state` that are written below.
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
