//! Snapshots for joiners whose position in the history is no longer kept (docs/DESIGN.md §7).
//!
//! Each part of a snapshot holds the versions that are committed when the part is made. The updates after the watermark
//! at which the snapshot began are sent concurrently. The joiner buffers them until it has received the last part, and
//! then applies the updates that are newer than its records. The source keeps only a copy of the table of sessions and
//! at most one large value. The joiner's control frames report its position, and the source sends lost parts again from
//! there.

mod joiner;
mod receiver;
mod source;
mod steps;

pub(super) use self::{
    joiner::{CatchUp, Joiner},
    source::Source,
};
use super::ResyncProgress;
