//! A directory that can't be used any more is moved aside, and never deleted.

use std::{
    env,
    fs::{self, File},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use artillery_programs::exit::Failure;

use crate::system;

/// The files of a directory that hold the names of the node and its cluster.
const NAMES: [&str; 2] = ["NAME", "CLUSTER"];
/// The file that a node locks.
const LOCK: &str = "LOCK";
/// The journal means nothing without these files.
const CONTROL: &str = "control-";
/// File systems have it at their root, and it belongs to them.
const LOST_AND_FOUND: &str = "lost+found";

/// Renames a directory to `DIR.WHY-N`, with the first number that is free. A new one in its place keeps the names of the
/// node and its cluster.
///
/// Where a directory can't be renamed, as one that is a mount point, its contents are moved to `DIR/WHY-N`. The data stays on its
/// disk in both cases, also if `dir` is a symbolic link.
pub(super) fn move_aside(dir: &Path, why: &str) -> Result<PathBuf, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("{} can't be moved aside: {error}", dir.display()));
    let current = env::current_dir().ok();
    move_resolved(&dir.canonicalize().map_err(failed)?, why, current.as_deref()).map_err(failed)
}

fn move_resolved(dir: &Path, why: &str, current: Option<&Path>) -> io::Result<PathBuf> {
    // A process takes its working directory along when that is renamed, and would open the old one by a relative name again.
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

/// Whether a directory that can't be renamed may have its contents moved all the same: it is a mount point, or the directory
/// above it belongs to another user or may not be written.
fn can_stay(kind: ErrorKind) -> bool {
    let stay = [
        ErrorKind::ResourceBusy,
        ErrorKind::CrossesDevices,
        ErrorKind::PermissionDenied,
        ErrorKind::ReadOnlyFilesystem,
    ];
    stay.contains(&kind)
}

/// Moves a directory's contents into a subdirectory, which nodes ignore. The lock stays: a node may hold it.
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
    // The control file first: a journal alone is no store, so the rest is treated as damaged if this ends half-way.
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

/// Whether it is an earlier result of [`move_contents`].
fn is_aside(name: &str) -> bool {
    ["damaged-", "given-up-"]
        .iter()
        .any(|why| name.strip_prefix(why).is_some_and(|number| number.parse::<u32>().is_ok()))
}

/// Copies, with which the next node of `to` has the name and the cluster of the last one of `from`.
fn keep_names(from: &Path, to: &Path) -> io::Result<()> {
    for name in NAMES {
        if from.join(name).is_file() {
            fs::copy(from.join(name), to.join(name))?;
            system::make_private(&to.join(name))?;
        }
    }
    Ok(())
}

/// The path that begins so, with the first number behind it that is free.
fn free(beginning: &std::ffi::OsStr) -> io::Result<PathBuf> {
    let numbered = |number: u32| {
        let mut path = beginning.to_owned();
        path.push(number.to_string());
        PathBuf::from(path)
    };
    // What can't be looked at isn't free.
    let is_free = |path: &PathBuf| path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    (1..=u32::MAX).map(numbered).find(is_free).ok_or_else(|| io::Error::other("no name is free for the directory"))
}

#[cfg(test)]
mod tests;
