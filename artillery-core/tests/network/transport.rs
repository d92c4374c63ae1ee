//! Tests of endpoints that connect to each other on the loopback interface.

mod links;
mod moves;
mod namesakes;
mod streams;
mod support;
mod trust;
