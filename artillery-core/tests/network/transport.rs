//! Endpoints that meet over loopback sockets.

mod links;
mod moves;
mod namesakes;
mod streams;
mod support;
mod trust;
