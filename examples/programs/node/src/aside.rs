//! A directory that can't be used any more is moved aside, and never deleted.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The file of a directory that holds the node's name.
const NAME: &str = "NAME";

/// Renames a directory to `DIR.WHY-N`, with the first number that is free. A new one in its place keeps the node's name.
pub(super) fn move_aside(dir: &Path, why: &str) -> io::Result<PathBuf> {
    let named = |number: u32| {
        let mut name = dir.as_os_str().to_owned();
        name.push(format!(".{why}-{number}"));
        PathBuf::from(name)
    };
    let free = (1..=u32::MAX).map(named).find(|aside| !aside.exists());
    let aside = free.ok_or_else(|| io::Error::other("no name is free for the directory"))?;
    fs::rename(dir, &aside)?;
    if aside.join(NAME).is_file() {
        fs::create_dir(dir)?;
        fs::copy(aside.join(NAME), dir.join(NAME))?;
    }
    Ok(aside)
}
