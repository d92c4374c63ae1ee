//! The files of one directory, with the interface that the journal of a durable node needs.

mod contents;
mod gate;
mod names;
mod private;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use self::gate::Gate;
use crate::system;
use artillery_proto::disk::{Disk, DiskError, DiskFile};

/// The file that a process locks while it uses the directory.
const LOCK: &str = "LOCK";

/// A directory that this process has locked, until the directory is released or the value is dropped. A directory
/// opened for reading may be locked by several readers, and isn't locked if it has no lock file.
#[derive(Debug)]
pub(crate) struct LockedDir {
    dir: PathBuf,
    /// The open directory, used to sync it.
    handle: File,
    is_read_only: bool,
    gate: Arc<Gate>,
    lock: Mutex<Option<File>>,
    /// The node's name in the directory when it was opened; `None` if it was opened for reading.
    name: Option<String>,
    /// Whether the directory had a store when it was opened; `false` if it was opened for reading.
    had_store: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    /// Another process, or another node of this process, uses the directory.
    #[error("another node uses it")]
    InUse,
    /// The directory holds files, but none of a node.
    #[error("it isn't empty and isn't a node's directory: it holds {file}")]
    Foreign {
        /// One of the files.
        file: String,
    },
    /// The system failed an operation on the directory.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl LockedDir {
    /// Opens a directory for a node; creates it if it doesn't exist. Removes the rights of other users, if the file
    /// system allows this.
    pub(crate) fn open(dir: &Path) -> Result<Self, DirectoryError> {
        private::make(dir)?;
        if let Some(file) = contents::foreign(dir)? {
            return Err(DirectoryError::Foreign { file });
        }
        // A file system may not have such rights, or may refuse to change them.
        if let Err(error) = private::tighten(dir, contents::is_ours) {
            tracing::warn!(%error, dir = %dir.display(), "the rights of other users on this directory can't be taken away");
        }
        sync_path(dir)?;
        let lock = private::options().create(true).truncate(false).write(true).open(dir.join(LOCK))?;
        own(system::lock(&lock)?)?;
        let mut locked = Self::of(dir, Some(lock), false)?;
        locked.name = locked.kept_name()?;
        let names = locked.names().map_err(io::Error::other)?;
        locked.had_store = names.iter().any(|name| name.starts_with("control-"));
        Ok(locked)
    }

    /// Opens a directory to read it. Writes nothing. While the result exists, no node can use the directory, unless it
    /// has no lock file: such a directory, for example a backup, is read without a lock.
    pub(crate) fn read_only(dir: &Path) -> Result<Self, DirectoryError> {
        let lock = match File::open(dir.join(LOCK)) {
            Ok(lock) => Some(lock),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        own(lock.as_ref().map_or(Ok(true), system::lock_shared)?)?;
        Self::of(dir, lock, true)
    }

    fn of(dir: &Path, lock: Option<File>, is_read_only: bool) -> Result<Self, DirectoryError> {
        let (handle, gate) = (File::open(dir)?, Arc::default());
        let (dir, lock) = (dir.to_owned(), lock.into());
        Ok(Self { dir, handle, is_read_only, gate, lock, name: None, had_store: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn had_store(&self) -> bool {
        self.had_store
    }

    /// Releases the directory, once pending operations have ended: another node may use it when this returns. Later
    /// operations on its names and contents fail.
    pub(crate) fn release(&self) {
        self.gate.close();
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(crate) fn is_released(&self) -> bool {
        self.gate.is_closed()
    }

    /// Begins an operation that ends when the result is dropped.
    #[cfg(test)]
    pub(crate) fn operation(&self) -> impl Sized + '_ {
        self.gate.pass("").unwrap()
    }

    /// The size of the whole file system in bytes.
    pub(crate) fn size(&self) -> io::Result<u64> {
        Ok(system::space(&self.handle)?.all)
    }

    fn opened(&self, file: File, name: &str) -> Box<dyn DiskFile> {
        Box::new(OpenFile { file, name: name.to_owned(), gate: self.gate.clone() })
    }

    fn may_write(&self, file: &str) -> Result<(), DiskError> {
        let error = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
        if self.is_read_only { Err(failed(file, &error)) } else { Ok(()) }
    }
}

fn own(is_locked: bool) -> Result<(), DirectoryError> {
    if is_locked { Ok(()) } else { Err(DirectoryError::InUse) }
}

/// Makes the directory's own entry durable, and the entries of the directories above it, where this process may read
/// them.
fn sync_path(dir: &Path) -> io::Result<()> {
    for parent in dir.canonicalize()?.ancestors().skip(1) {
        match File::open(parent).and_then(|parent| parent.sync_all()) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            // Some file systems can't sync directories. The node's directory may still be in another file system,
            // mounted below.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            synced => synced?,
        }
    }
    Ok(())
}

impl Disk for LockedDir {
    fn names(&self) -> Result<Vec<String>, DiskError> {
        self.gate.insist("", || {
            let mut names = Vec::new();
            for entry in fs::read_dir(&self.dir)? {
                let entry = entry?;
                if let Ok(name) = entry.file_name().into_string()
                    && name != LOCK
                    && !names::FILES.contains(&&*name)
                    && entry.file_type()?.is_file()
                {
                    names.push(name);
                }
            }
            names.sort_unstable();
            Ok(names)
        })
    }

    fn create(&self, name: &str) -> Result<Box<dyn DiskFile>, DiskError> {
        self.may_write(name)?;
        let (path, mut options) = (self.dir.join(name), private::options());
        options.read(true).write(true).create_new(true);
        Ok(self.opened(self.gate.insist(name, || options.open(&path))?, name))
    }

    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, DiskError> {
        let (path, mut options) = (self.dir.join(name), private::options());
        options.read(true).write(!self.is_read_only);
        let file = self.gate.insist_or(name, || options.open(&path), |error| unreadable(name, 0, error))?;
        Ok(self.opened(file, name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.may_write(from)?;
        let (from_path, to_path) = (self.dir.join(from), self.dir.join(to));
        self.gate.insist(from, || fs::rename(&from_path, &to_path))
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.may_write(name)?;
        let path = self.dir.join(name);
        self.gate.insist(name, || fs::remove_file(&path))
    }

    fn sync_names(&self) -> Result<(), DiskError> {
        let _use = self.gate.pass("")?;
        // A sync is never retried, whatever the error.
        self.handle.sync_all().map_err(|error| failed("", &error))
    }

    fn free(&self) -> Result<u64, DiskError> {
        Ok(system::space(&self.handle).map_err(|error| failed("", &error))?.free)
    }
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    name: String,
    gate: Arc<Gate>,
}

impl DiskFile for OpenFile {
    fn length(&self) -> Result<u64, DiskError> {
        Ok(self.file.metadata().map_err(|error| failed(&self.name, &error))?.len())
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        let mut read = 0;
        while read < into.len() {
            let from = at + read as u64;
            let lost = |error: &io::Error| unreadable(&self.name, from, error);
            match self.gate.insist_or(&self.name, || system::read_at(&self.file, &mut into[read..], from), lost)? {
                0 => break,
                more => read += more,
            }
        }
        Ok(read)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), DiskError> {
        // Some of the bytes may have been written. A retry writes the same bytes to the same place.
        self.gate.insist(&self.name, || system::write_all_at(&self.file, bytes, at))
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        let _use = self.gate.pass(&self.name)?;
        // Never retried, like the sync of names.
        self.file.sync_data().map_err(|error| failed(&self.name, &error))
    }
}

fn failed(file: &str, error: &io::Error) -> DiskError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskError::Full,
        io::ErrorKind::NotFound if !file.is_empty() => DiskError::Missing(file.to_owned()),
        io::ErrorKind::AlreadyExists => DiskError::Exists(file.to_owned()),
        _ => DiskError::Failed { file: file.to_owned(), why: error.to_string() },
    }
}

/// Like [`failed`], for an error on opening or reading a file. Some of these errors mean that the medium or the file
/// system has lost bytes.
fn unreadable(file: &str, at: u64, error: &io::Error) -> DiskError {
    if system::is_damage(error) {
        DiskError::Unreadable { file: file.to_owned(), at, why: error.to_string() }
    } else {
        failed(file, error)
    }
}

#[cfg(test)]
mod tests {
    use artillery_proto::disk::conformance;
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_directory_keeps_the_contract_of_a_disk() {
        let dir = tempfile::tempdir().unwrap();
        conformance::run(&LockedDir::open(&dir.path().join("a/b")).unwrap());
    }

    #[test]
    fn bytes_that_the_medium_has_lost_are_told_from_other_failures() {
        let error = unreadable("control-1", 4096, &Errno::IO.into());
        assert!(matches!(&error, DiskError::Unreadable { file, at: 4096, .. } if file == "control-1"), "{error:?}");
        assert!(matches!(unreadable("control-1", 0, &Errno::ACCESS.into()), DiskError::Failed { .. }));
        assert_eq!(unreadable("control-1", 0, &Errno::NOENT.into()), DiskError::Missing("control-1".to_owned()));
    }

    #[test]
    fn a_directory_is_used_by_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = LockedDir::open(dir.path()).unwrap();
        assert!(matches!(LockedDir::open(dir.path()), Err(DirectoryError::InUse)));
        assert!(matches!(LockedDir::read_only(dir.path()), Err(DirectoryError::InUse)));
        drop(first);
        LockedDir::open(dir.path()).unwrap();
    }

    #[test]
    fn a_directory_that_was_given_back_is_free_and_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let first = LockedDir::open(dir.path()).unwrap();
        let mut file = first.create("control-1").unwrap();
        file.write_at(0, b"abc").unwrap();
        first.release();
        let second = LockedDir::open(dir.path()).unwrap();
        let late = [
            file.write_at(0, b"d"),
            file.sync(),
            first.create("control-2").map(drop),
            first.rename("control-1", "control-2"),
        ];
        assert!(late.iter().all(|late| matches!(late, Err(DiskError::Failed { .. }))), "{late:?}");
        assert_eq!(
            (second.names().unwrap(), fs::read(dir.path().join("control-1")).unwrap()),
            (vec!["control-1".to_owned()], b"abc".to_vec())
        );
    }

    #[test]
    fn a_directory_that_is_read_stays_as_it_is_and_out_of_use() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(LockedDir::read_only(&dir.path().join("none")), Err(DirectoryError::Io(_))));
        assert!(LockedDir::read_only(dir.path()).is_ok(), "without a file to lock");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        LockedDir::open(dir.path()).unwrap().create("control-1").unwrap().write_at(0, b"abc").unwrap();
        let (disk, _second) = (LockedDir::read_only(dir.path()).unwrap(), LockedDir::read_only(dir.path()).unwrap());
        assert!(matches!(LockedDir::open(dir.path()), Err(DirectoryError::InUse)));
        assert_eq!(disk.open("control-1").unwrap().length(), Ok(3));
        let writes = [
            disk.create("control-2").map(drop),
            disk.rename("control-1", "control-2"),
            disk.remove("control-1"),
            disk.open("control-1").unwrap().write_at(0, b"d"),
        ];
        assert!(writes.iter().all(|write| matches!(write, Err(DiskError::Failed { .. }))), "{writes:?}");
        assert_eq!(fs::read(dir.path().join("control-1")).unwrap(), b"abc");
    }

    /// The lock is held while the control file may be written. Otherwise another incarnation might not know the
    /// promises of this one.
    #[test]
    fn a_directory_is_in_use_as_long_as_its_control_file_is() {
        use std::sync::Arc;

        use artillery_proto::{
            data_dir::{FoundStore, LoadedStore, OpenSettings},
            store::Store,
        };
        let dir = tempfile::tempdir().unwrap();
        let node = crate::NodeId::from_bytes([1; 16]);
        let settings =
            OpenSettings { segment_bytes: 1 << 20, room: 1 << 20, reserve: 1 << 20, ..OpenSettings::new(node) };
        let open = |draw| -> LoadedStore {
            let disk = LockedDir::open(dir.path()).expect("the directory is free");
            let store: Arc<dyn Store> = Arc::new(crate::store::MemoryStore::with_seed(1));
            FoundStore::check(Arc::new(disk), settings.clone(), draw).unwrap().open(&store, draw).unwrap()
        };
        let LoadedStore { control, journal, .. } = open(1);
        // The journal's thread ends first, when a node stops or its disk fails. The log's group may still answer.
        drop(journal);
        assert!(matches!(LockedDir::open(dir.path()), Err(DirectoryError::InUse)));
        control.change(|record| record.log = b"a vote in term 9".to_vec()).unwrap();
        drop(control);
        assert_eq!(open(2).control.look(|record| record.log.clone()), b"a vote in term 9");
    }
}
