//! Parts of a chain's data for a backup. Like a joiner's parts (docs/adr/0020) they show different times, and the updates
//! since the beginning make them one.

use bytes::Bytes;

use super::portion::{PAGE_STEPS, Portion};
use crate::{
    ChainId, Epoch, Sequence,
    api::{CopyMessage, CopyReply, CopyStep, Refusal, Reply},
    message::{ChainFrame, ChainMessage, SnapshotContent, SnapshotCursor, SnapshotPart, Updates},
    replica::{Context, log::Log},
    store::{ScanRecord, StoreError},
    types::update::Update,
    wire::chain::{self, EncodeError},
};

/// `committed`: everything up to here is known to be committed, although this member's watermark may be below.
pub(super) fn copy(cx: Context<'_>, log: &Log, step: &CopyStep, committed: Sequence) -> Result<Reply, StoreError> {
    let watermark = log.watermark().max(committed);
    let (message, next) = match step {
        CopyStep::Begin => {
            // A backup has no sessions: their requests belong to this history.
            let header = log.bare_snapshot_header(cx.guards());
            (Some(part(watermark, None, SnapshotContent::Begin(header))), None)
        }
        CopyStep::Records { behind, .. } => {
            let (records, next) = records(cx, log, behind.as_ref())?;
            let content = Some(records).filter(|records| !records.is_empty()).map(SnapshotContent::Records);
            (content.map(|content| part(watermark, behind.clone(), content)), next)
        }
        &CopyStep::Updates { after } => match updates(cx, log, after) {
            Ok(updates) => (Some(ChainMessage::Updates(updates)), None),
            Err(refusal) => return Ok(Reply::Refused(refusal)),
        },
    };
    // Only a message that is too long can't be encoded.
    let Ok(message) = message.map(encoded).transpose() else {
        let limit = cx.settings().max_value as u64;
        return Ok(Reply::Refused(Refusal::ResultsTooLarge { len: u64::from(u32::MAX), limit }));
    };
    Ok(Reply::Copied(Box::new(CopyReply { watermark, message, next })))
}

fn encoded(message: ChainMessage) -> Result<CopyMessage, EncodeError> {
    let frame = ChainFrame { chain: ChainId(0), epoch: Epoch(0), index: 0, message };
    let encoded = chain::encode(&frame)?;
    Ok(CopyMessage { header: Bytes::copy_from_slice(&encoded.header), body: encoded.body.into_vec() })
}

fn part(watermark: Sequence, behind: Option<Bytes>, content: SnapshotContent) -> ChainMessage {
    let at = SnapshotCursor { behind, ..SnapshotCursor::default() };
    ChainMessage::Snapshot(SnapshotPart { id: 1, at, watermark, content })
}

/// The committed records after a key: as many as fit into an answer, but at least one. Also the last key that was visited,
/// unless there are no further keys.
fn records(cx: Context<'_>, log: &Log, behind: Option<&Bytes>) -> Result<(Vec<ScanRecord>, Option<Bytes>), StoreError> {
    let mut records: Vec<ScanRecord> = Vec::new();
    let (mut portion, mut visited) = (Portion::new(cx.settings().answer), None);
    let from = behind.map_or_else(Vec::new, |behind| [behind, &[0][..]].concat());
    for (step, record) in log.store().scan(&from, log.watermark()).enumerate() {
        let record = record?;
        let bytes = record.held.value.as_ref().map(|value| record.key.len() + value.len());
        if step > PAGE_STEPS || bytes.is_some_and(|bytes| !portion.takes(bytes)) {
            return Ok((records, visited));
        }
        visited = Some(record.key.clone());
        if bytes.is_some() {
            records.push(record);
        }
    }
    Ok((records, None))
}

/// The committed updates after a sequence: as many as fit into an answer, but at least one.
fn updates(cx: Context<'_>, log: &Log, after: Sequence) -> Result<Updates, Refusal> {
    let (history, watermark) = (log.history(), log.watermark());
    let first = history.first();
    if after.saturating_next() < first {
        return Err(Refusal::Compacted { first: first.0 });
    }
    let mut portion = Portion::new(cx.settings().answer);
    let fits = |update: &&Update| update.version.sequence <= watermark && portion.takes(update.cost());
    let updates: Vec<_> = history.from(after.saturating_next()).take_while(fits).cloned().collect();
    if updates.is_empty() {
        // The caller waits for an update after `after` first.
        return Err(Refusal::NoChain);
    }
    Ok(Updates { watermark, after: history.version_at(after).unwrap_or_default(), updates })
}
