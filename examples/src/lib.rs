//! Shared parts of the example programs.
