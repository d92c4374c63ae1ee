//! Counts of records that a restart found above the watermark, until it is settled whether they are committed.

use std::time::Duration;

/// Upper bounds of the ranges of [`SettledRecords::durations`], in milliseconds.
pub const REREPLICATION_MILLIS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 30_000];

/// The records that a restart found above the watermark, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rereplication {
    /// Records whose last update isn't known to be committed.
    pub left: u64,
    /// Records settled by the start of an epoch.
    pub by_start: SettledRecords,
    /// Records that a strong read requested before they were settled. A read of one record of an update counts all
    /// records of that update. Scans and watches are not counted.
    pub by_read: SettledRecords,
    /// From the first epoch entered after the restart until the last record was settled, or until the latest one so
    /// far.
    pub time: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SettledRecords {
    /// The last update of the record is committed.
    pub done: u64,
    /// The last update of the record was dropped, or a snapshot replaced the store: the chain had continued without
    /// this member. If an older update of such a record is above the watermark too, the record is counted again.
    pub superseded: u64,
    /// Records by the time until they were settled, measured from the first epoch entered or from the read.
    /// [`REREPLICATION_MILLIS`] has the upper bounds of the ranges; the last range is unbounded.
    pub durations: [u64; REREPLICATION_MILLIS.len() + 1],
    /// Sum of the times in `durations`.
    pub total: Duration,
}

impl SettledRecords {
    pub(crate) fn count(&mut self, records: u64, took: Duration, is_committed: bool) {
        *(if is_committed { &mut self.done } else { &mut self.superseded }) += records;
        let range = REREPLICATION_MILLIS.iter().position(|&bound| took <= Duration::from_millis(bound));
        self.durations[range.unwrap_or(REREPLICATION_MILLIS.len())] += records;
        self.total += took.saturating_mul(u32::try_from(records).unwrap_or(u32::MAX));
    }
}
