//! Digests: each member sums its records at one point of the history, in parts.

use super::{
    portion::{PAGE_ENTRIES, PAGE_STEPS},
    snapshots::Snapshots,
};
use crate::{
    Sequence,
    api::{DigestCursor, DigestQuery, DigestReply, HashKey, PIECE, Refusal, Reply, Sums, pieces},
    replica::{Context, log::Log},
    store::{ScanRecord, StoreError},
};

/// A part ends once it has hashed about this many bytes, so that it doesn't keep the chain's task for long.
const PART_BYTES: usize = 4 * PIECE;

/// The overhead of a record, in bytes: it is charged for, so that small records end a part too.
const RECORD: usize = 64;

impl Snapshots {
    /// Begins a digest at a committed sequence. A pin keeps that point and all later ones.
    pub(super) fn begin_digest(&mut self, cx: Context<'_>, log: &Log, query: &DigestQuery, at: Sequence) -> Reply {
        let Some(number) = self.keep(cx, log, at) else { return Reply::Refused(Refusal::Busy) };
        let next = Some(DigestCursor { key: query.prefix.clone(), pieces: 0 });
        Reply::Digest(Box::new(DigestReply { number, as_of: at, sums: Sums::default(), next }))
    }

    /// Answers a part of a digest. The last part ends it.
    pub(super) fn digest_part(
        &mut self,
        cx: Context<'_>,
        log: &Log,
        query: &DigestQuery,
        (number, at, from): (u64, Sequence, &DigestCursor),
    ) -> Result<Reply, StoreError> {
        let Some(first) = self.kept_at(cx, number).filter(|&first| first <= at) else {
            return Ok(Reply::Refused(Refusal::SnapshotGone));
        };
        let at = if allows!(cx.guards(), DigestNow) { log.watermark() } else { at };
        debug_assert!(first <= at && at <= log.watermark(), "a digest of updates that may not be committed");
        let (sums, next) = part(log, query, at, from)?;
        if next.is_none() {
            self.end(log, number);
        }
        Ok(Reply::Digest(Box::new(DigestReply { number, as_of: at, sums, next })))
    }
}

fn part(
    log: &Log,
    query: &DigestQuery,
    at: Sequence,
    from: &DigestCursor,
) -> Result<(Sums, Option<DigestCursor>), StoreError> {
    let mut part = Part { hash: query.key, sums: Sums::default(), left: PART_BYTES };
    let start = if from.key < query.prefix { &query.prefix } else { &from.key };
    for (step, record) in log.store().scan(start, at).enumerate() {
        let record = record?;
        if !record.key.starts_with(&query.prefix) {
            break;
        }
        let first = if record.key == from.key { from.pieces } else { 0 };
        if step > PAGE_STEPS || part.sums.records >= PAGE_ENTRIES as u64 {
            return Ok((part.sums, Some(DigestCursor { key: record.key, pieces: first })));
        }
        if let Some(pieces) = part.add(&record, first) {
            return Ok((part.sums, Some(DigestCursor { key: record.key, pieces })));
        }
    }
    Ok((part.sums, None))
}

struct Part {
    hash: HashKey,
    sums: Sums,
    left: usize,
}

impl Part {
    /// Adds the pieces of a record from the `first` up. Returns the first piece that the part has no budget for.
    fn add(&mut self, record: &ScanRecord, first: u32) -> Option<u32> {
        let value = record.held.value.as_ref()?;
        for piece in first..pieces(value) {
            if self.left == 0 {
                return Some(piece);
            }
            self.sums.add_piece(self.hash, &record.key, &record.held, piece);
            let hashed = value.len().saturating_sub(piece as usize * PIECE).min(PIECE);
            self.left = self.left.saturating_sub(RECORD + record.key.len() + hashed);
        }
        None
    }
}
