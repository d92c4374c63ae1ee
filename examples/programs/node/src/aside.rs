//! Moves an unusable directory aside; it is never deleted.

use std::{
    env,
    fs::{self, File},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use artillery_programs::exit::Failure;

use crate::system;

/// The files with the names of the node and its cluster.
const NAMES: [&str; 2] = ["NAME", "CLUSTER"];
/// The file that a running node locks.
const LOCK: &str = "LOCK";
/// Prefix of the control files, without which the journal is meaningless.
const CONTROL: &str = "control-";
/// The directory that a file system keeps at its root.
const LOST_AND_FOUND: &str = "lost+found";

/// Renames a directory to `DIR.WHY-N`, with the lowest free number. A new directory in its place keeps the names of the
/// node and its cluster.
///
/// If the directory must stay, for example because it is a mount point, its contents are moved to `DIR/WHY-N`. In both
/// cases the data stays on its disk, even if `dir` is a symbolic link.
pub(super) fn move_aside(dir: &Path, why: &str) -> Result<PathBuf, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("{} can't be moved aside: {error}", dir.display()));
    let current = env::current_dir().ok();
    move_resolved(&dir.canonicalize().map_err(failed)?, why, current.as_deref()).map_err(failed)
}

fn move_resolved(dir: &Path, why: &str, current: Option<&Path>) -> io::Result<PathBuf> {
    // If the working directory were renamed, relative paths would still lead to it and reopen the old data.
    if current.is_some_and(|current| current.starts_with(dir)) {
        return move_contents(dir, why);
    }
    let mut beside = dir.as_os_str().to_owned();
    beside.push(format!(".{why}-"));
    let aside = free(&beside)?;
    match fs::rename(dir, &aside) {
        Ok(()) => {
            system::private_directory(dir)?;
            keep_names(&aside, dir)?;
            Ok(aside)
        }
        Err(error) if can_stay(error.kind()) => move_contents(dir, why),
        Err(error) => Err(error),
    }
}

/// Whether the contents of a directory that can't be renamed may be moved instead: it is a mount point, or its parent
/// directory isn't writable for this process.
fn can_stay(kind: ErrorKind) -> bool {
    let stay = [
        ErrorKind::ResourceBusy,
        ErrorKind::CrossesDevices,
        ErrorKind::PermissionDenied,
        ErrorKind::ReadOnlyFilesystem,
    ];
    stay.contains(&kind)
}

/// Moves a directory's contents into a subdirectory, which nodes ignore. The names are copied, and also stay. The lock
/// file stays, since a node may hold it, and so do hidden files, `lost+found` and earlier subdirectories of this kind.
fn move_contents(dir: &Path, why: &str) -> io::Result<PathBuf> {
    let aside = free(dir.join(format!("{why}-")).as_os_str())?;
    system::private_directory(&aside)?;
    keep_names(dir, &aside)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let text = name.to_string_lossy();
        let stays = [LOCK, LOST_AND_FOUND].contains(&&*text)
            || NAMES.contains(&&*text)
            || text.starts_with('.')
            || is_aside(&text);
        if !stays {
            names.push(name);
        }
    }
    // Control files first: a journal alone is no store, so if this ends halfway, the rest is treated as damaged.
    let (control, rest): (Vec<_>, _) = names.into_iter().partition(|name| name.to_string_lossy().starts_with(CONTROL));
    for part in [control, rest] {
        for name in part {
            fs::rename(dir.join(&name), aside.join(&name))?;
        }
        File::open(&aside)?.sync_all()?;
        File::open(dir)?.sync_all()?;
    }
    Ok(aside)
}

/// Whether this is the name of an earlier result of [`move_contents`].
fn is_aside(name: &str) -> bool {
    ["damaged-", "given-up-"]
        .iter()
        .any(|why| name.strip_prefix(why).is_some_and(|number| number.parse::<u32>().is_ok()))
}

fn keep_names(from: &Path, to: &Path) -> io::Result<()> {
    for name in NAMES {
        if from.join(name).is_file() {
            fs::copy(from.join(name), to.join(name))?;
            system::make_private(&to.join(name))?;
        }
    }
    Ok(())
}

/// The path `beginning`, followed by the lowest free number.
fn free(beginning: &std::ffi::OsStr) -> io::Result<PathBuf> {
    let numbered = |number: u32| {
        let mut path = beginning.to_owned();
        path.push(number.to_string());
        PathBuf::from(path)
    };
    // A path that can't be inspected isn't free.
    let is_free = |path: &PathBuf| path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    (1..=u32::MAX).map(numbered).find(is_free).ok_or_else(|| io::Error::other("no free name for the directory"))
}

#[cfg(test)]
mod tests;
