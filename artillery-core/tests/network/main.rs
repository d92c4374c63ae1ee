//! Endpoints and clusters over loopback sockets.

mod cluster;
mod transport;
mod within;
