//! Runs the program as people and scripts do: real processes, real sockets, mDNS on loopback.

mod abuse;
mod appends;
mod availability;
mod counters;
#[cfg(target_os = "linux")]
mod descriptors;
mod durable;
mod exposition;
mod failover;
mod faults;
mod forming;
mod http;
mod joiner;
mod leaving;
mod manager;
mod metrics;
mod overload;
mod parked;
mod reports;
mod resp;
mod restart_all;
mod rotation;
mod strangers;
mod unit;
mod usage;
mod volumes;
