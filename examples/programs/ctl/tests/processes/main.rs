//! Runs the program as people and scripts do: real processes, real sockets, mDNS on loopback.

mod answers;
mod backup;
mod check;
mod families;
mod live;
mod load;
mod lock;
mod moving;
mod recover;
mod usage;
mod verdict;
