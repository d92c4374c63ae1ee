//! Lookups at one point of the history: one key, many keys, pages of a scan, and the snapshots that keep such a point.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Replica, portion::Portion};
use crate::{
    MemberId, Sequence, Timestamp,
    api::{MultiGetReply, Query, ReadPath, ReadReply, Refusal, Reply, ScanQuery, ScanReply, Snapshot},
    store::{Held, StoreError},
};

/// The most entries of a page, also if a larger limit is asked for.
pub(super) const PAGE_ENTRIES: usize = 1024;

/// The most keys that are visited for a page, deleted ones included.
pub(super) const PAGE_STEPS: usize = 16 * PAGE_ENTRIES;

/// The most snapshots that a member keeps.
const SNAPSHOTS: usize = 64;

/// What a query would see of the newest versions.
#[derive(Clone, Debug)]
pub(super) struct Lookup {
    /// The newest of them; of a scan, the last sequence of the history.
    pub(super) newest: Sequence,
}

/// The points of the history that are kept for scans.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshots {
    kept: BTreeMap<u64, KeptSnapshot>,
    /// The highest number given. Two incarnations give the same number only by a collision of hashes: a client that asks
    /// another member for the rest of its scan must not get pages of another client's snapshot.
    last: u64,
    /// Bytes of all updates applied so far.
    taken_in: u64,
}

impl Snapshots {
    /// No snapshots yet. Their numbers begin at a hash of the incarnation.
    pub(super) fn of(me: MemberId) -> Self {
        let node = me.node.as_bytes().iter().fold(0_u64, |mix, &byte| mix.rotate_left(7) ^ u64::from(byte));
        let store = me.incarnation.store as u64 ^ (me.incarnation.store >> 64) as u64;
        let seed =
            (node ^ store.rotate_left(17)).wrapping_add(me.incarnation.starts).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self { last: seed >> 24 << 24, ..Self::default() }
    }
}

#[derive(Clone, Debug)]
struct KeptSnapshot {
    at: Sequence,
    until: Timestamp,
    /// Bytes of updates applied when it began.
    since: u64,
}

impl Snapshots {
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

/// A mutant's half of the keys, read at another time than the rest.
#[derive(Clone, Debug, Default)]
pub(super) struct Apart(BTreeMap<usize, Option<Held>>);

impl Apart {
    pub(super) fn over(self, mut reply: Reply) -> Reply {
        if let Reply::Cut(cut) = &mut reply {
            self.0.into_iter().for_each(|(at, held)| cut.found[at] = held);
        }
        reply
    }
}

impl Replica {
    pub(super) fn seen(&self, query: &Query) -> Result<Lookup, StoreError> {
        let newest = match query {
            Query::Key(key) => self.newest(key)?,
            Query::Keys(keys) => keys
                .iter()
                .try_fold(Sequence::ZERO, |newest, key| Ok::<_, StoreError>(newest.max(self.newest(key)?)))?,
            Query::Scan(_) | Query::Changes(_) | Query::Hashed(_) => self.history.last().sequence,
        };
        Ok(Lookup { newest })
    }

    pub(super) fn newest(&self, key: &Bytes) -> Result<Sequence, StoreError> {
        let newest = self.store.read(self.chain, key, Sequence::MAX)?;
        Ok(newest.map_or(Sequence::ZERO, |held| held.version.sequence))
    }

    /// How many uncommitted versions the key has that has the most of them, counted up to `enough` + 1. For a scan all
    /// pending updates count.
    pub(super) fn pending_versions(&self, query: &Query, seen: &Lookup, enough: u32) -> Result<u32, StoreError> {
        if seen.newest <= self.watermark {
            return Ok(0);
        }
        let of = |key: &Bytes| -> Result<u32, StoreError> {
            let (mut count, mut below) = (0, Sequence::MAX);
            while count <= enough
                && let Some(held) = self.store.read(self.chain, key, below)?
                && held.version.sequence > self.watermark
            {
                count += 1;
                below = Sequence(held.version.sequence.0 - 1);
            }
            Ok(count)
        };
        match query {
            Query::Key(key) => of(key),
            Query::Keys(keys) => keys.iter().try_fold(0, |most, key| Ok(of(key)?.max(most))),
            Query::Scan(_) | Query::Changes(_) | Query::Hashed(_) => {
                Ok(u32::try_from(seen.newest.0 - self.watermark.0).unwrap_or(u32::MAX))
            }
        }
    }

    /// Answers a query with the newest versions at or below `at_most`.
    pub(super) fn read_at(
        &mut self,
        now: Timestamp,
        query: &Query,
        at_most: Sequence,
        clean: bool,
        way: ReadPath,
    ) -> Result<Reply, StoreError> {
        let as_of = if at_most == Sequence::MAX { self.watermark } else { at_most };
        Ok(match query {
            Query::Key(key) => {
                let held = visible(self.store.read(self.chain, key, at_most)?);
                Reply::Read(ReadReply { held, clean, way, as_of })
            }
            Query::Keys(keys) => {
                let mut found = Vec::with_capacity(keys.len());
                let (mut len, limit) = (0, self.settings.max_value);
                for key in keys {
                    let held = visible(self.store.read(self.chain, key, at_most)?);
                    len += held.as_ref().and_then(|held| held.value.as_ref()).map_or(0, Bytes::len);
                    found.push(held);
                }
                if len > limit {
                    // All values go in one reply, which may be no larger than the largest value.
                    return Ok(Reply::Refused(Refusal::ValueTooLarge { len: len as u64, limit: limit as u64 }));
                }
                Reply::Cut(MultiGetReply { found, clean, way, as_of })
            }
            Query::Scan(scan) => {
                let snapshot = match scan.snapshot {
                    Snapshot::Begin => match self.begin_snapshot(now, as_of) {
                        Some(number) => Some(number),
                        None => return Ok(Reply::Refused(Refusal::Busy)),
                    },
                    _ => None,
                };
                let page = self.page(scan, as_of, clean, way, snapshot)?;
                if let (Some(number), None) = (snapshot, &page.next) {
                    // The first page is the last one.
                    self.end_snapshot(number);
                }
                Reply::Page(page)
            }
            Query::Hashed(hashed) => Reply::Hashed(self.hashed_page(hashed, as_of, clean, way)?),
            // `try_read` has handed these to `watch`.
            Query::Changes(_) => Reply::Refused(Refusal::NoChain),
        })
    }

    fn page(
        &self,
        scan: &ScanQuery,
        at_most: Sequence,
        clean: bool,
        way: ReadPath,
        snapshot: Option<u64>,
    ) -> Result<ScanReply, StoreError> {
        let limit = (scan.limit as usize).clamp(1, PAGE_ENTRIES);
        let from = scan.after.as_ref().filter(|&after| *after >= scan.prefix).unwrap_or(&scan.prefix);
        let mut page = ScanReply { records: Vec::new(), next: None, clean, way, as_of: at_most, snapshot };
        let mut portion = Portion::new(self.settings.answer);
        for (step, record) in self.store.scan(self.chain, from, at_most).enumerate() {
            let record = record?;
            if !record.key.starts_with(&scan.prefix) {
                break;
            }
            if page.records.len() == limit || step > PAGE_STEPS {
                return Ok(page);
            }
            if let Some(value) = &record.held.value
                && scan.after.as_ref() != Some(&record.key)
            {
                if !portion.takes(record.key.len() + value.len()) {
                    return Ok(page);
                }
                page.next = Some(record.key.clone());
                page.records.push(record);
            } else {
                page.next = Some(record.key);
            }
        }
        page.next = None;
        Ok(page)
    }

    /// Pins the store at the committed sequence `at`, and returns the snapshot's number. `None`: too many are kept.
    fn begin_snapshot(&mut self, now: Timestamp, at: Sequence) -> Option<u64> {
        if self.snapshots.kept.len() >= SNAPSHOTS {
            return None;
        }
        self.store.pin(self.chain, at);
        self.snapshots.last += 1;
        let until = now + self.settings.snapshot_age;
        self.snapshots.kept.insert(self.snapshots.last, KeptSnapshot { at, until, since: self.snapshots.taken_in });
        Some(self.snapshots.last)
    }

    /// Answers a page of a snapshot. Each page prolongs the snapshot's life; the last one ends it.
    pub(super) fn look_at_snapshot(&mut self, now: Timestamp, query: &Query, number: u64) -> Result<Reply, StoreError> {
        let (Query::Scan(scan), Some(kept)) = (query, self.snapshots.kept.get_mut(&number)) else {
            return Ok(Reply::Refused(Refusal::SnapshotGone));
        };
        kept.until = now + self.settings.snapshot_age;
        let at = kept.at;
        let page = self.page(scan, at, true, ReadPath::Local, Some(number))?;
        if page.next.is_none() {
            self.end_snapshot(number);
        }
        Ok(Reply::Page(page))
    }

    /// Ends all of them.
    pub(super) fn end_snapshots(&mut self) {
        let all: Vec<u64> = self.snapshots.kept.keys().copied().collect();
        all.into_iter().for_each(|number| self.end_snapshot(number));
    }

    fn end_snapshot(&mut self, number: u64) {
        if let Some(kept) = self.snapshots.kept.remove(&number) {
            self.store.unpin(self.chain, kept.at);
        }
    }

    /// Ends the snapshots of which no page was asked for in time.
    pub(super) fn expire_snapshots(&mut self, now: Timestamp) {
        let late: Vec<u64> =
            self.snapshots.kept.iter().filter(|(_, kept)| kept.until <= now).map(|(&number, _)| number).collect();
        late.into_iter().for_each(|number| self.end_snapshot(number));
    }

    /// Snapshots never stop writes: the oldest snapshots fail when too much was written since they began.
    pub(super) fn count_for_snapshots(&mut self, cost: usize) {
        self.snapshots.taken_in += cost as u64;
        let limit = self.settings.snapshot_bytes as u64;
        while let Some((&number, kept)) = self.snapshots.kept.first_key_value()
            && self.snapshots.taken_in - kept.since > limit
        {
            self.end_snapshot(number);
        }
    }

    /// Mutant: the keys of which no pending version is known are read at once, the others later.
    pub(super) fn look_apart(&self, query: &Query) -> Result<Apart, StoreError> {
        let Query::Keys(keys) = query else { return Ok(Apart::default()) };
        let mut apart = Apart::default();
        for (at, key) in keys.iter().enumerate() {
            if self.newest(key)? <= self.watermark {
                apart.0.insert(at, visible(self.store.read(self.chain, key, Sequence::MAX)?));
            }
        }
        Ok(apart)
    }
}

/// Clients see no tombstones.
fn visible(held: Option<Held>) -> Option<Held> {
    held.filter(|held| held.value.is_some())
}
