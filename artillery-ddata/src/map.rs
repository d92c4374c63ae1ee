//! Typed maps: how their keys and values become bytes, and with feature `net` the [`Map`] that does it.
//!
//! A map is the set of keys that begin with its name and a zero byte. What follows is the key by an order-preserving
//! codec ([`key`]), so that a scan meets the keys in their own order and leading fields are a prefix; the value is
//! encoded by any [`ValueCodec`].

#[cfg(feature = "net")]
mod calls;
#[cfg(feature = "net")]
mod error;
#[cfg(feature = "net")]
mod handle;
pub mod key;
#[cfg(feature = "net")]
mod scan;
#[cfg(all(test, feature = "net"))]
mod tests;
#[cfg(feature = "net")]
mod update;
pub mod value;

#[cfg(feature = "net")]
pub use calls::{CompareAndSwap, Delete, Get, Increment, Put};
#[cfg(feature = "net")]
pub use error::MapError;
#[cfg(feature = "net")]
pub use handle::Map;
pub use key::{AsKey, KeyError, KeySpace, Leading, NameError};
#[cfg(feature = "net")]
pub use scan::{MapEntry, MapScan};
#[cfg(feature = "net")]
pub use update::Update;
pub use value::{Bincode, Decimal, ValueCodec, ValueError};
