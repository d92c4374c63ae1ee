//! Requests from arbitrary bytes: every choice consumes the next bytes, and all bytes after the end are 0.

use std::time::Duration;

use artillery_proto::{
    ChainId, ClusterId, Expected, ReadMode, Sequence, Version,
    api::{
        CopyStep, DigestCursor, DigestQuery, DigestStep, HashKey, HashedQuery, Query, Requirement, ScanQuery,
        ScriptGroup, ScriptStep, ScriptWrite, Snapshot, Step, WatchQuery, Write,
    },
    message::request::{Operation, Request},
    types::update::{MAX_KEY, RequestKey},
};
use bytes::Bytes;

use super::seen::Seen;

/// The chain's history, as in the vectors of requests, `wire-1/request-*.hex`.
pub(super) const HISTORY: ClusterId = ClusterId(1 << 100);

/// A byte of 252 or more encodes the number of items minus this: around the limit of 4,096.
const ABOUT_THE_MOST: usize = 3844;

pub(super) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.left.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.left.split_off_first().copied().unwrap_or(0)
    }

    pub(super) fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// The next bytes, at most `len`.
    pub(super) fn take(&mut self, len: usize) -> &'a [u8] {
        self.left.split_off(..len.min(self.left.len())).unwrap_or_default()
    }

    fn is(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn some<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.is().then(|| make(self))
    }

    /// A number: mostly small, sometimes at an end of the range.
    fn number(&mut self) -> u64 {
        match self.byte() {
            255 => u64::MAX,
            254 => u64::MAX - 1,
            253 => 1 << 63,
            252 => u64::from(self.short()) << 24,
            240..252 => u64::from(self.short()),
            byte => u64::from(byte % 16),
        }
    }

    fn count(&mut self) -> u32 {
        match self.byte() {
            255 => u32::MAX,
            254 => u32::MAX - 1,
            253 => 4097,
            byte => u32::from(byte % 16),
        }
    }

    /// A key of one repeated letter, so that short keys are prefixes of many others.
    fn key(&mut self) -> Bytes {
        let byte = self.byte();
        let len = match byte >> 2 {
            class @ 0..40 => usize::from(class % 4),
            40..50 => usize::from(self.byte()),
            50..56 => usize::from(self.short()) % 4101,
            56..60 => MAX_KEY,
            _ => MAX_KEY + 1,
        };
        vec![b'a' + (byte & 3); len].into()
    }

    /// Many different keys, each one byte longer than the one before.
    fn rising_keys(&mut self) -> impl Iterator<Item = Bytes> + use<> {
        let (letter, most) = (b'a' + (self.byte() & 3), usize::from(self.byte()));
        (0..most).map(move |len| vec![letter; len].into())
    }

    fn value(&mut self) -> Bytes {
        let digits = ["0", "-1", "41", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e3", ""];
        match self.byte() {
            byte @ 0..64 => digits[usize::from(byte % 8)].into(),
            byte @ 64..160 => vec![byte; usize::from(byte % 16)].into(),
            byte @ 160..200 => vec![byte; 4 * usize::from(self.byte())].into(),
            byte => vec![byte; usize::from(self.short()) % 5001].into(),
        }
    }

    fn amount(&mut self) -> i64 {
        match self.byte() {
            255 => i64::MAX,
            254 => i64::MIN,
            byte => i64::from(byte.cast_signed()),
        }
    }

    /// A few items, the same few repeated many times, or about as many as are allowed.
    fn many<T: Clone>(&mut self, make: impl Fn(&mut Self) -> T) -> Vec<T> {
        let byte = self.byte();
        let few: Vec<T> = (0..byte % 12).map(|_| make(self)).collect();
        let most = match byte {
            252.. => ABOUT_THE_MOST + usize::from(byte),
            240..252 => usize::from(self.byte()),
            _ => return few,
        };
        few.iter().cycle().take(most).cloned().collect()
    }

    fn version(&mut self, seen: &Seen) -> Version {
        match self.byte() {
            255 => Version::new(u64::MAX, u64::MAX),
            254 => Version::NONE,
            253 => Version::new(self.number(), self.number()),
            byte => seen.version(byte),
        }
    }

    fn sequence(&mut self, seen: &Seen) -> Sequence {
        match self.byte() {
            byte @ 0..128 => seen.version(byte).sequence,
            _ => Sequence(self.number()),
        }
    }

    fn expected(&mut self, seen: &Seen) -> Expected {
        match self.byte() % 3 {
            0 => Expected::Absent,
            1 => Expected::Present,
            _ => Expected::Version(self.version(seen)),
        }
    }

    fn history(&mut self) -> Option<ClusterId> {
        match self.byte() {
            255 => Some(ClusterId(2)),
            byte => (byte & 1 == 1).then_some(HISTORY),
        }
    }

    pub(super) fn request(&mut self, seen: &Seen) -> Request {
        let deadline_ms = match self.byte() {
            255 => u32::MAX,
            byte @ 128..255 => u32::from(byte) * 64,
            byte => u32::from(byte),
        };
        let operation = if self.is() { self.write_operation(seen) } else { self.read_operation(seen) };
        Request { number: self.number(), chain: ChainId(0), deadline_ms, forwarded: false, operation }
    }

    fn read_operation(&mut self, seen: &Seen) -> Operation {
        let query = self.query(seen);
        let (mode, floor) = (self.mode(), self.some(|reader| reader.sequence(seen)));
        Operation::Read { query, mode, floor, history: self.history() }
    }

    fn mode(&mut self) -> ReadMode {
        match self.byte() % 4 {
            0 => ReadMode::Strong,
            1 => ReadMode::ThroughChain,
            2 => ReadMode::Eventual,
            _ => ReadMode::Bounded { versions: self.count(), age: Duration::from_millis(self.number()) },
        }
    }

    fn query(&mut self, seen: &Seen) -> Query {
        match self.byte() % 8 {
            0 => Query::Key(self.key()),
            1 => Query::Keys(self.many(Self::key)),
            2 => Query::Scan(self.scan(seen)),
            3 | 4 => {
                let (prefix, after) = (self.key(), self.some(|reader| reader.sequence(seen)));
                Query::Changes(WatchQuery { prefix, after, shown: self.count() })
            }
            6 => Query::Copy(match self.byte() % 3 {
                0 => CopyStep::Begin,
                1 => CopyStep::Records { behind: self.some(|reader| reader.key()), floor: self.sequence(seen) },
                _ => CopyStep::Updates { after: self.sequence(seen) },
            }),
            5 => {
                let (prefix, key) = (self.key(), HashKey([self.byte(); 16]));
                let step = if self.is() {
                    DigestStep::Begin
                } else {
                    let number = seen.snapshot(self.byte());
                    let from = if self.is() { seen.next_key() } else { self.key() };
                    DigestStep::Part {
                        number,
                        at: self.sequence(seen),
                        from: DigestCursor { key: from, pieces: self.count() },
                    }
                };
                Query::Digest(Box::new(DigestQuery { prefix, key, step }))
            }
            _ => {
                let from = if self.is() { seen.position() } else { self.number() };
                Query::Hashed(HashedQuery { from, limit: self.count() })
            }
        }
    }

    fn scan(&mut self, seen: &Seen) -> ScanQuery {
        let prefix = self.key();
        let after = self.some(|reader| if reader.is() { seen.next_key() } else { reader.key() });
        let snapshot = match self.byte() % 5 {
            0 => Snapshot::No,
            1 | 2 => Snapshot::Begin,
            3 => Snapshot::Of(seen.snapshot(self.byte())),
            _ => Snapshot::Of(self.number()),
        };
        ScanQuery { prefix, after, limit: self.count(), snapshot }
    }

    fn write_operation(&mut self, seen: &Seen) -> Operation {
        let request = self.some(|reader| RequestKey {
            session: if reader.byte() % 8 > 0 { seen.session(reader.byte()) } else { reader.version(seen) },
            number: reader.number(),
            lowest: if reader.is() { reader.number() } else { 0 },
        });
        let history = self.history();
        if request.is_some() && !seen.has_sessions() {
            return Operation::Write { request: None, history, write: Write::OpenSession };
        }
        Operation::Write { request, history, write: self.write(seen) }
    }

    fn write(&mut self, seen: &Seen) -> Write {
        match self.byte() % 16 {
            0 | 1 => Write::put(self.key(), self.value()),
            2 => Write::Delete { key: self.key() },
            3 => {
                let (key, expected) = (self.key(), self.version(seen));
                Write::compare_and_swap(key, expected, self.some(Self::value))
            }
            4 | 5 => Write::append(self.key(), self.value()),
            6 => Write::increment(self.key(), self.amount()),
            7 | 8 => Write::GetDelete { key: self.key() },
            9 if self.is() => {
                let value = self.value();
                Write::Batch(self.rising_keys().map(|key| Step::put(key, value.clone())).collect())
            }
            9 => Write::Batch(self.many(|reader| reader.step(seen))),
            10..13 => {
                let require = self.many(|reader| reader.requirement(seen));
                Write::Script(ScriptWrite { require, groups: self.groups(seen) })
            }
            13 | 14 => Write::OpenSession,
            _ => Write::Resolve,
        }
    }

    fn step(&mut self, seen: &Seen) -> Step {
        let key = self.key();
        match self.byte() % 5 {
            0 => Step::Require { key, expected: self.expected(seen) },
            1 => Step::put(key, self.value()),
            2 => Step::Delete { key },
            3 => Step::append(key, self.value()),
            _ => Step::increment(key, self.amount()),
        }
    }

    fn requirement(&mut self, seen: &Seen) -> Requirement {
        Requirement { key: self.key(), expected: self.expected(seen) }
    }

    /// Groups of a script. If there are many, they are empty: each could otherwise be nearly as large as a request may
    /// be.
    fn groups(&mut self, seen: &Seen) -> Vec<ScriptGroup> {
        match self.byte() {
            byte @ 252.. => vec![ScriptGroup::default(); ABOUT_THE_MOST + usize::from(byte)],
            240..252 => {
                let steps = self.rising_keys().map(|key| ScriptStep::Get { key }).collect();
                vec![ScriptGroup { require: Vec::new(), steps }]
            }
            byte => (0..byte % 4).map(|_| self.group(seen)).collect(),
        }
    }

    fn group(&mut self, seen: &Seen) -> ScriptGroup {
        let require = self.many(|reader| reader.requirement(seen));
        ScriptGroup { require, steps: self.many(Self::script_step) }
    }

    fn script_step(&mut self) -> ScriptStep {
        let key = self.key();
        match self.byte() % 7 {
            0 => ScriptStep::Get { key },
            1 => ScriptStep::Length { key },
            2 => ScriptStep::put(key, self.value()),
            3 => ScriptStep::Delete { key },
            4 => ScriptStep::GetDelete { key },
            5 => ScriptStep::append(key, self.value()),
            _ => ScriptStep::increment(key, self.amount()),
        }
    }
}
