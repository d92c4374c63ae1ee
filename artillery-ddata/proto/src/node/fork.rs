//! Test-only: what a node's conduct depends on, written down (docs/adr/0019-model-checking.md).

use std::fmt;

use super::Node;

impl Node {
    /// Writes down all that its conduct depends on, but for what the entries of the log say that it knows of: two nodes that
    /// write the same and share a log go on in the same way.
    ///
    /// # Errors
    /// What `out` fails with.
    pub fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        // Names every field: a new one that is forgotten here doesn't compile.
        let Self {
            me,
            holder,
            coordinator,
            voters,
            leads,
            acting,
            acted,
            met,
            renewals,
            stretch,
            leaving,
            tick,
            // These follow from the answers, and only others look at it; but for what the chains act by.
            state,
            closed: _,
            was_ready: _,
            company,
            outputs,
            guards: _,
        } = self;
        holder.describe(out)?;
        coordinator.describe(out)?;
        write!(out, "{:?}", (me, voters, leads, acted, met, renewals, stretch))?;
        if let Some(acting) = acting {
            acting.describe(out)?;
        }
        // A node that has served looks for others only once it knows of a successor.
        if !state.served || state.successor.is_some() {
            write!(out, "{:?}", (company, state.successor))?;
        }
        leaving.describe(company, out)?;
        write!(out, "{:?}", (tick, outputs))
    }
}
