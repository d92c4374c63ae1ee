//! Test-only switches: each takes one guard out (docs/adr/0003-mutants.md).

use super::NodeMachine;
use crate::control::coordinator;

/// A guard that can be left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Mutant {
    /// The node says that it acts by a configuration as soon as one of its chains does (trap 28).
    ActEarly,
    /// The node says that it is ready though the leader says that no other one should be stopped (trap 70).
    ReadyUnsettled,
    /// A node that is to stop, and is the last that serves a chain, ends at once (trap 69).
    EndAtOnce,
    /// A node gives way to a cluster that succeeds its own, for good, though other nodes of its cluster are there (trap 71).
    YieldAtOnce,
    /// A node that hears no other one of its own goes on though another cluster succeeds its own (trap 71).
    NeverYield,
}

impl NodeMachine {
    /// Leaves a guard out.
    #[must_use]
    pub fn with_mutant(mut self, mutant: Option<Mutant>) -> Self {
        self.mutant = mutant;
        self
    }

    /// Leaves a guard of its coordinator out.
    #[must_use]
    pub fn with_coordinator_mutant(mut self, mutant: Option<coordinator::Mutant>) -> Self {
        self.coordinator = self.coordinator.with_mutant(mutant);
        self
    }

    pub(super) fn is_ready_unsettled(&self) -> bool {
        self.mutant == Some(Mutant::ReadyUnsettled)
    }

    pub(super) fn ends_at_once(&self) -> bool {
        self.mutant == Some(Mutant::EndAtOnce)
    }

    pub(super) fn yields_at_once(&self) -> bool {
        self.mutant == Some(Mutant::YieldAtOnce)
    }

    pub(super) fn never_yields(&self) -> bool {
        self.mutant == Some(Mutant::NeverYield)
    }

    pub(super) fn acts_early(&self) -> bool {
        self.mutant == Some(Mutant::ActEarly)
    }
}
