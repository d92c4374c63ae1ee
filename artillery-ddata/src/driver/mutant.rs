//! Test-only switches: each takes one guard out (docs/adr/0003-mutants.md). No simulator runs the driver, so unit tests hunt
//! them.

/// A guard that a test can leave out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mutant {
    /// A reading of the clock decides about inputs that were received after it (trap 56).
    KeepReading,
    /// The lease is taken in turns in which nothing else was received (trap 57).
    LeaseLast,
    /// A floor, or a position, of another history is taken for one of this history (traps 58, 59).
    MixHistories,
}
