//! Digests: sums over all records of a prefix at one point of the history, which show whether copies are equal.

use std::hash::Hasher;

use bytes::Bytes;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::{Expiry, Sequence, Version, store::Held};

/// The key of the hash. It must be random: to a party that knows it, two sets of records with equal sums are easy to find.
#[derive(Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct HashKey(pub [u8; 16]);

/// The values are hashed in pieces of this many bytes, so that a part of a digest may end within a value.
pub const PIECE: usize = 256 << 10;

/// One step of a digest.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DigestQuery {
    /// Only keys with this prefix.
    pub prefix: Bytes,
    pub key: HashKey,
    pub step: DigestStep,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DigestStep {
    /// The member keeps its present point of the history and all later ones, and names them by a number.
    Begin,
    /// Reads the next part. The last part ends what `Begin` started.
    Part {
        /// The number that this member gave in its reply to `Begin`.
        number: u64,
        /// The point to read at: that of `Begin`, or a later one. The member waits until it has reached it.
        at: Sequence,
        from: DigestCursor,
    },
}

/// Where the next part of a digest begins.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DigestCursor {
    pub key: Bytes,
    /// The number of pieces of this key's value that earlier parts contain; [`u32::MAX`]: all of them.
    pub pieces: u32,
}

/// The reply to one step of a digest.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DigestReply {
    /// The number of the points that the member keeps.
    pub number: u64,
    /// The point that the sums show; after [`Begin`](DigestStep::Begin), the first one kept.
    pub as_of: Sequence,
    /// The sums of this part. They are zero after `Begin`.
    pub sums: Sums,
    /// Where the digest continues; `None`: this was the last part.
    pub next: Option<DigestCursor>,
}

/// Sums over a set of records, in any order. Sets of records are equal if their sums are, except with a negligible
/// probability, as long as the hash key is random and unknown to the writers of the records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct Sums {
    /// The number of keys with values.
    pub records: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// The sum of the hashes of keys and values.
    pub contents: u128,
    /// The sum of the hashes of keys, values, versions and expiries.
    pub versions: u128,
}

impl Sums {
    /// Adds a whole record. A tombstone adds nothing.
    pub fn add_record(&mut self, hash: HashKey, key: &[u8], held: &Held) {
        let pieces = held.value.as_ref().map_or(0, pieces);
        (0..pieces).for_each(|piece| self.add_piece(hash, key, held, piece));
    }

    /// Adds one piece of a record's value. The first one adds the record itself to the counts.
    pub fn add_piece(&mut self, hash: HashKey, key: &[u8], held: &Held, piece: u32) {
        let Some(value) = &held.value else { return };
        let start = (piece as usize).saturating_mul(PIECE).min(value.len());
        let bytes = &value[start..value.len().min(start + PIECE)];
        let mut hasher = SipHasher24::new_with_key(&hash.0);
        hasher.write(&(key.len() as u64).to_le_bytes());
        hasher.write(key);
        hasher.write(&(value.len() as u64).to_le_bytes());
        hasher.write(&piece.to_le_bytes());
        hasher.write(bytes);
        self.contents = self.contents.wrapping_add(hasher.finish128().as_u128());
        let Version { epoch, sequence } = held.version;
        hasher.write(&epoch.0.to_le_bytes());
        hasher.write(&sequence.0.to_le_bytes());
        hasher.write(&held.expires.map_or(0, Expiry::chain_time).to_le_bytes());
        self.versions = self.versions.wrapping_add(hasher.finish128().as_u128());
        if piece == 0 {
            self.records += 1;
            self.bytes += (key.len() + value.len()) as u64;
        }
    }

    /// Removes a whole record that was added before.
    pub fn remove_record(&mut self, hash: HashKey, key: &[u8], held: &Held) {
        let mut removed = Self::default();
        removed.add_record(hash, key, held);
        self.records = self.records.wrapping_sub(removed.records);
        self.bytes = self.bytes.wrapping_sub(removed.bytes);
        self.contents = self.contents.wrapping_sub(removed.contents);
        self.versions = self.versions.wrapping_sub(removed.versions);
    }

    /// Adds the sums of other records.
    pub fn add(&mut self, other: &Self) {
        self.records = self.records.wrapping_add(other.records);
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.contents = self.contents.wrapping_add(other.contents);
        self.versions = self.versions.wrapping_add(other.versions);
    }
}

/// The number of pieces of a value. An empty value has one.
pub fn pieces(value: &Bytes) -> u32 {
    u32::try_from(value.len().div_ceil(PIECE)).unwrap_or(u32::MAX - 1).max(1)
}

impl std::fmt::Debug for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// 32 hexadecimal digits.
impl std::fmt::Display for HashKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// The text isn't 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("32 hexadecimal digits are expected")]
pub struct NotAHashKey;

impl std::str::FromStr for HashKey {
    type Err = NotAHashKey;

    fn from_str(text: &str) -> Result<Self, NotAHashKey> {
        let digits = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = digits.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(|number| Self(number.to_be_bytes())).ok_or(NotAHashKey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;

    const KEY: HashKey = HashKey([7; 16]);

    fn held(sequence: u64, value: &'static [u8]) -> Held {
        Held::new(Version { epoch: Epoch(1), sequence: Sequence(sequence) }, Some(Bytes::from_static(value)))
    }

    fn of(records: &[(&[u8], Held)]) -> Sums {
        let mut sums = Sums::default();
        records.iter().for_each(|(key, held)| sums.add_record(KEY, key, held));
        sums
    }

    #[test]
    fn sums_depend_on_keys_values_and_hash_key_but_not_on_order() {
        let (a, b): ((&[u8], Held), _) = ((b"a", held(1, b"one")), (b"b" as &[u8], held(2, b"two")));
        let both = of(&[a.clone(), b.clone()]);
        assert_eq!(both, of(&[b.clone(), a.clone()]));
        assert_eq!((both.records, both.bytes), (2, 8));
        assert_ne!(both.contents, of(&[(b"a", held(1, b"two")), (b"b", held(2, b"one"))]).contents);
        // The length of the key is hashed.
        assert_ne!(of(&[(b"ab", held(1, b"c"))]).contents, of(&[(b"a", held(1, b"bc"))]).contents);
        let mut other = Sums::default();
        other.add_record(HashKey([8; 16]), a.0, &a.1);
        assert_ne!(other.contents, of(&[a]).contents);
    }

    #[test]
    fn only_one_of_the_sums_depends_on_version_and_expiry() {
        let (one, two) = (of(&[(b"a", held(1, b"v"))]), of(&[(b"a", held(2, b"v"))]));
        let expiring = of(&[(b"a", Held { expires: Some(Expiry::at(9)), ..held(1, b"v") })]);
        assert_eq!((one.contents, one.contents), (two.contents, expiring.contents));
        assert!(one.versions != two.versions && one.versions != expiring.versions);
    }

    #[test]
    fn pieces_of_a_value_add_up_to_it() {
        let value = Bytes::from(vec![5; 2 * PIECE + 3]);
        assert_eq!([pieces(&value), pieces(&Bytes::new()), pieces(&value.slice(..PIECE))], [3, 1, 1]);
        let held = Held { value: Some(value), ..held(3, b"") };
        let (whole, mut parts) = (of(&[(b"k", held.clone())]), Sums::default());
        for piece in [2, 0, 1] {
            let mut part = Sums::default();
            part.add_piece(KEY, b"k", &held, piece);
            parts.add(&part);
        }
        assert_eq!(whole, parts);
        assert_eq!(whole.records, 1);
    }

    #[test]
    fn a_hash_key_is_32_hexadecimal_digits() {
        let key = HashKey([0xAB; 16]);
        assert_eq!((key.to_string().parse(), key.to_string()), (Ok(key), "ab".repeat(16)));
        for bad in ["", "ab", &"+1".repeat(16), &"ab".repeat(17), &"ä".repeat(16)] {
            assert_eq!(bad.parse::<HashKey>(), Err(NotAHashKey), "{bad}");
        }
    }

    #[test]
    fn a_removed_record_leaves_no_trace_and_a_tombstone_adds_nothing() {
        let mut sums = of(&[(b"a", held(1, b"one")), (b"b", held(2, b"two"))]);
        sums.add_record(KEY, b"c", &Held::new(Version::NONE, None));
        sums.remove_record(KEY, b"a", &held(1, b"one"));
        assert_eq!(sums, of(&[(b"b", held(2, b"two"))]));
    }
}
