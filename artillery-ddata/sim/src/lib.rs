//! Deterministic simulator of Artillery chains, and the checker of the histories that its clients record.

pub mod checker;
pub mod history;
