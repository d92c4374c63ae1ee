//! Backups: a checkpoint whose disk is the client's (docs/adr/0057).
//!
//! [`ChainCopy`] asks for the parts of a chain's data. [`BackupWriter`] writes them as a file in the format of the journal,
//! and [`BackupReader`] reads it. [`BackupLoad`] brings the parts of a file to one point of the history.

mod copy;
mod load;
mod read;
mod write;

use artillery_core::internal::codec::CodecError;
use serde::{Deserialize, Serialize};

pub use self::{
    copy::{ChainCopy, CopyError},
    load::{BackupLoad, BackupReport, ChainBackup},
    read::BackupReader,
    write::BackupWriter,
};
use crate::{ChainId, ClusterId, Sequence, control::History, journal::EntryError, replica::RestoreError};

const MAGIC: [u8; 8] = *b"artibkup";
const FORMAT: u32 = 1;

/// The kind of the last entry. The other entries are those of a journal.
const END: u8 = 255;

/// The end of a backup. A file without it is incomplete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupEnd {
    /// The cluster.
    pub cluster: ClusterId,
    /// The history of the cluster that the positions belong to.
    pub history: History,
    /// Each chain, with the point of its history that the backup shows.
    pub chains: Vec<(ChainId, Sequence)>,
    /// The number of entries before this one.
    pub entries: u64,
    /// A hash of all bytes before this group.
    pub hash: u128,
}

/// A file that isn't a whole backup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The file doesn't begin as a backup does.
    #[error("this is not a backup")]
    NotABackup,
    /// A later release wrote the file.
    #[error("format {0} of a backup is unknown to this release")]
    UnknownFormat(u32),
    /// Bytes differ from the written ones.
    #[error("the backup is damaged at byte {0}")]
    Damaged(u64),
    /// The file ends before the backup does.
    #[error("the backup is incomplete: it ends at byte {0}")]
    Cut(u64),
    /// Bytes follow the end.
    #[error("bytes follow the end of the backup at byte {0}")]
    Trailing(u64),
    /// The group can be read, but not its entries.
    #[error("an entry of the backup in the group at byte {at}: {error}")]
    Entry {
        /// Where the group begins, in bytes.
        at: u64,
        /// The reason.
        error: EntryError,
    },
    #[error("the end of the backup: {0}")]
    End(CodecError),
    /// The entries don't fit together.
    #[error("chain {} of the backup can't be restored: {error}", chain.0)]
    Restore {
        /// The chain.
        chain: ChainId,
        /// The reason.
        error: RestoreError,
    },
    /// The parts of the chain don't show the point that the end states.
    #[error("chain {} of the backup shows sequence {found}, not {stated}", chain.0)]
    OtherPoint {
        /// The chain.
        chain: ChainId,
        /// The sequence that the end states.
        stated: Sequence,
        /// The sequence that the parts show.
        found: Sequence,
    },
    /// The end lists other chains than the file has, or another number of entries.
    #[error("the end of the backup doesn't match its entries")]
    OtherEntries,
}
