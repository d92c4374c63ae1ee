//! Runs the program as people and scripts do: real processes, real sockets, mDNS on loopback.

mod summary;
mod usage;
