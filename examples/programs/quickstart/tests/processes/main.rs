//! The program as people and scripts run it: real processes, real sockets, mDNS on loopback.

mod summary;
mod usage;
