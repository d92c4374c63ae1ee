//! Tests of the simulator, and of the protocol in it. A single program, because each program links the whole library.
//!
//! Larger numbers of seeds, and the hunts of mutants, run only in release builds (`.ci/sim`).

mod availability;
mod boundaries;
mod catalogue;
mod cli;
mod determinism;
mod every_write;
mod gray;
mod large;
mod locks;
mod mutants;
mod oracles;
mod overload;
mod requests;
mod scenarios;
mod small;
mod watches;
