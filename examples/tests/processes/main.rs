//! The programs as people and scripts run them: real processes, real sockets, mDNS on loopback.

mod ctl;
mod failover;
mod forming;
mod http;
mod load;
mod moving;
mod overload;
mod quickstart;
mod strangers;
mod support;
mod usage;
