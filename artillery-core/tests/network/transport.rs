//! Endpoints that meet over loopback sockets.

mod links;
mod streams;
mod support;
mod trust;
