//! Pages of keys in hash order.

use super::{
    Replica,
    portion::Portion,
    snapshot_reads::{PAGE_ENTRIES, PAGE_STEPS},
};
use crate::{
    Sequence,
    api::{HashedQuery, HashedReply, ReadPath},
    store::StoreError,
};

impl Replica {
    /// Keys of one position stand in one page, since the next page begins at a position. So a page may exceed its
    /// limits.
    pub(super) fn hashed_page(
        &self,
        asked: &HashedQuery,
        as_of: Sequence,
        clean: bool,
        way: ReadPath,
    ) -> Result<HashedReply, StoreError> {
        let mut page = HashedReply { keys: Vec::new(), next: 0, clean, way, as_of };
        let from = asked.from.max(1);
        let Some(records) = self.store.scan_hashed(self.chain, from, as_of) else {
            page.next = from;
            return Ok(page);
        };
        let limit = (asked.limit as usize).clamp(1, PAGE_ENTRIES);
        let (mut last, mut portion) = (0, Portion::new(self.settings.answer));
        for (step, found) in records.enumerate() {
            let (position, record) = found?;
            let is_key = record.held.value.is_some();
            let is_full = page.keys.len() >= limit || step > PAGE_STEPS || is_key && !portion.takes(record.key.len());
            if is_full && (position != last || allows!(self.settings.guards, PartPositions)) {
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
}
