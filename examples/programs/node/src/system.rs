//! Functions that depend on the operating system: the limit of descriptors, permissions, and replacing the process.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::{
        fs::{DirBuilderExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::Path,
    process::Command,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft and the hard limit of file descriptors; `None`: unlimited.
pub(super) fn descriptors() -> (Option<u64>, Option<u64>) {
    let limits = getrlimit(Resource::Nofile);
    (limits.current, limits.maximum)
}

pub(super) fn set_descriptors(soft: u64) -> io::Result<()> {
    let limits = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(soft), ..limits })?)
}

/// Creates a directory that only this process's user may use.
pub(super) fn private_directory(dir: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(dir)
}

/// Restricts a file to this process's user.
pub(super) fn make_private(file: &Path) -> io::Result<()> {
    fs::set_permissions(file, Permissions::from_mode(0o600))
}

/// Replaces this process with another program, which keeps the process id. Returns only on failure.
pub(super) fn replace(command: &mut Command) -> io::Error {
    command.exec()
}
