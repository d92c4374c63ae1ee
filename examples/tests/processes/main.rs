//! The programs as people and scripts run them: real processes, real sockets, mDNS on loopback.

mod availability;
mod chaos;
mod counters;
mod ctl;
mod failover;
mod faults;
mod forming;
mod http;
mod joiner;
mod leaving;
mod load;
mod members;
mod moving;
mod overload;
mod quickstart;
mod recover;
mod resp;
mod restart_all;
mod strangers;
mod support;
mod usage;
