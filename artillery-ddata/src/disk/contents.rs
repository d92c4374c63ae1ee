//! The contents of a directory besides a node's files, and whether it is a node's directory at all.

use std::{ffi::OsStr, fs, io, path::Path};

use super::{LOCK, names};

/// All files that a node creates besides [`LOCK`] and those of [`names`] have names that begin with one of these.
const STEMS: [&str; 4] = ["control-", "control.", "journal-", "journal."];
const BALLAST: &str = "ballast";
/// File systems have it at their root.
const LOST_AND_FOUND: &str = "lost+found";
/// A directory of this name, followed by a number, has contents that were moved aside.
const ASIDE: [&str; 2] = ["damaged-", "given-up-"];

/// Whether a node gives a file this name.
pub(super) fn is_ours(name: &str) -> bool {
    [LOCK, BALLAST].contains(&name) || names::FILES.contains(&name) || STEMS.iter().any(|stem| name.starts_with(stem))
}

/// The name of an entry that shows that a directory isn't a node's and isn't empty either; `None`: it is, or has nothing that counts.
pub(super) fn foreign(dir: &Path) -> io::Result<Option<String>> {
    let mut found = None;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(is_ours) {
            return Ok(None);
        }
        if !(entry.file_type()?.is_dir() && is_neutral(&name)) {
            // The first one in order, so that each start reports the same one.
            found = found.into_iter().chain([name]).min();
        }
    }
    Ok(found.map(|name| name.to_string_lossy().into_owned()))
}

/// Whether a directory of this name may be in an empty one: snapshots of the file system, or contents that were moved aside.
fn is_neutral(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let numbered = |stem: &&str| name.strip_prefix(stem).is_some_and(|number| number.parse::<u32>().is_ok());
    name.starts_with('.') || name == LOST_AND_FOUND || ASIDE.iter().any(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DirectoryError, FileDisk};

    fn open(entries: &[&str]) -> Result<FileDisk, DirectoryError> {
        let dir = tempfile::tempdir().unwrap();
        for entry in entries {
            match entry.strip_suffix('/') {
                Some(below) => fs::create_dir(dir.path().join(below)).unwrap(),
                None => fs::write(dir.path().join(entry), "").unwrap(),
            }
        }
        let opened = FileDisk::open(dir.path());
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
                matches!(&refused, Err(DirectoryError::Foreign { found }) if found == "readme.txt"),
                "{entries:?}: {refused:?}"
            );
        }
        for entry in ["damaged-x/", "damaged-1", ".profile"] {
            assert!(matches!(open(&[entry]), Err(DirectoryError::Foreign { .. })), "{entry}");
        }
    }

    #[test]
    fn an_empty_directory_and_one_of_a_node_are_taken() {
        let empty = [&[][..], &["lost+found/"], &[".snapshot/", "lost+found/"], &["damaged-1/", "given-up-12/"]];
        let ours = [
            &["NAME", "readme.txt"][..],
            &["CLUSTER", "a"],
            &["CLUSTER.new", "a"],
            &["control-2", "a"],
            &["journal-0000000007", "a"],
            &["LOCK", "a"],
        ];
        for entries in empty.into_iter().chain(ours) {
            open(entries).unwrap();
        }
    }
}
