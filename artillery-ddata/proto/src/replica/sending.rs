//! The next updates for the successor.
//!
//! A cursor over the history selects the next update. An update that is too large for one frame is sent in pieces, and
//! a member forwards the pieces of an update that is still arriving. So a large value travels over all hops of the
//! chain at the same time.

use bytes::Bytes;

use super::{
    Context, MAX_UPDATES,
    log::Log,
    peers::Cursor,
    upstream::{Incoming, piece_of},
};
use crate::{
    Sequence, Version,
    message::{ChainMessage, Chunk, ChunkPart, Outline, Partial, Updates},
    types::update::Update,
};

enum LargeUpdate<'a> {
    Whole(&'a Update),
    Incoming(&'a Incoming),
}

impl LargeUpdate<'_> {
    fn version(&self) -> Version {
        match self {
            Self::Whole(update) => update.version,
            Self::Incoming(incoming) => incoming.version(),
        }
    }

    /// The length of the whole update in bytes, even if only a part of it has been received.
    fn len(&self) -> u64 {
        match self {
            Self::Whole(update) => update.bytes() as u64,
            Self::Incoming(incoming) => incoming.outline().bytes(),
        }
    }

    fn outline(&self) -> Outline {
        match self {
            Self::Whole(update) => Outline::of(update),
            Self::Incoming(incoming) => incoming.outline().clone(),
        }
    }

    fn piece(&self, at: usize, most: usize) -> Bytes {
        match self {
            Self::Whole(update) => piece_of(update, at, most),
            Self::Incoming(incoming) => incoming.piece(at, most),
        }
    }
}

/// The next updates at the cursor: as many as fit into `room` bytes, but at least one and at most [`MAX_UPDATES`], or
/// the next piece of a large update. Also returns the cursor after them.
pub(super) fn next_message(
    cx: Context<'_>,
    log: &Log,
    incoming: Option<&Incoming>,
    cursor: Cursor,
    room: usize,
) -> Option<(ChainMessage, Cursor)> {
    let chunk = cx.settings().chunk();
    updates_at(log, cursor, room, chunk).or_else(|| piece_at(log, incoming, cursor, chunk))
}

/// Whole updates, up to the first large one.
fn updates_at(log: &Log, cursor: Cursor, room: usize, chunk: usize) -> Option<(ChainMessage, Cursor)> {
    let mut left = room;
    let mut updates = Vec::new();
    for update in log.history().from(cursor.next).take(MAX_UPDATES) {
        let cost = update.cost();
        if (cost > left && !updates.is_empty()) || update.bytes() > chunk {
            break;
        }
        left = left.saturating_sub(cost);
        updates.push(update.clone());
    }
    let next = updates.last()?.version.sequence.next();
    // The backlog may begin after the cursor by now.
    let after = version_before(log, updates.first()?.version.sequence);
    Some((ChainMessage::Updates(Updates { watermark: log.watermark(), after, updates }), Cursor::at(next)))
}

fn version_before(log: &Log, sequence: Sequence) -> Version {
    log.history().version_at(Sequence(sequence.0.saturating_sub(1))).unwrap_or_default()
}

/// The next piece of the large update at the cursor, if it has been received.
fn piece_at(log: &Log, incoming: Option<&Incoming>, cursor: Cursor, chunk: usize) -> Option<(ChainMessage, Cursor)> {
    let arriving = || incoming.filter(|incoming| incoming.version().sequence == cursor.next);
    let whole = log.history().from(cursor.next).next().map(LargeUpdate::Whole);
    let large = whole.or_else(|| arriving().map(LargeUpdate::Incoming))?;
    let (version, len) = (large.version(), large.len());
    // Ignore pieces that were sent of another update with this sequence.
    let at = cursor.begun.filter(|begun| begun.version == version).map_or(0, |begun| begun.bytes);
    let bytes = large.piece(at as usize, chunk);
    if bytes.is_empty() {
        return None;
    }
    let end = at + bytes.len() as u64;
    let begun = Some(Partial { version, bytes: end });
    let next = if end < len { Cursor { begun, ..cursor } } else { Cursor::at(cursor.next.next()) };
    let part = if at == 0 { ChunkPart::First(large.outline()) } else { ChunkPart::Behind(at) };
    let after = version_before(log, version.sequence);
    Some((ChainMessage::Chunk(Chunk { watermark: log.watermark(), after, version, part, bytes }), next))
}
