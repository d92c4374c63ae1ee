//! Other users of the machine neither read nor lock a node's files.

use std::{
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use super::contents::is_ours;

const DIRECTORY: u32 = 0o700;
const FILE: u32 = 0o600;
/// The permissions of the group and of all others.
const OTHERS: u32 = 0o077;

/// Creates a directory and its missing parents.
pub(super) fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY).create(dir)
}

/// Options to make a file.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE);
    options
}

/// Takes the rights of other users away from a directory of ours and from its files, if this process owns them: earlier releases
/// gave such rights.
pub(super) fn tighten(dir: &Path) -> io::Result<()> {
    let me = rustix::process::geteuid().as_raw();
    // The directory first: then no other user puts a link in the place of a file.
    let mut is_changed = restrict(dir, me, fs::metadata(dir)?)?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let found = entry.metadata()?;
        if found.is_file() && entry.file_name().to_str().is_some_and(is_ours) {
            is_changed |= restrict(&entry.path(), me, found)?;
        }
    }
    if is_changed {
        tracing::info!(dir = %dir.display(), "other users could read this directory or its files: now only this node's user can");
    }
    Ok(())
}

fn restrict(path: &Path, me: u32, found: fs::Metadata) -> io::Result<bool> {
    let mode = found.mode() & 0o7777;
    if found.uid() != me || mode & OTHERS == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use artillery_proto::disk::Disk as _;

    use super::*;
    use crate::disk::FileDisk;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn what_is_made_belongs_to_one_user() {
        let dir = tempfile::tempdir().unwrap();
        let of_node = dir.path().join("a/b");
        let disk = FileDisk::open(&of_node).unwrap();
        disk.keep_name("db-1").unwrap();
        disk.keep_cluster("shop").unwrap();
        disk.create("journal-0000000001").unwrap();
        let modes = ["", "LOCK", "NAME", "CLUSTER", "journal-0000000001"].map(|name| mode(&of_node.join(name)));
        assert_eq!(modes, [0o700, 0o600, 0o600, 0o600, 0o600]);
    }

    #[test]
    fn rights_of_other_users_are_taken_away_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let all = ["LOCK", "NAME", "CLUSTER", "control-1", "control-2", "journal-0000000001", "ballast", "readme.txt"];
        for name in all {
            fs::write(dir.path().join(name), "").unwrap();
            fs::set_permissions(dir.path().join(name), Permissions::from_mode(0o644)).unwrap();
        }
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        FileDisk::open(dir.path()).unwrap();
        let (ours, other) = all.split_at(7);
        for name in ours {
            assert_eq!(mode(&dir.path().join(name)), 0o600, "{name}");
        }
        assert_eq!((mode(dir.path()), mode(&dir.path().join(other[0]))), (0o700, 0o644), "a file that isn't ours");
    }
}
