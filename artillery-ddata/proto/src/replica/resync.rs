//! Snapshots for joiners whose place in the history is no longer kept (docs/DESIGN.md §7).
//!
//! A snapshot has each key as it is committed when its part is made. The updates behind the watermark at which the
//! snapshot began travel beside it. The joiner buffers them until the last part has come, and then applies those that
//! are newer than its records. The source keeps only a copy of the table of sessions and at most one large value. The
//! joiner's control frames tell how far it has come, and the source sends again from there what was lost.

mod catching_up;
mod clearing;
mod joiner;
mod source;

pub(super) use joiner::SnapshotReceiver;
pub(super) use source::{SnapshotSender, entries_of};

/// How far a snapshot has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResyncProgress {
    /// Records: sent by the source, or received by the joiner.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

/// Resyncs that a joiner has completed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Resyncs {
    pub(super) full: u64,
    pub(super) partial: u64,
}
