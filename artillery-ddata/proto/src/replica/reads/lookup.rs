//! Lookups at one point of the history: one key, many keys, or pages of a scan, and the snapshots that preserve such a
//! point.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    hashed_pages::hashed_page,
    portion::{PAGE_ENTRIES, PAGE_STEPS, Portion},
};
use crate::{
    MemberId, Sequence, Timestamp,
    api::{MultiGetReply, Query, ReadPath, ReadReply, Refusal, Reply, ScanQuery, ScanReply, Snapshot},
    replica::{Context, log::Log},
    store::{Held, StoreError},
};

const MAX_SNAPSHOTS: usize = 64;

/// The points of the history that are preserved for scans.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Snapshots {
    kept: BTreeMap<u64, KeptSnapshot>,
    /// The highest number assigned. The numbers of two incarnations coincide only if hashes collide: a client that
    /// requests the rest of its scan from another member must not get pages of another client's snapshot.
    last: u64,
}

impl Snapshots {
    /// Starts without snapshots. Their numbers begin at a hash of the incarnation.
    pub(super) fn of(me: MemberId) -> Self {
        let node = me.node.as_bytes().iter().fold(0_u64, |mix, &byte| mix.rotate_left(7) ^ u64::from(byte));
        let store = me.incarnation.store as u64 ^ (me.incarnation.store >> 64) as u64;
        let seed =
            (node ^ store.rotate_left(17)).wrapping_add(me.incarnation.starts).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self { last: seed >> 24 << 24, ..Self::default() }
    }
}

#[derive(Clone, Hash, Debug)]
struct KeptSnapshot {
    at: Sequence,
    until: Timestamp,
    /// The log's total of applied bytes when the snapshot began.
    since: u64,
}

impl Snapshots {
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }
}

/// For a mutant: the keys that were read at another time than the rest.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Apart(BTreeMap<usize, Option<Held>>);

impl Apart {
    pub(super) fn over(self, mut reply: Reply) -> Reply {
        if let Reply::Cut(cut) = &mut reply {
            self.0.into_iter().for_each(|(at, held)| cut.found[at] = held);
        }
        reply
    }
}

/// The newest version that a query would see. If the query isn't a lookup of keys: the last sequence of the history.
pub(super) fn newest_of(log: &Log, query: &Query) -> Result<Sequence, StoreError> {
    match query {
        Query::Key(key) => log.newest(key),
        Query::Keys(keys) => keys.iter().try_fold(Sequence::ZERO, |newest, key| Ok(newest.max(log.newest(key)?))),
        Query::Scan(_) | Query::Changes(_) | Query::Hashed(_) => Ok(log.last().sequence),
    }
}

/// The number of uncommitted versions of the key that has the most of them, counted up to `enough` + 1. If the query
/// isn't a lookup of keys, all pending updates are counted.
pub(super) fn pending_versions(log: &Log, query: &Query, newest: Sequence, enough: u32) -> Result<u32, StoreError> {
    let watermark = log.watermark();
    if newest <= watermark {
        return Ok(0);
    }
    let of = |key: &Bytes| -> Result<u32, StoreError> {
        let (mut count, mut below) = (0, Sequence::MAX);
        while count <= enough
            && let Some(held) = log.store().read(key, below)?
            && held.version.sequence > watermark
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
            Ok(u32::try_from(newest.0 - watermark.0).unwrap_or(u32::MAX))
        }
    }
}

/// Mutant: reads the keys without a known pending version at once, and the others later.
pub(super) fn look_apart(log: &Log, query: &Query) -> Result<Apart, StoreError> {
    let Query::Keys(keys) = query else { return Ok(Apart::default()) };
    let mut apart = Apart::default();
    for (at, key) in keys.iter().enumerate() {
        if log.newest(key)? <= log.watermark() {
            apart.0.insert(at, visible(log.store().read(key, Sequence::MAX)?));
        }
    }
    Ok(apart)
}

/// The point of the history at which a query is answered: the highest sequence that it sees, whether the versions are
/// committed, and the path that served the read.
type Point = (Sequence, bool, ReadPath);

impl Snapshots {
    /// Answers a query at one point of the history. A scan may begin a snapshot there.
    pub(super) fn read_at(
        &mut self,
        cx: Context<'_>,
        log: &Log,
        query: &Query,
        (at_most, clean, path): Point,
    ) -> Result<Reply, StoreError> {
        let as_of = if at_most == Sequence::MAX { log.watermark() } else { at_most };
        Ok(match query {
            Query::Key(key) => {
                let held = visible(log.store().read(key, at_most)?);
                let chain_time = chain_time(cx, log, held.iter());
                Reply::Read(ReadReply { held, clean, way: path, as_of, chain_time })
            }
            Query::Keys(keys) => {
                let found = keys.iter().map(|key| Ok(visible(log.store().read(key, at_most)?)));
                let found = found.collect::<Result<Vec<_>, StoreError>>()?;
                let values = found.iter().flatten().filter_map(|held| held.value.as_ref());
                let (len, limit) = (values.map(Bytes::len).sum::<usize>(), cx.settings().max_value);
                if len > limit {
                    // One reply holds all values, and must not be larger than the largest value.
                    return Ok(Reply::Refused(Refusal::ValueTooLarge { len: len as u64, limit: limit as u64 }));
                }
                let chain_time = chain_time(cx, log, found.iter().flatten());
                Reply::Cut(MultiGetReply { found, clean, way: path, as_of, chain_time })
            }
            Query::Scan(scan) if scan.snapshot == Snapshot::Begin => {
                return self.begin(cx, log, scan, (as_of, clean, path));
            }
            Query::Scan(scan) => Reply::Page(page(cx, log, scan, (as_of, clean, path), None)?),
            Query::Hashed(hashed) => Reply::Hashed(hashed_page(cx, log, hashed, (as_of, clean, path))?),
            // Watches never reach this function.
            Query::Changes(_) => Reply::Refused(Refusal::NoChain),
        })
    }

    /// Answers the first page of a snapshot at a committed sequence. The store keeps that point, unless the page is the
    /// last one.
    fn begin(&mut self, cx: Context<'_>, log: &Log, scan: &ScanQuery, point: Point) -> Result<Reply, StoreError> {
        if self.kept.len() >= MAX_SNAPSHOTS {
            return Ok(Reply::Refused(Refusal::Busy));
        }
        let at = point.0;
        log.store().pin(at);
        self.last += 1;
        let (number, until) = (self.last, cx.now + cx.settings().snapshots.age);
        self.kept.insert(number, KeptSnapshot { at, until, since: log.applied_bytes() });
        let page = page(cx, log, scan, point, Some(number))?;
        if page.next.is_none() {
            self.end(log, number);
        }
        Ok(Reply::Page(page))
    }

    /// Answers a page of a snapshot. Each page extends the snapshot's deadline; the last page ends the snapshot.
    pub(super) fn page(
        &mut self,
        cx: Context<'_>,
        log: &Log,
        scan: &ScanQuery,
        number: u64,
    ) -> Result<Reply, StoreError> {
        let Some(kept) = self.kept.get_mut(&number) else { return Ok(Reply::Refused(Refusal::SnapshotGone)) };
        kept.until = cx.now + cx.settings().snapshots.age;
        let page = page(cx, log, scan, (kept.at, true, ReadPath::Local), Some(number))?;
        if page.next.is_none() {
            self.end(log, number);
        }
        Ok(Reply::Page(page))
    }

    pub(super) fn end_all(&mut self, log: &Log) {
        self.end_those(log, |_| true);
    }

    /// Ends the snapshots whose next page wasn't requested in time.
    pub(super) fn expire(&mut self, now: Timestamp, log: &Log) {
        self.end_those(log, |kept| kept.until <= now);
    }

    /// Snapshots never block writes: a snapshot ends when more than `limit` bytes were written since it began.
    pub(super) fn end_overtaken(&mut self, log: &Log, limit: usize) {
        let applied = log.applied_bytes();
        while let Some((&number, kept)) = self.kept.first_key_value()
            && applied - kept.since > limit as u64
        {
            self.end(log, number);
        }
    }

    fn end_those(&mut self, log: &Log, ends: impl Fn(&KeptSnapshot) -> bool) {
        let ended: Vec<u64> = self.kept.iter().filter(|(_, kept)| ends(kept)).map(|(&number, _)| number).collect();
        ended.into_iter().for_each(|number| self.end(log, number));
    }

    fn end(&mut self, log: &Log, number: u64) {
        if let Some(kept) = self.kept.remove(&number) {
            log.store().unpin(kept.at);
        }
    }
}

fn page(
    cx: Context<'_>,
    log: &Log,
    scan: &ScanQuery,
    (at_most, clean, path): Point,
    snapshot: Option<u64>,
) -> Result<ScanReply, StoreError> {
    let chain_time = 0;
    let mut page =
        ScanReply { records: Vec::new(), next: None, clean, way: path, as_of: at_most, snapshot, chain_time };
    fill_page(cx, log, scan, at_most, &mut page)?;
    page.chain_time = self::chain_time(cx, log, page.records.iter().map(|record| &record.held));
    Ok(page)
}

/// The chain time for a reply with these versions; 0: none of them expires.
fn chain_time<'a>(cx: Context<'_>, log: &Log, mut found: impl Iterator<Item = &'a Held>) -> u64 {
    if found.any(|held| held.expires.is_some()) { log.chain_time_at(cx.now) } else { 0 }
}

fn fill_page(
    cx: Context<'_>,
    log: &Log,
    scan: &ScanQuery,
    at_most: Sequence,
    page: &mut ScanReply,
) -> Result<(), StoreError> {
    let limit = (scan.limit as usize).clamp(1, PAGE_ENTRIES);
    let from = scan.after.as_ref().filter(|&after| *after >= scan.prefix).unwrap_or(&scan.prefix);
    let mut portion = Portion::new(cx.settings().answer);
    for (step, record) in log.store().scan(from, at_most).enumerate() {
        let record = record?;
        if !record.key.starts_with(&scan.prefix) {
            break;
        }
        if page.records.len() == limit || step > PAGE_STEPS {
            return Ok(());
        }
        if let Some(value) = &record.held.value
            && scan.after.as_ref() != Some(&record.key)
        {
            if !portion.takes(record.key.len() + value.len()) {
                return Ok(());
            }
            page.next = Some(record.key.clone());
            page.records.push(record);
        } else {
            page.next = Some(record.key);
        }
    }
    page.next = None;
    Ok(())
}

/// Hides tombstones from clients.
fn visible(held: Option<Held>) -> Option<Held> {
    held.filter(|held| held.value.is_some())
}
