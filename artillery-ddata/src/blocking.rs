//! Blocking calls, for threads without a runtime.
//!
//! A [`BlockingKv`] has the calls of a [`Kv`](crate::Kv) under the same names, with the settings of the handle. To make
//! a call with its own settings, or one of a typed map, pass it to [`BlockingKv::wait`]. A scan is an ordinary iterator
//! over its entries.
//!
//! ```no_run
//! use artillery_ddata::{Map, blocking::Client};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder().cluster("shop").secret("sixteen bytes or more").seed("db-1.example:7400").connect()?;
//! let kv = client.kv();
//! kv.put("stock/7", "4")?;
//! for entry in kv.scan("stock/") {
//!     println!("{:?}", entry?.key);
//! }
//! let visits: Map<String, u32> = kv.kv().map("visits")?;
//! kv.wait(visits.update("ann", |n| Some(n.unwrap_or(0) + 1)))?;
//! # Ok(())
//! # }
//! ```
//!
//! Don't use it in asynchronous code, where a blocked thread would stall all of its tasks. A call within a runtime,
//! including its pool of blocking threads, is refused with [`NotApplied::WithinRuntime`](crate::error::NotApplied).
//! There, await the calls of [`Kv`](crate::Kv).

mod client;
mod kv;
mod runtime;
#[cfg(test)]
mod tests;

pub use client::{Client, ClientBuilder, StartError};
pub use kv::{BlockingKv, Entries};
