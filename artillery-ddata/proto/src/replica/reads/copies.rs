//! Parts of a chain's data for a backup. Like a joiner's parts (docs/adr/0020) they show different times, and the updates
//! since the beginning make them one.

use artillery_core::Frame;

use crate::{
    ChainId, Epoch, Sequence,
    api::{CopyReply, CopyStep, Refusal, Reply},
    message::{ChainFrame, ChainMessage, SnapshotContent, SnapshotCursor, SnapshotHeader, SnapshotPart, Updates},
    replica::{Context, log::Log},
    store::StoreError,
    wire::chain::{self, EncodeError},
};

/// `committed`: everything up to here is known to be committed, although this member's watermark may be below.
pub(super) fn copy(cx: Context<'_>, log: &Log, step: &CopyStep, committed: Sequence) -> Result<Reply, StoreError> {
    let watermark = log.watermark().max(committed);
    let message = match step {
        CopyStep::Begin => {
            let (header, _) = log.snapshot_header(cx.guards(), crate::Version::NONE);
            // A backup has no sessions: their requests belong to this history.
            Some(part(watermark, None, SnapshotContent::Begin(SnapshotHeader { sessions: 0, ..header })))
        }
        CopyStep::Records { behind, .. } => {
            let (records, _) = log.records_behind(behind.as_ref(), cx.settings().answer, usize::MAX)?;
            let content = if records.is_empty() { SnapshotContent::End } else { SnapshotContent::Records(records) };
            Some(part(watermark, behind.clone(), content))
        }
        &CopyStep::Updates { after } => match updates(cx, log, after) {
            Ok(updates) => updates,
            Err(refusal) => return Ok(Reply::Refused(refusal)),
        },
    };
    let Ok(frame) = message.map(framed).transpose() else { return Ok(Reply::Refused(Refusal::StoreFailed)) };
    Ok(Reply::Copied(CopyReply { watermark, frame }))
}

fn framed(message: ChainMessage) -> Result<Frame, EncodeError> {
    let frame = ChainFrame { chain: ChainId(0), epoch: Epoch(0), index: 0, message };
    Ok(chain::encode(&frame)?.to_frame())
}

fn part(watermark: Sequence, behind: Option<bytes::Bytes>, content: SnapshotContent) -> ChainMessage {
    let at = SnapshotCursor { behind, ..SnapshotCursor::default() };
    ChainMessage::Snapshot(SnapshotPart { id: 1, at, watermark, content })
}

/// The committed updates after a sequence: as many as fit into an answer, but at least one if there is one.
fn updates(cx: Context<'_>, log: &Log, after: Sequence) -> Result<Option<ChainMessage>, Refusal> {
    let (history, watermark) = (log.history(), log.watermark());
    let first = history.first();
    if after.saturating_next() < first {
        return Err(Refusal::Compacted { first: first.0 });
    }
    let mut left = cx.settings().answer;
    let fits = |update: &&crate::types::update::Update| {
        let fits = left > 0;
        left = left.saturating_sub(update.cost());
        fits && update.version.sequence <= watermark
    };
    let updates: Vec<_> = history.from(after.saturating_next()).take_while(fits).cloned().collect();
    if updates.is_empty() {
        return Ok(None);
    }
    let after = history.version_at(after).unwrap_or_default();
    Ok(Some(ChainMessage::Updates(Updates { watermark, after, updates })))
}
