//! Endpoints that meet over loopback sockets.

mod links;
mod streams;
mod support;
mod trust;
#[path = "../within/mod.rs"]
mod within;
