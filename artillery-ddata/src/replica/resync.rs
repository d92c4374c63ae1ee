//! Snapshots for joiners whose place in the history is no longer kept (docs/DESIGN.md §7).
//!
//! A snapshot shows the source's data at its watermark. It travels beside the updates behind that, which the joiner keeps
//! until the snapshot is through; the source keeps a pin and a copy of the table of sessions, and nothing else. Where
//! the joiner stands is told by its control frames, so that whatever was lost is sent again from there.

mod joiner;
mod source;

pub(super) use joiner::Filling;
pub(super) use source::Outgoing;

/// How far a snapshot has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResyncProgress {
    /// Records, at the source those that it has sent and at the joiner those that have come.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// Resyncs that a joiner has gone through.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Resyncs {
    pub(super) full: u64,
    pub(super) partial: u64,
}
