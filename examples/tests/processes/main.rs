//! The programs as people and scripts run them: real processes, real sockets, mDNS on loopback.

mod ctl;
mod failover;
mod forming;
mod http;
mod load;
mod overload;
mod quickstart;
mod recover;
mod restart_all;
mod strangers;
mod support;
mod usage;
