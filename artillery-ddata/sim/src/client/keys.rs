//! The keys of a world, their kinds, and the encoding of values.

use artillery_proto::store::position;
use bytes::{BufMut, Bytes, BytesMut};

use crate::history::Value;

/// The kind of values that a key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    /// Written by put, compare-and-swap, delete and get-and-delete.
    Register,
    /// Written by append.
    List,
    /// Written by increment.
    Counter,
}

/// The keys of a world: registers first, then lists, then counters, distributed over its chains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys {
    /// Number of registers.
    pub registers: u32,
    /// Number of lists.
    pub lists: u32,
    /// Number of counters.
    pub counters: u32,
    /// Number of chains.
    pub chains: usize,
}

pub(super) const PREFIX: &str = "key-";

/// Length of an item of a list, in bytes.
const ITEM: usize = 12;

impl Keys {
    /// The number of keys.
    pub fn len(&self) -> usize {
        (self.registers + self.lists + self.counters) as usize
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The kind of a key.
    pub fn kind(&self, key: u32) -> KeyKind {
        match key {
            key if key < self.registers => KeyKind::Register,
            key if key < self.registers + self.lists => KeyKind::List,
            _ => KeyKind::Counter,
        }
    }

    /// The chain of a key.
    pub fn chain(&self, key: u32) -> usize {
        key as usize % self.chains
    }

    /// The keys of a chain in numeric order. In a world with at most 100 keys this is their byte order.
    pub fn of_chain(&self, chain: usize) -> impl DoubleEndedIterator<Item = u32> + use<> {
        let keys = *self;
        (0..keys.len() as u32).filter(move |&key| keys.chain(key) == chain)
    }
}

/// The name of a key in requests.
pub fn key_bytes(key: u32) -> Bytes {
    Bytes::from(format!("{PREFIX}{key:02}"))
}

/// The key with these bytes; `None` if they are not a key of any world.
pub fn key_of(bytes: &[u8]) -> Option<u32> {
    let key = std::str::from_utf8(bytes).ok()?.strip_prefix(PREFIX)?.parse().ok()?;
    (key_bytes(key) == bytes).then_some(key)
}

/// The position of a key in hash order. There are only five positions, so that several keys share one.
pub fn place(key: &[u8]) -> u64 {
    position(key) % 5 + 1
}

/// Encodes a value with its key. The padding depends on the value, too, so that mixed-up bytes are detected.
pub(super) fn encode(key: u32, value: Value, padding: usize) -> Bytes {
    let mut bytes = BytesMut::with_capacity(ITEM + padding);
    bytes.put_u64_le(value.0);
    bytes.put_u32_le(key);
    bytes.put_bytes(fill(value), padding);
    bytes.freeze()
}

/// Decodes a value. `None` if the bytes are damaged or belong to another key.
pub(super) fn decode(key: u32, bytes: &[u8]) -> Option<Value> {
    let (value, rest) = bytes.split_first_chunk::<8>()?;
    let (owner, padding) = rest.split_first_chunk::<4>()?;
    let value = Value(u64::from_le_bytes(*value));
    (u32::from_le_bytes(*owner) == key && padding.iter().all(|&byte| byte == fill(value))).then_some(value)
}

/// The items of a list, which have no padding. `None` if the bytes are damaged or belong to another key.
pub(super) fn decode_list(key: u32, bytes: &[u8]) -> Option<Vec<Value>> {
    bytes.chunks(ITEM).map(|item| decode(key, item)).collect()
}

pub(super) fn items(length: u64) -> Option<u64> {
    length.is_multiple_of(ITEM as u64).then_some(length / ITEM as u64)
}

fn fill(value: Value) -> u8 {
    (value.0 % 251) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_its_key_and_is_whole() {
        let bytes = encode(3, Value(77), 5);
        assert_eq!(decode(3, &bytes), Some(Value(77)));
        assert_eq!(decode(4, &bytes), None);
        let mut torn = bytes.to_vec();
        *torn.last_mut().unwrap() ^= 1;
        assert_eq!(decode(3, &torn), None);
        assert_eq!(decode(3, &bytes[..10]), None);
        let list = [encode(3, Value(1), 0), encode(3, Value(2), 0)].concat();
        assert_eq!(decode_list(3, &list), Some(vec![Value(1), Value(2)]));
        assert_eq!(decode_list(3, &list[..20]), None);
        assert_eq!((items(24), items(20)), (Some(2), None));
    }

    #[test]
    fn keys_are_found_by_their_bytes() {
        let keys = Keys { registers: 3, lists: 1, counters: 1, chains: 2 };
        assert_eq!(keys.of_chain(1).collect::<Vec<_>>(), [1, 3]);
        let kinds: Vec<KeyKind> = (0..5).map(|key| keys.kind(key)).collect();
        use KeyKind::{Counter, List, Register};
        assert_eq!(kinds, [Register, Register, Register, List, Counter]);
        assert_eq!(key_of(&key_bytes(42)), Some(42));
        assert_eq!(key_of(b"key-7"), None);
    }
}
