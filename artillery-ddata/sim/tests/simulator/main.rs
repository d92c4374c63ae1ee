//! Tests of the simulator, and of the protocol in it. One program, since each further one links all of the library.
//!
//! Many seeds of all scenarios, and the hunts of mutants, are left to a release build (`.ci/sim`).

mod availability;
mod boundaries;
mod catalogue;
mod cli;
mod determinism;
mod every_write;
mod gray;
mod large;
mod mutants;
mod oracles;
mod overload;
mod requests;
mod scenarios;
mod small;
mod watches;
