//! Tests of what is built on this crate.
//!
//! Feature `checker` has the pure part: what clients saw ([`history`]), and whether a correct store can have shown them
//! that ([`checker`]).

pub mod checker;
pub mod history;
