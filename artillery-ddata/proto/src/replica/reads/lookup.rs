//! Lookups at one point of the history: one key, many keys, or pages of a scan.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    copies::copy,
    hashed_pages::hashed_page,
    portion::{PAGE_ENTRIES, PAGE_STEPS, Portion},
    snapshots::Snapshots,
};
use crate::{
    Sequence,
    api::{MultiGetReply, Query, ReadPath, ReadReply, Refusal, Reply, ScanQuery, ScanReply, Snapshot},
    replica::{Context, log::Log},
    store::{Held, StoreError},
};

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
        Query::Scan(_) | Query::Changes(_) | Query::Hashed(_) | Query::Digest(_) | Query::Copy(_) => {
            Ok(log.last().sequence)
        }
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
        Query::Scan(_) | Query::Changes(_) | Query::Hashed(_) | Query::Digest(_) | Query::Copy(_) => {
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
            Query::Digest(digest) => self.begin_digest(cx, log, digest, as_of),
            Query::Copy(step) => return copy(cx, log, step, as_of),
            // Watches never reach this function.
            Query::Changes(_) => Reply::Refused(Refusal::NoChain),
        })
    }

    /// Answers the first page of a snapshot at a committed sequence. The store keeps that point, unless the page is the
    /// last one.
    fn begin(&mut self, cx: Context<'_>, log: &Log, scan: &ScanQuery, point: Point) -> Result<Reply, StoreError> {
        let Some(number) = self.keep(cx, log, point.0) else { return Ok(Reply::Refused(Refusal::Busy)) };
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
        let Some(at) = self.kept_at(cx, number) else { return Ok(Reply::Refused(Refusal::SnapshotGone)) };
        let page = page(cx, log, scan, (at, true, ReadPath::Local), Some(number))?;
        if page.next.is_none() {
            self.end(log, number);
        }
        Ok(Reply::Page(page))
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
