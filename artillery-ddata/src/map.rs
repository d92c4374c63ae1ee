//! Typed maps: how their keys and values become bytes.
//!
//! A map is the set of keys that begin with its name and a zero byte. What follows is the key by an order-preserving
//! codec ([`key`]), so that a scan meets the keys in their own order and leading fields are a prefix; the value is
//! encoded by any [`ValueCodec`].

pub mod key;
pub mod value;

pub use key::{AsKey, KeyError, KeySpace, Leading, NameError};
pub use value::{Bincode, Decimal, ValueCodec, ValueError};
