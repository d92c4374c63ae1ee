//! Histories that a register explains.
