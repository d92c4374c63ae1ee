//! The programs as people and scripts run them: real processes, real sockets, mDNS on loopback.

mod abuse;
mod availability;
mod chaos;
mod counters;
mod ctl;
mod exposition;
mod failover;
mod faults;
mod forming;
mod http;
mod joiner;
mod leaving;
mod live;
mod load;
mod members;
mod metrics;
mod moving;
mod overload;
mod quickstart;
mod recover;
mod resp;
mod restart_all;
mod rotation;
mod strangers;
mod support;
mod usage;
