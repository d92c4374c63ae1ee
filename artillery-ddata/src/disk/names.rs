//! The names of the node and the cluster, each in a small file of the directory. They are hints: the control file takes
//! precedence.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
};

use super::{LockedDir, private};

/// The name of the node, for starts that give none.
const NODE: NameFile = NameFile { file: "NAME", new: "NAME.new" };
/// The name of the cluster, for stores that belong to none yet or can't be read.
const CLUSTER: NameFile = NameFile { file: "CLUSTER", new: "CLUSTER.new" };
/// The names of all these files.
pub(super) const FILES: [&str; 4] = [NODE.file, NODE.new, CLUSTER.file, CLUSTER.new];
/// Longer contents of a file are not a name.
const MAX_NAME_BYTES: usize = 1024;

struct NameFile {
    file: &'static str,
    /// The name of the file while it is written.
    new: &'static str,
}

impl LockedDir {
    /// The name of the node that was stored last; `None`: no file exists, or its contents are not a name.
    pub(crate) fn kept_name(&self) -> io::Result<Option<String>> {
        let name = self.kept(&NODE)?.map(|name| name.trim_end().to_owned());
        Ok(name.filter(|name| !name.is_empty()))
    }

    /// Stores the node's name. It is durable when this returns.
    pub(crate) fn keep_name(&self, name: &str) -> io::Result<()> {
        if self.kept_name()?.as_deref() == Some(name) { Ok(()) } else { self.keep(&NODE, name) }
    }

    /// The name of the cluster that was stored last; `None`: no file exists, its contents are not a name, or it can't
    /// be read.
    pub(crate) fn kept_cluster(&self) -> Option<String> {
        self.kept(&CLUSTER).unwrap_or_else(|error| {
            tracing::warn!(%error, "the file CLUSTER can't be read");
            None
        })
    }

    /// Stores the cluster's name. It is durable when this returns.
    pub(crate) fn keep_cluster(&self, name: &str) -> io::Result<()> {
        if self.kept_cluster().as_deref() == Some(name) { Ok(()) } else { self.keep(&CLUSTER, name) }
    }

    fn kept(&self, of: &NameFile) -> io::Result<Option<String>> {
        let file = match File::open(self.dir.join(of.file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        // One byte more for the end of the line, and another one to recognize a name that is too long.
        file.take(MAX_NAME_BYTES as u64 + 2).read_to_end(&mut bytes)?;
        let Ok(text) = String::from_utf8(bytes) else { return Ok(None) };
        let name = text.strip_suffix('\n').unwrap_or(&text);
        // Some file systems show zeros after a crash.
        let is_one = (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.contains('\0');
        Ok(is_one.then(|| name.to_owned()))
    }

    fn keep(&self, of: &NameFile, name: &str) -> io::Result<()> {
        let mut file = private::options().create(true).truncate(true).write(true).open(self.dir.join(of.new))?;
        file.write_all(format!("{name}\n").as_bytes())?;
        file.sync_all()?;
        fs::rename(self.dir.join(of.new), self.dir.join(of.file))?;
        self.handle.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use artillery_proto::disk::Disk as _;

    use super::*;

    #[test]
    fn a_directory_keeps_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let disk = LockedDir::open(dir.path()).unwrap();
        assert_eq!(disk.kept_name().unwrap(), None);
        disk.keep_name("db-1").unwrap();
        disk.keep_name("db-1").unwrap();
        assert_eq!((disk.kept_name().unwrap().as_deref(), disk.names().unwrap().len()), (Some("db-1"), 0));
        fs::write(dir.path().join("NAME"), [0xff; 9]).unwrap();
        assert_eq!(disk.kept_name().unwrap(), None);
    }

    #[test]
    fn a_directory_keeps_the_name_of_its_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let disk = LockedDir::open(dir.path()).unwrap();
        assert_eq!(disk.kept_cluster(), None);
        // Names of clusters are compared without trimming.
        for name in ["shop", " shop ", "shop\n"] {
            disk.keep_cluster(name).unwrap();
            disk.keep_cluster(name).unwrap();
            assert_eq!((disk.kept_cluster().as_deref(), disk.kept_name().unwrap()), (Some(name), None));
        }
        disk.keep_name("db-1").unwrap();
        assert_eq!((disk.kept_cluster().as_deref(), disk.names().unwrap().len()), (Some("shop\n"), 0));
        // A directory in its place can't be read as a file.
        fs::remove_file(dir.path().join("CLUSTER")).unwrap();
        fs::create_dir(dir.path().join("CLUSTER")).unwrap();
        assert_eq!(disk.kept_cluster(), None);
        fs::remove_dir(dir.path().join("CLUSTER")).unwrap();
        for no_name in [&[][..], b"\n", &[0xff; 9], &[0; 9], &[b'a'; 1025]] {
            fs::write(dir.path().join("CLUSTER"), no_name).unwrap();
            assert_eq!(disk.kept_cluster(), None, "{no_name:?}");
            // A name that a crash cut short.
            fs::write(dir.path().join("CLUSTER.new"), "sh").unwrap();
            assert_eq!(disk.names().unwrap().len(), 0);
            disk.keep_cluster("shop").unwrap();
            assert_eq!(fs::read(dir.path().join("CLUSTER")).unwrap(), b"shop\n");
        }
    }
}
