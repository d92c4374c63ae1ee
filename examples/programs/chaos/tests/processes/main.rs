//! Runs the program as people and scripts do: real processes, real sockets.

mod summary;
mod usage;
