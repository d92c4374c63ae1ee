//! The pages whose Rust programs are doctests: `cargo test -p artillery-guide` compiles them, and runs all except the
//! ones marked `no_run`. `.ci/pages` checks the commands of the same pages, and that each page with a program is in this list.

#![cfg(doctest)]

#[doc = include_str!("../../../README.md")]
mod readme {}
#[doc = include_str!("../../../docs/guide/src/embedding.md")]
mod embedding {}
#[doc = include_str!("../../../docs/guide/src/expiry.md")]
mod expiry {}
#[doc = include_str!("../../../docs/guide/src/locks.md")]
mod locks {}
#[doc = include_str!("../../../docs/guide/src/reads.md")]
mod reads {}
#[doc = include_str!("../../../docs/guide/src/testing.md")]
mod testing {}
#[doc = include_str!("../../../docs/guide/src/views.md")]
mod views {}
#[doc = include_str!("../../../docs/guide/src/writes.md")]
mod writes {}
