//! The directories of nodes, and the faults applied to them while a node is down.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use artillery_programs::{chance::Dice, exit::Failure};
use tokio::time::Instant;

use super::fault::name;

/// After this time the other nodes know a newer state of a store than its copy holds: they receive its state every five
/// seconds, and persist it at most every ten.
const HEARD: Duration = Duration::from_secs(12);
/// A copy older than this is replaced.
const COPY_AGE: Duration = Duration::from_secs(60);
const JOURNAL: &str = "journal-";

struct Copy {
    made: Instant,
    /// Set once the node has been started with the directory after the copy was made.
    is_behind: bool,
}

#[derive(Default)]
struct DirectoryState {
    copy: Option<Copy>,
    started: Option<Instant>,
}

pub(super) struct Directories {
    root: PathBuf,
    states: Mutex<Vec<DirectoryState>>,
}

impl Directories {
    /// Creates no directory: nodes create their own.
    pub(super) fn new(root: PathBuf, nodes: usize) -> Self {
        Self { root, states: Mutex::new((0..nodes).map(|_| DirectoryState::default()).collect()) }
    }

    fn states(&self) -> MutexGuard<'_, Vec<DirectoryState>> {
        // A state is written as a whole, so a poisoned lock is harmless.
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, node: usize) -> PathBuf {
        self.root.join(name(node))
    }

    fn copy_of(&self, node: usize) -> PathBuf {
        self.root.join(format!("{}.copy", name(node)))
    }

    pub(super) fn starts(&self, node: usize) {
        let state = &mut self.states()[node];
        state.started = Some(Instant::now());
        if let Some(copy) = &mut state.copy {
            copy.is_behind = true;
        }
    }

    /// Copies the directory of a node, unless the existing copy is young enough. The node must not write during the
    /// copy.
    pub(super) fn keep_copy(&self, node: usize) -> Result<(), Failure> {
        let is_young = |copy: &Copy| copy.made.elapsed() < COPY_AGE;
        if self.states()[node].copy.as_ref().is_some_and(is_young) {
            return Ok(());
        }
        let (from, to) = (self.of(node), self.copy_of(node));
        copy(&from, &to).map_err(|error| failed(&from, &error))?;
        self.states()[node].copy = Some(Copy { made: Instant::now(), is_behind: false });
        Ok(())
    }

    /// Whether the other nodes certainly know that the copy of this node's directory is older than the directory
    /// itself. They do after [`HEARD`], if the node serves or was restarted after the copy was made.
    pub(super) fn has_older_copy(&self, node: usize, serves: bool) -> bool {
        let states = self.states();
        let DirectoryState { copy: Some(copy), started: Some(started) } = &states[node] else { return false };
        copy.made.elapsed() > HEARD && started.elapsed() > HEARD && (copy.is_behind || serves)
    }

    /// Replaces the directory with its copy.
    pub(super) fn restore(&self, node: usize) -> Result<(), Failure> {
        let (dir, from) = (self.of(node), self.copy_of(node));
        remove(&dir)?;
        fs::rename(&from, &dir).map_err(|error| failed(&from, &error))?;
        self.states()[node].copy = None;
        Ok(())
    }

    /// Deletes the directory and its copy: the next directory belongs to a new store.
    pub(super) fn wipe(&self, node: usize) -> Result<(), Failure> {
        remove(&self.of(node))?;
        self.forget_copy(node)
    }

    /// Flips a bit in one file and returns the file's name.
    pub(super) fn damage(&self, node: usize, dice: &mut Dice) -> Result<String, Failure> {
        let dir = self.of(node);
        let wrong = |error: io::Error| failed(&dir, &error);
        let mut files = names(&dir).map_err(wrong)?;
        files.retain(|file| fs::metadata(dir.join(file)).is_ok_and(|file| file.len() > 0));
        // Damage in one of the two control files is harmless, so most damage goes to the journal.
        let wanted = dice.below(4) > 0;
        let of_kind: Vec<_> = files.iter().filter(|file| file.starts_with(JOURNAL) == wanted).collect();
        let place = dice.below(of_kind.len().max(1) as u64) as usize;
        let file = of_kind.get(place).ok_or_else(|| Failure::failed(format!("{} is empty", dir.display())))?;
        let path = dir.join(file);
        let mut bytes = fs::read(&path).map_err(wrong)?;
        let begin = dice.below(bytes.len() as u64) as usize;
        // Most of a journal is padding, which no node reads.
        let at = (begin..bytes.len()).chain(0..begin).find(|at| bytes[*at] != 0).unwrap_or(begin);
        bytes[at] ^= 1 << dice.below(8);
        // Write a new file: a copy may share the old one through a hard link.
        fs::remove_file(&path).and_then(|()| fs::write(&path, bytes)).map_err(wrong)?;
        Ok((*file).clone())
    }

    /// Deletes the damaged directory that the node has moved aside. Returns whether there was one.
    pub(super) fn take_damaged(&self, node: usize) -> Result<bool, Failure> {
        let aside = self.root.join(format!("{}.damaged-1", name(node)));
        let is_there = aside.is_dir();
        remove(&aside)?;
        self.forget_copy(node)?;
        Ok(is_there)
    }

    fn forget_copy(&self, node: usize) -> Result<(), Failure> {
        self.states()[node].copy = None;
        remove(&self.copy_of(node))
    }
}

/// Copies a directory. Older journal files never change, so they are hard-linked; all other files are copied.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir(to)?;
    let files = names(from)?;
    let newest = files.iter().filter(|file| file.starts_with(JOURNAL)).max().cloned();
    for file in files {
        let (old, new) = (from.join(&file), to.join(&file));
        if file.starts_with(JOURNAL) && Some(&file) != newest.as_ref() {
            fs::hard_link(old, new)?;
        } else {
            fs::copy(old, new)?;
        }
    }
    Ok(())
}

fn names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for file in fs::read_dir(dir)? {
        names.push(file?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn remove(dir: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(dir, &error)),
        _ => Ok(()),
    }
}

fn failed(dir: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", dir.display()))
}

#[cfg(test)]
mod tests {
    use artillery_programs::chance::token;

    use super::*;

    struct Rig(Directories);

    impl Rig {
        /// Node 0 has a directory with a journal of two files.
        fn new() -> Self {
            let root = std::env::temp_dir().join(format!("artillery-directories-{}", token()));
            let rig = Self(Directories::new(root, 2));
            fs::create_dir_all(rig.0.of(0)).unwrap();
            fs::write(rig.0.of(0).join("LOCK"), "").unwrap();
            rig.write("journal-0000000001", "old");
            rig.write("journal-0000000002", "new");
            rig.write("control-1", "first");
            rig
        }

        fn write(&self, file: &str, text: &str) {
            fs::write(self.0.of(0).join(file), text).unwrap();
        }

        fn read(&self, file: &str) -> String {
            String::from_utf8_lossy(&fs::read(self.0.of(0).join(file)).unwrap()).into_owned()
        }
    }

    impl Drop for Rig {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.root);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_brings_back_what_was_there() {
        let rig = Rig::new();
        rig.0.starts(0);
        rig.0.keep_copy(0).unwrap();
        rig.write("journal-0000000002", "newer");
        rig.write("control-1", "second");
        rig.0.damage(0, &mut Dice::new(1)).unwrap();
        tokio::time::advance(HEARD / 2).await;
        assert!(!rig.0.has_older_copy(0, true), "the others may not have received it yet");
        tokio::time::advance(HEARD).await;
        assert!(rig.0.has_older_copy(0, true));
        assert!(!rig.0.has_older_copy(0, false), "it may have written nothing");
        rig.0.starts(0);
        tokio::time::advance(HEARD * 2).await;
        assert!(rig.0.has_older_copy(0, false));
        rig.0.restore(0).unwrap();
        let files = ["journal-0000000001", "journal-0000000002", "control-1"];
        assert_eq!(files.map(|file| rig.read(file)), ["old", "new", "first"]);
        assert!(!rig.0.has_older_copy(0, true));
    }

    #[tokio::test]
    async fn a_wiped_directory_takes_its_copy_along() {
        let rig = Rig::new();
        rig.0.keep_copy(0).unwrap();
        rig.0.wipe(0).unwrap();
        assert!(!rig.0.of(0).exists() && !rig.0.copy_of(0).exists());
    }

    #[test]
    fn damage_is_one_bit_of_the_named_file() {
        let mut named = std::collections::BTreeSet::new();
        for seed in 0..40 {
            let rig = Rig::new();
            let file = rig.0.damage(0, &mut Dice::new(seed)).unwrap();
            let was = if file == "control-1" { "first" } else { ["old", "new"][usize::from(file.ends_with('2'))] };
            let bytes = fs::read(rig.0.of(0).join(&file)).unwrap();
            let bits: u32 = bytes.iter().zip(was.bytes()).map(|(is, was)| (is ^ was).count_ones()).sum();
            assert_eq!((bits, bytes.len()), (1, was.len()));
            named.insert(file);
        }
        assert_eq!(named.len(), 3, "{named:?}");
    }
}
