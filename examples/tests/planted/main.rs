//! Common mistakes of applications, each planted in a few lines of code next to the correct version. The simulated
//! cluster must find each mistake within 200 seeds, by an assertion about the application's own data, and the correct
//! version must pass the same seeds.
//!
//! Each test prints one line: the mistake, the seed that found it, and the time. `cargo test -p artillery-examples
//! --test planted lost_update` runs one of them.

mod app;
mod hunt;
mod locks;
mod nodes;
mod reads;
mod retries;
mod writes;
