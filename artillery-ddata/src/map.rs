//! Typed maps: how their keys and values become bytes, and the [`Map`](crate::Map) that does it.
//!
//! A map is the set of keys that begin with its name and a zero byte. What follows is the key by an order-preserving
//! codec ([`key`]), so that a scan meets the keys in their own order and leading fields are a prefix; the value is
//! encoded by any [`ValueCodec`].

mod calls;
mod error;
pub(crate) mod handle;
#[doc(hidden)]
pub mod key;
mod scan;
#[cfg(test)]
mod tests;
mod update;
mod value;

pub use calls::{CompareAndSwap, Delete, Get, Increment, Put};
pub use error::MapError;
pub use key::{AsKey, KeyError, KeySpace, Leading, NameError};
pub use scan::{MapEntry, MapScan};
pub use update::MapUpdate;
pub use value::{Bincode, Decimal, ValueCodec, ValueError};
