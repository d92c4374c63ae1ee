//! Members on a made-up network, in virtual time.

mod network;
mod packets;
mod scenes;
