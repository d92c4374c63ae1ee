//! Where the nodes keep their data and logs: a temporary directory, deleted at the end.

use std::{
    env,
    fs::{self, DirBuilder},
    io::{self, ErrorKind},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use artillery_programs::{chance::token, exit::Failure};

/// How often a removal is tried. A process that is about to end may still create a file during the first ones.
const REMOVALS: usize = 1000;

/// The directory of a demo, and the name of its cluster.
pub(super) struct Place {
    pub(super) dir: PathBuf,
    pub(super) cluster: String,
}

impl Place {
    /// A new directory, for this user alone.
    pub(super) fn new() -> Result<Self, Failure> {
        let cluster = format!("demo-{}", &token()[..6]);
        let dir = env::temp_dir().join(format!("artillery-{cluster}"));
        let made = DirBuilder::new().mode(0o700).create(&dir);
        made.map_err(|error| Failure::failed(format!("{}: {error}", dir.display())))?;
        Ok(Self { dir, cluster })
    }

    /// Deletes the directory.
    pub(super) fn remove(self) -> Result<(), Failure> {
        remove(&self.dir).map_err(|error| Failure::failed(format!("{} remains: {error}", self.dir.display())))
    }
}

/// Deletes a directory that processes may still write to or delete, too.
pub(super) fn remove(dir: &Path) -> io::Result<()> {
    let mut removed = fs::remove_dir_all(dir);
    for _ in 1..REMOVALS {
        match removed {
            Err(error) if error.kind() == ErrorKind::NotFound && !dir.exists() => return Ok(()),
            Err(_) => removed = fs::remove_dir_all(dir),
            Ok(()) => break,
        }
    }
    removed
}
