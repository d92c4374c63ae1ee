//! Remembers the content of replies for later requests, and checks the limits on replies.

use std::collections::BTreeMap;

use artillery_proto::{
    Computed, Refusal, StepOutcome, Version,
    api::{DigestReply, HashedReply, MultiGetReply, ReadReply, Reply, ScanReply, WatchReply, WriteReply},
    replica::ReplicaSettings,
    store::{Held, ScanRecord},
    types::update::MAX_KEY,
};
use bytes::Bytes;

/// Bytes of an entry of a reply without its key and its value.
const ENTRY: usize = 64;

#[derive(Default)]
pub(super) struct Seen {
    versions: Vec<Version>,
    sessions: Vec<Version>,
    snapshots: Vec<u64>,
    next_key: Bytes,
    position: u64,
}

/// Picks the newest value half of the time, the one before it a quarter of the time, and so on.
fn pick<T: Copy>(from: &[T], at: u8) -> Option<T> {
    from.iter().rev().nth(at.leading_ones() as usize).or(from.first()).copied()
}

impl Seen {
    pub(super) fn version(&self, at: u8) -> Version {
        pick(&self.versions, at).unwrap_or_default()
    }

    pub(super) fn session(&self, at: u8) -> Version {
        pick(&self.sessions, at).unwrap_or_default()
    }

    pub(super) fn has_sessions(&self) -> bool {
        !self.sessions.is_empty()
    }

    pub(super) fn snapshot(&self, at: u8) -> u64 {
        pick(&self.snapshots, at).unwrap_or_default()
    }

    pub(super) fn next_key(&self) -> Bytes {
        self.next_key.clone()
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn note(&mut self, reply: &Reply, opens_session: bool) {
        match reply {
            Reply::Committed(WriteReply { version, .. }) if opens_session => self.sessions.push(*version),
            Reply::Committed(WriteReply { version, .. }) | Reply::Conflict { version, .. } => {
                self.versions.push(*version);
            }
            Reply::Read(ReadReply { held, .. }) => self.versions.extend(held.as_ref().map(|held| held.version)),
            Reply::Page(ScanReply { next, snapshot, .. }) => {
                self.next_key = next.clone().unwrap_or_default();
                self.snapshots.extend(snapshot);
            }
            Reply::Changes(WatchReply { records, .. }) => {
                self.versions.extend(records.last().map(|record| record.held.version));
            }
            Reply::Hashed(HashedReply { next, .. }) => self.position = *next,
            Reply::Digest(part) => {
                let DigestReply { number, next, .. } = &**part;
                self.next_key = next.as_ref().map_or_else(Bytes::new, |next| next.key.clone());
                self.snapshots.push(*number);
            }
            Reply::Cut(_) | Reply::Copied(_) | Reply::Refused(_) | Reply::Expired => {}
        }
    }
}

/// The number of replies of each kind.
pub(crate) type Counts = BTreeMap<&'static str, u64>;

pub(super) fn kind(reply: &Reply) -> &'static str {
    match reply {
        Reply::Committed(WriteReply { result, .. }) => match result {
            Computed::Nothing => "committed",
            Computed::Ran(_) => "ran",
            Computed::RanForgotten | Computed::TookForgotten(_) => "forgotten",
            _ => "computed",
        },
        Reply::Conflict { .. } => "conflict",
        Reply::Read(_) => "read",
        Reply::Cut(_) => "cut",
        Reply::Page(ScanReply { next: None, .. }) => "last page",
        Reply::Page(_) => "page",
        Reply::Changes(WatchReply { records, .. }) if records.is_empty() => "no changes",
        Reply::Changes(WatchReply { shown: 1.., .. }) => "part of changes",
        Reply::Changes(_) => "changes",
        Reply::Hashed(_) => "hashed",
        Reply::Digest(part) if part.next.is_none() => "digest",
        Reply::Digest(_) => "part of a digest",
        Reply::Copied(_) => "copied",
        Reply::Refused(refusal) => refusal_kind(refusal),
        Reply::Expired => "expired",
    }
}

fn refusal_kind(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Busy => "busy",
        Refusal::SessionExpired => "session expired",
        Refusal::SessionFull => "session full",
        Refusal::Compacted { .. } => "compacted",
        Refusal::UpdateTooLarge { .. } => "update too large",
        Refusal::ResultsTooLarge { .. } => "results too large",
        _ => "refused",
    }
}

/// Checks that values and keys are no longer than allowed, and that a reply with many entries is within its bound.
pub(super) fn check(reply: &Reply, settings: &ReplicaSettings) {
    match reply {
        Reply::Committed(WriteReply { result: Computed::Took(Some((_, value))), .. })
        | Reply::Conflict { value: Some(value), .. } => check_value(value, settings),
        Reply::Committed(WriteReply { result: Computed::Ran(groups), .. }) => {
            let told: usize = groups.iter().flatten().flatten().map(StepOutcome::bytes).sum();
            assert!(told <= settings.max_value, "a script returned {told} bytes");
        }
        Reply::Read(ReadReply { held, .. }) => check_held(held.as_ref(), settings),
        Reply::Cut(MultiGetReply { found, .. }) => {
            let together: usize = found.iter().flatten().map(len_of).sum();
            assert!(together <= settings.max_value, "keys were answered with {together} bytes of values");
        }
        Reply::Page(ScanReply { records, .. }) | Reply::Changes(WatchReply { records, .. }) => {
            records.iter().for_each(|record| check_held(Some(&record.held), settings));
            records.iter().for_each(|record| assert!(record.key.len() <= MAX_KEY));
            let of_record = |record: &ScanRecord| record.key.len() + len_of(&record.held);
            check_entries(records.iter().map(of_record), settings);
        }
        Reply::Hashed(HashedReply { keys, .. }) => check_entries(keys.iter().map(Bytes::len), settings),
        _ => {}
    }
}

fn check_value(value: &Bytes, settings: &ReplicaSettings) {
    assert!(value.len() <= settings.max_value, "a value of {} bytes", value.len());
}

fn check_held(held: Option<&Held>, settings: &ReplicaSettings) {
    held.and_then(|held| held.value.as_ref()).into_iter().for_each(|value| check_value(value, settings));
}

fn len_of(held: &Held) -> usize {
    held.value.as_ref().map_or(0, Bytes::len)
}

fn check_entries(entries: impl ExactSizeIterator<Item = usize>, settings: &ReplicaSettings) {
    let count = entries.len();
    let bytes: usize = entries.map(|bytes| bytes + ENTRY).sum();
    assert!(count <= 1 || bytes <= settings.answer, "an answer of {count} entries and {bytes} bytes");
}
