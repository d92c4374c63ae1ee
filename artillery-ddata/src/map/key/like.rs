//! Types that can replace a key type, since they have the same encoding.

use serde::Serialize;

/// A type with the encoding of `K`, with which a `K` can be looked up: `K` itself, `str` for `String`, `[T]` for
/// `Vec<T>`.
///
/// `Borrow` isn't enough: an array borrows as a slice, which has another encoding. Implement this trait only for types
/// that serde serializes exactly like `K`; otherwise entries won't be found.
pub trait AsKey<K>: Serialize {}

impl<K: Serialize> AsKey<K> for K {}
impl AsKey<String> for str {}
impl AsKey<String> for &str {}
impl<T: Serialize> AsKey<Vec<T>> for [T] {}
impl<B: Serialize> AsKey<(String, B)> for (&str, B) {}
impl<A: Serialize> AsKey<(A, String)> for (A, &str) {}
impl AsKey<(String, String)> for (&str, &str) {}

/// The first `FIELDS` fields of a longer tuple `K`: a single field as itself, several as a tuple.
///
/// The compiler infers `FIELDS`. Implement this trait to scan keys of your own type by their first fields, and only for
/// types that serde serializes exactly like these fields:
///
/// ```
/// use artillery_ddata::map::{KeySpace, Leading};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Order { customer: u32, number: u64 }
/// impl Leading<Order, 1> for u32 {}
///
/// let orders = KeySpace::<Order>::new("orders")?;
/// assert!(orders.key(&Order { customer: 7, number: 1 })?.starts_with(&orders.leading(&7)?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Leading<K, const FIELDS: usize>: Serialize {}

macro_rules! leading_one {
    ($first:ident, $($rest:ident),+) => {
        impl<Query: AsKey<$first> + ?Sized, $first, $($rest),+> Leading<($first, $($rest),+), 1> for Query {}
    };
}

macro_rules! leading_some {
    ($fields:literal: $($field:ident by $query:ident),+; $($rest:ident),+) => {
        impl<$($query: AsKey<$field>,)+ $($field,)+ $($rest),+>
            Leading<($($field,)+ $($rest),+), $fields> for ($($query),+) {}
    };
}

leading_one!(A, B);
leading_one!(A, B, C);
leading_one!(A, B, C, D);
leading_one!(A, B, C, D, E);
leading_one!(A, B, C, D, E, F);
leading_some!(2: A by P, B by Q; C);
leading_some!(2: A by P, B by Q; C, D);
leading_some!(2: A by P, B by Q; C, D, E);
leading_some!(2: A by P, B by Q; C, D, E, F);
leading_some!(3: A by P, B by Q, C by R; D);
leading_some!(3: A by P, B by Q, C by R; D, E);
leading_some!(3: A by P, B by Q, C by R; D, E, F);
leading_some!(4: A by P, B by Q, C by R, D by S; E);
leading_some!(4: A by P, B by Q, C by R, D by S; E, F);
leading_some!(5: A by P, B by Q, C by R, D by S, E by T; F);
