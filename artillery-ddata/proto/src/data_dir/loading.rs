//! The progress of a store's start, which reads the journal twice: to check it and to load it.

use std::time::Duration;

use crate::{
    journal::{JournalEntry, ReadBytes},
    message::{ChainMessage, SnapshotContent},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LoadStep {
    /// The whole journal is checked.
    #[default]
    Check,
    /// The entries that the chains need are loaded.
    TakeIn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadProgress {
    pub step: LoadStep,
    /// Records of checkpoints, and changes of updates, that were read in this step.
    pub records: u64,
    /// Bytes read in this step, and in total.
    pub read: ReadBytes,
}

impl LoadProgress {
    /// The estimated remaining time of the start, if this step has taken `elapsed`. `None`: unknown, as always in
    /// [`LoadStep::Check`].
    pub fn left(&self, elapsed: Duration) -> Option<Duration> {
        let ReadBytes { done, total, .. } = self.read;
        if self.step == LoadStep::Check || done == 0 {
            return None;
        }
        let left = elapsed.as_secs_f64() * total.saturating_sub(done) as f64 / done as f64;
        Duration::try_from_secs_f64(left).ok()
    }

    /// Records per second, if this step has taken `elapsed`.
    pub fn records_per_second(&self, elapsed: Duration) -> u64 {
        let seconds = elapsed.as_secs_f64();
        if seconds > 0.0 { (self.records as f64 / seconds) as u64 } else { 0 }
    }
}

/// The progress of one reading of the journal, and the function that receives it.
pub(super) struct LoadWatch<'a> {
    progress: LoadProgress,
    tell: &'a mut dyn FnMut(LoadProgress),
}

impl<'a> LoadWatch<'a> {
    pub(super) fn new(step: LoadStep, tell: &'a mut dyn FnMut(LoadProgress)) -> Self {
        Self { progress: LoadProgress { step, ..LoadProgress::default() }, tell }
    }

    pub(super) fn passed(&mut self, entry: &JournalEntry, read: ReadBytes) {
        self.progress.records += records(entry);
        self.progress.read = read;
        (self.tell)(self.progress);
    }
}

fn records(entry: &JournalEntry) -> u64 {
    let JournalEntry::Sent(frame) = entry else { return 0 };
    let records = match &frame.message {
        ChainMessage::Updates(updates) => updates.updates.iter().map(|update| update.changes.len()).sum(),
        ChainMessage::Snapshot(part) => match &part.content {
            SnapshotContent::Records(records) => records.len(),
            // Only the first piece of a value counts its record.
            SnapshotContent::Piece(_) if part.at.bytes == 0 => 1,
            _ => 0,
        },
        _ => 0,
    };
    records as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(step: LoadStep, done: u64) -> LoadProgress {
        LoadProgress { step, records: 3000, read: ReadBytes { done, total: 1000, entry: 0 } }
    }

    #[test]
    fn the_time_left_is_told_once_records_are_taken_in() {
        let three = Duration::from_secs(3);
        assert_eq!(progress(LoadStep::Check, 250).left(three), None);
        assert_eq!(progress(LoadStep::TakeIn, 0).left(three), None);
        assert_eq!(progress(LoadStep::TakeIn, 250).left(three), Some(Duration::from_secs(9)));
        assert_eq!(progress(LoadStep::TakeIn, 1000).left(three), Some(Duration::ZERO));
        // The journal has grown since its length was read.
        assert_eq!(progress(LoadStep::TakeIn, 1001).left(three), Some(Duration::ZERO));
        assert_eq!(progress(LoadStep::TakeIn, 1).records_per_second(three), 1000);
        assert_eq!(progress(LoadStep::TakeIn, 1).records_per_second(Duration::ZERO), 0);
    }
}
