//! Keys, and the writes to each: enough to check every strong read.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use bytes::Bytes;

use super::{Failed, stats::Window};
use crate::{VALUE, key};

const WORD: usize = 8;

/// The keys of one cluster, and the numbers of the writes to each. A key has one writer at a time, which waits for each
/// write. So its numbers ascend, and a strong read must return the last number acknowledged before it began, or a later
/// one.
#[derive(Debug)]
pub struct Book {
    names: Vec<Bytes>,
    value_bytes: usize,
    issued: Vec<AtomicU64>,
    acknowledged: Vec<AtomicU64>,
}

/// The work of one caller.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// The index of the caller among the writers. It writes the keys whose number modulo `writers` is this index.
    pub writer: usize,
    /// The number of writers.
    pub writers: usize,
    /// Percentage of reads. The other operations are writes.
    pub reads_percent: u32,
    /// The seed of random choices.
    pub seed: u64,
    /// The time of the sample.
    pub window: Window,
}

/// An operation on the key with this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Read the key.
    Read(usize),
    /// Give the key its next value.
    Write(usize),
}

impl Ask {
    /// Whether the operation only reads.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Read(_))
    }
}

/// An endless sequence of operations.
#[derive(Debug)]
pub struct Asks {
    turn: Turn,
    keys: usize,
    chance: u64,
}

impl Book {
    /// `keys` keys without values.
    pub fn new(keys: usize) -> Arc<Self> {
        Self::with((0..keys).map(key).collect(), VALUE)
    }

    /// Keys with these names, without values. Values have at least 16 bytes.
    pub fn with(names: Vec<Bytes>, value_bytes: usize) -> Arc<Self> {
        let zeroes = || names.iter().map(|_| AtomicU64::new(0)).collect();
        let (issued, acknowledged, value_bytes) = (zeroes(), zeroes(), value_bytes.max(2 * WORD));
        Arc::new(Self { names, value_bytes, issued, acknowledged })
    }

    /// The number of keys.
    pub fn keys(&self) -> usize {
        self.names.len()
    }

    /// The name of a key.
    pub fn name(&self, at: usize) -> &Bytes {
        &self.names[at]
    }

    /// The number and value of the next write.
    pub fn issue(&self, at: usize) -> (u64, Bytes) {
        let number = self.issued[at].fetch_add(1, SeqCst) + 1;
        (number, value(at as u64, number, self.value_bytes))
    }

    /// Records that this write was acknowledged.
    pub fn acknowledge(&self, at: usize, number: u64) {
        self.acknowledged[at].store(number, SeqCst);
    }

    /// The lowest number that a read may return if it begins now.
    pub fn floor(&self, at: usize) -> u64 {
        self.acknowledged[at].load(SeqCst)
    }

    /// Checks all bytes that a read returned.
    ///
    /// # Errors
    /// A description of the mismatch.
    pub fn check(&self, at: usize, floor: u64, found: Option<&Bytes>) -> Result<(), Failed> {
        let name = String::from_utf8_lossy(&self.names[at]);
        let Some(found) = found else { return Err(format!("{name} is absent").into()) };
        let number = number(at as u64, found, self.value_bytes)
            .ok_or_else(|| format!("{name} holds a value that isn't its own"))?;
        let issued = self.issued[at].load(SeqCst);
        if (floor.max(1)..=issued).contains(&number) {
            return Ok(());
        }
        Err(format!("{name} holds write {number}; {floor} was acknowledged before, {issued} were started").into())
    }

    /// The operations of a turn.
    pub fn asks(&self, turn: Turn) -> Asks {
        Asks { turn, keys: self.keys(), chance: turn.seed.wrapping_mul(0xd134_2543_de82_ef95) ^ turn.writer as u64 }
    }
}

/// A unique value: key, number, and words made of both. The last word is truncated to fit.
fn value(at: u64, number: u64, len: usize) -> Bytes {
    let mut value = Vec::with_capacity(len + WORD);
    let mix = mix(at, number);
    for word in 0..len.div_ceil(WORD) as u64 {
        let word = match word {
            0 => at,
            1 => number,
            _ => mix ^ word,
        };
        value.extend_from_slice(&word.to_le_bytes());
    }
    value.truncate(len);
    value.into()
}

/// The number of the write to `at` that produced this value, if any did.
fn number(at: u64, value: &[u8], len: usize) -> Option<u64> {
    let (words, rest) = value.as_chunks::<WORD>();
    let number = u64::from_le_bytes(*words.get(1)?);
    let mix = mix(at, number);
    let body = words[2..].iter().zip(2u64..).all(|(word, n)| u64::from_le_bytes(*word) == mix ^ n);
    let last = (mix ^ words.len() as u64).to_le_bytes();
    let is_whole = value.len() == len && u64::from_le_bytes(words[0]) == at;
    (is_whole && body && last.starts_with(rest)).then_some(number)
}

fn mix(at: u64, number: u64) -> u64 {
    scramble(scramble(at) ^ number)
}

/// The last step of SplitMix64.
pub(crate) fn scramble(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

impl Asks {
    /// The next operation: a read of any key, or a write to one of the caller's keys.
    pub fn next_ask(&mut self) -> Ask {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let chance = scramble(self.chance);
        let (share, chosen) = ((chance >> 32) as u32 % 100, chance as u32 as usize);
        if share < self.turn.reads_percent {
            return Ask::Read(chosen % self.keys);
        }
        let own = self.keys / self.turn.writers;
        Ask::Write(self.turn.writer + self.turn.writers * (chosen % own))
    }
}

#[cfg(test)]
mod tests {
    use artillery_core::Timestamp;

    use super::*;

    fn turn(writer: usize, writers: usize, reads_percent: u32) -> Turn {
        let window = Window { from: Timestamp::ZERO, until: Timestamp::ZERO };
        Turn { writer, writers, reads_percent, seed: 1, window }
    }

    #[test]
    fn a_read_shows_an_acknowledged_write_or_a_later_one() {
        let book = Book::new(10);
        let (first, old) = book.issue(3);
        book.acknowledge(3, first);
        let (_, new) = book.issue(3);
        let floor = book.floor(3);
        assert!(book.check(3, floor, Some(&old)).is_ok());
        assert!(book.check(3, floor, Some(&new)).is_ok(), "in flight: it may already be applied");
        book.acknowledge(3, 2);
        let stale = book.check(3, book.floor(3), Some(&old)).unwrap_err().to_string();
        assert!(stale.contains("write 1") && stale.contains("2 was acknowledged"), "{stale}");
        assert!(book.check(3, 0, Some(&value(3, 3, VALUE))).is_err(), "a value that was never written");
        assert!(book.check(3, 0, None).is_err());
    }

    #[test]
    fn a_value_is_of_its_key_and_whole() {
        let book = Book::new(10);
        for at in 0..10 {
            book.issue(at);
        }
        let good = value(3, 1, VALUE);
        assert_eq!(good.len(), VALUE);
        assert!(book.check(4, 0, Some(&good)).is_err(), "another key's");
        assert!(book.check(3, 0, Some(&good.slice(..VALUE - 1))).is_err());
        assert!(book.check(3, 0, Some(&Bytes::from_static(b"x"))).is_err());
        for at in [0, 8, 16, VALUE / 2, VALUE - 1] {
            let mut bad = good.to_vec();
            bad[at] ^= 1;
            assert!(book.check(3, 0, Some(&bad.into())).is_err(), "byte {at}");
        }
    }

    #[test]
    fn values_may_have_any_length() {
        for len in [16, 17, 500, 5000, 5003] {
            let book = Book::with(vec![key(0)], len);
            let (_, good) = book.issue(0);
            assert_eq!(good.len(), len);
            assert!(book.check(0, 0, Some(&good)).is_ok());
            let mut bad = good.to_vec();
            bad[len - 1] ^= 1;
            assert!(book.check(0, 0, Some(&bad.into())).is_err(), "{len}");
        }
    }

    #[test]
    fn callers_write_only_own_keys_at_the_set_share() {
        let book = Book::new(1000);
        let (mut writes, mut reads) = (0, 0);
        for writer in 0..7 {
            let mut asks = book.asks(turn(writer, 7, 90));
            for _ in 0..1000 {
                match asks.next_ask() {
                    Ask::Write(at) => {
                        assert!(at < 1000 && at % 7 == writer);
                        writes += 1;
                    }
                    Ask::Read(at) => {
                        assert!(at < 1000);
                        reads += 1;
                    }
                }
            }
        }
        assert!((600..800).contains(&writes) && writes + reads == 7000, "{writes}");
        let mut asks = book.asks(turn(0, 1, 100));
        assert!((0..1000).all(|_| asks.next_ask().is_read()));
    }
}
