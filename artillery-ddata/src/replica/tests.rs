//! Tests of the replica as a whole: a chain whose links the test holds in its hands.

mod chain;
mod cuts;
mod large;
mod opening;
mod reading;
mod requests;
mod rig;
mod watching;
