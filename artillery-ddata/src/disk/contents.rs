//! The contents of a directory besides a node's files, and whether it is a node's directory at all.

use std::{ffi::OsStr, fs, io, path::Path};

use super::{LOCK, names};

/// Files of the store with fixed names.
const OTHER: [&str; 2] = ["control.new", "journal.new"];
/// The store's other files have one of these prefixes, followed by a number.
const NUMBERED: [&str; 2] = ["control-", "journal-"];
const BALLAST: &str = "ballast";
/// Some file systems have a directory of this name at their root.
const LOST_AND_FOUND: &str = "lost+found";
/// Subdirectories with one of these prefixes, followed by a number, hold contents that were moved aside.
const ASIDE: [&str; 2] = ["damaged-", "given-up-"];

/// Whether a node uses this name for a file.
pub(super) fn is_ours(name: &str) -> bool {
    [LOCK, BALLAST].contains(&name) || is_proof(name)
}

/// Whether a file of this name proves that the directory is a node's. `LOCK` doesn't: databases use this name, too.
fn is_proof(name: &str) -> bool {
    let is_number = |end: &str| !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit());
    let numbered = |stem: &&str| name.strip_prefix(stem).is_some_and(is_number);
    names::FILES.contains(&name) || OTHER.contains(&name) || NUMBERED.iter().any(numbered)
}

/// The name of an entry that doesn't belong to a node, if the directory isn't a node's. `None`: it is a node's, or has
/// no such entry.
pub(super) fn foreign(dir: &Path) -> io::Result<Option<String>> {
    let mut found = None;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        let ours = name.to_str().filter(|_| kind.is_file());
        if ours.is_some_and(is_proof) {
            return Ok(None);
        }
        if !(ours.is_some_and(is_ours) || kind.is_dir() && is_neutral(&name)) {
            // The first name in order, so that each start reports the same one.
            found = found.into_iter().chain([name]).min();
        }
    }
    Ok(found.map(|name| name.to_string_lossy().into_owned()))
}

/// Whether a subdirectory of this name is ignored: a hidden one, one of the file system, or contents that were moved
/// aside.
fn is_neutral(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let numbered = |stem: &&str| name.strip_prefix(stem).is_some_and(|number| number.parse::<u32>().is_ok());
    name.starts_with('.') || name == LOST_AND_FOUND || ASIDE.iter().any(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DirectoryError, LockedDir};

    fn open(entries: &[&str]) -> Result<LockedDir, DirectoryError> {
        let dir = tempfile::tempdir().unwrap();
        for entry in entries {
            match entry.strip_suffix('/') {
                Some(below) => fs::create_dir(dir.path().join(below)).unwrap(),
                None => fs::write(dir.path().join(entry), "").unwrap(),
            }
        }
        let opened = LockedDir::open(dir.path());
        if opened.is_err() {
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), entries.len(), "nothing was added");
        }
        opened
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        for entries in [&["readme.txt"][..], &[".snapshot/", "readme.txt"], &["zoo/", "readme.txt", "lost+found/"]] {
            let refused = open(entries);
            assert!(
                matches!(&refused, Err(DirectoryError::Foreign { file }) if file == "readme.txt"),
                "{entries:?}: {refused:?}"
            );
        }
        for entry in ["damaged-x/", "damaged-1", ".profile", "journal-2024-11", "control-center", "journal-2024/"] {
            assert!(matches!(open(&[entry]), Err(DirectoryError::Foreign { .. })), "{entry}");
        }
        // The files of a database.
        assert!(matches!(open(&["CURRENT", "LOCK", "MANIFEST-000004"]), Err(DirectoryError::Foreign { .. })));
    }

    #[test]
    fn an_empty_directory_and_one_of_a_node_are_taken() {
        let empty =
            [&[][..], &["LOCK"], &["lost+found/"], &[".snapshot/", "lost+found/"], &["damaged-1/", "given-up-12/"]];
        let ours = [
            &["NAME", "readme.txt"][..],
            &["CLUSTER", "a"],
            &["CLUSTER.new", "a"],
            &["control-2", "a"],
            &["journal-0000000007", "a"],
            &["journal.new", "LOCK"],
        ];
        for entries in empty.into_iter().chain(ours) {
            open(entries).unwrap();
        }
    }
}
