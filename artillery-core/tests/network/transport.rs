//! Endpoints that meet over loopback sockets.

mod links;
mod namesakes;
mod streams;
mod support;
mod trust;
