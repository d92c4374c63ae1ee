//! Tests with members on a simulated network in virtual time.

mod network;
mod packets;
mod scenes;
