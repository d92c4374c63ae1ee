//! Pages of keys in hash order.

use super::portion::{PAGE_ENTRIES, PAGE_STEPS, Portion};
use crate::{
    Sequence,
    api::{HashedQuery, HashedReply, ReadPath},
    replica::{Context, log::Log},
    store::StoreError,
};

/// All keys of one hash position are in the same page, since the next page begins at a position. A page may therefore
/// exceed its limits.
pub(super) fn hashed_page(
    cx: Context<'_>,
    log: &Log,
    asked: &HashedQuery,
    (as_of, clean, way): (Sequence, bool, ReadPath),
) -> Result<HashedReply, StoreError> {
    let mut page = HashedReply { keys: Vec::new(), next: 0, clean, way, as_of };
    let from = asked.from.max(1);
    let Some(records) = log.store().scan_hashed(from, as_of) else {
        page.next = from;
        return Ok(page);
    };
    let limit = (asked.limit as usize).clamp(1, PAGE_ENTRIES);
    let (mut last, mut portion) = (0, Portion::new(cx.settings().answer));
    for (step, found) in records.enumerate() {
        let (position, record) = found?;
        let is_key = record.held.value.is_some();
        let is_full = page.keys.len() >= limit || step > PAGE_STEPS || is_key && !portion.takes(record.key.len());
        if is_full && (position != last || allows!(cx.guards(), PartPositions)) {
            page.next = if position == last { position.saturating_add(1) } else { position };
            return Ok(page);
        }
        last = position;
        if is_key {
            page.keys.push(record.key);
        }
    }
    Ok(page)
}
