//! Snapshots for joiners whose place in the history is no longer kept (docs/DESIGN.md §7).
//!
//! A snapshot shows each key as it is committed when its part is made. It travels beside the updates behind the watermark at
//! which it began, which the joiner keeps until the last part is there, and then applies where they are newer; the source
//! keeps a copy of the table of sessions and at most one large value, and nothing else. Where the joiner stands is told by
//! its control frames, so that whatever was lost is sent again from there.

mod clearing;
mod joiner;
mod source;

pub(super) use joiner::SnapshotReceiver;
pub(super) use source::SnapshotSender;

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
