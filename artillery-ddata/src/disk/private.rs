//! Keeps other users of the machine from reading or locking a node's files.

use std::{
    fs::{self, OpenOptions},
    io,
    path::Path,
};

use crate::system;

/// Creates a directory and its missing parents.
pub(super) fn make(dir: &Path) -> io::Result<()> {
    system::private_directories().create(dir)
}

pub(super) fn options() -> OpenOptions {
    system::private_files()
}

/// Removes the rights of other users on the directory and the node's files, except where another user is the owner.
/// `is_ours`: whether a node uses this name for a file.
pub(super) fn tighten(dir: &Path, is_ours: fn(&str) -> bool) -> io::Result<()> {
    // Restrict the directory first, so that no other user can replace a file with a link.
    let mut is_changed = restrict(dir, &fs::metadata(dir)?)?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let found = entry.metadata()?;
        if found.is_file() && entry.file_name().to_str().is_some_and(is_ours) {
            is_changed |= restrict(&entry.path(), &found)?;
        }
    }
    if is_changed {
        tracing::info!(dir = %dir.display(), "other users could read this directory or its files: now only this node's user can");
    }
    Ok(())
}

fn restrict(path: &Path, found: &fs::Metadata) -> io::Result<bool> {
    let Some(permissions) = system::without_others(found) else { return Ok(false) };
    fs::set_permissions(path, permissions)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::Permissions,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    };

    use artillery_proto::disk::Disk as _;

    use super::*;
    use crate::disk::LockedDir;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn what_is_made_belongs_to_one_user() {
        let dir = tempfile::tempdir().unwrap();
        let of_node = dir.path().join("a/b");
        let disk = LockedDir::open(&of_node).unwrap();
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
        LockedDir::open(dir.path()).unwrap();
        let (ours, other) = all.split_at(7);
        for name in ours {
            assert_eq!(mode(&dir.path().join(name)), 0o600, "{name}");
        }
        assert_eq!((mode(dir.path()), mode(&dir.path().join(other[0]))), (0o700, 0o644), "a file that isn't ours");
    }
}
