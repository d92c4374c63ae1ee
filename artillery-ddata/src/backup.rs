//! Backups: all data of a cluster in a file.
//!
//! [`Kv::backup`](crate::Kv::backup) returns the bytes of a file, which shows each chain at one point of its history,
//! although writes continue. [`check`] reads such a file. The file has keys, values, versions and expiries, but no sessions:
//! a request id of the backed-up cluster means nothing in another one.
//!
//! ```no_run
//! # async fn example(kv: artillery_ddata::Kv) -> Result<(), Box<dyn std::error::Error>> {
//! use std::io::Write;
//!
//! use artillery_ddata::{backup, kv::HashKey};
//!
//! let (mut file, mut backup) = (std::fs::File::create("shop.backup")?, kv.backup());
//! while let Some(bytes) = backup.next().await {
//!     file.write_all(&bytes?)?;
//! }
//! file.sync_all()?;
//! let report = backup::check(std::fs::File::open("shop.backup")?, HashKey([0; 16]))?;
//! println!("{} records", report.chains[0].sums.records);
//! # Ok(()) }
//! ```

use std::io;

use artillery_core::internal::random;
pub use artillery_proto::backup::{BackupEnd, BackupError, BackupReport, ChainBackup};
use artillery_proto::backup::{BackupLoad, BackupReader};
use bytes::Bytes;

use crate::kv::HashKey;
pub use crate::kv::{Backup, BackupProgress};

/// `check` reads the file in pieces of this many bytes.
const PIECE: usize = 1 << 20;

/// A backup that can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The file can't be read.
    #[error("the backup can't be read: {0}")]
    Io(#[from] io::Error),
    /// The file isn't a whole backup.
    #[error(transparent)]
    Backup(#[from] BackupError),
}

/// Reads a whole backup, as a restore would, into memory, and makes a digest of each chain with the hash key `key`: for
/// comparison with that of a cluster ([`Kv::digest`](crate::Kv::digest)).
///
/// # Errors
/// [`CheckError`].
pub fn check(mut file: impl io::Read, key: HashKey) -> Result<BackupReport, CheckError> {
    let (mut reader, mut load, mut piece) =
        (BackupReader::default(), BackupLoad::new(random::number()), vec![0; PIECE]);
    loop {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => reader.push(&piece[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        }
        while let Some(entries) = reader.next_group()? {
            load.add(entries)?;
        }
    }
    Ok(load.finish(reader.finish()?, key)?)
}

/// The records of a chain in a backup, in key order: key, value and version.
pub fn records(chain: &ChainBackup) -> impl Iterator<Item = (Bytes, Bytes, crate::Version)> + '_ {
    let found = chain.store.scan(chain.chain, b"", crate::Sequence::MAX);
    // A store in memory doesn't fail.
    found.filter_map(|record| {
        let record = record.ok()?;
        Some((record.key, record.held.value?, record.held.version))
    })
}
