//! Typed maps: the calls of a [`Map`](crate::Map), and the encoding of its keys and values.
//!
//! A map is the set of keys that begin with its name and a zero byte. The entry's key follows, encoded by an
//! order-preserving codec ([`key`]): so a scan returns entries in the order of their keys, and the leading fields of a
//! key are a prefix. A [`ValueCodec`] encodes the value.

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
mod view;
mod watch;

pub use calls::{Get, MapWrite};
pub use error::MapError;
pub use key::{AsKey, KeyError, KeySpace, Leading, NameError};
pub use scan::{MapEntry, MapScan};
pub use update::MapUpdate;
pub use value::{Bincode, Decimal, ValueCodec, ValueError};
pub use view::{MapView, MapViewChange, OpenMapView};
pub use watch::{MapChange, MapWatch, OpenMapWatch};
