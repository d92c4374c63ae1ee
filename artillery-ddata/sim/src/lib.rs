//! Deterministic simulator of Artillery chains.
