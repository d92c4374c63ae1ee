//! A disk in memory that loses unsynced bytes in a power cut.
//!
//! After a power cut, each unsynced sector may be on the disk or not, in any order. A name that was added or removed
//! may be durable or not. Part of the bytes of a failed sync may be durable, and programs read all of them until the
//! kernel discards them. All choices are drawn from a seed.

mod content;
mod names;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub use self::content::CutSettings;
use self::{content::FileContent, names::Names};
use super::{Disk, DiskError, DiskFile};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCounts {
    /// Writes of bytes and changes of names.
    pub writes: u64,
    /// Syncs of files and names, including failed ones.
    pub syncs: u64,
    pub cuts: u64,
    /// Power cuts that changed something that programs could read before.
    pub lossy_cuts: u64,
}

impl DiskCounts {
    /// Writes and syncs: the operations at which [`SimulatedDisk::cut_power_after`] may cut the power.
    pub const fn operations(&self) -> u64 {
        self.writes + self.syncs
    }
}

/// A simulated disk. Clones share it.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<DiskState>>,
    /// The start of the process that uses this handle; `None`: any.
    start: Option<u64>,
}

struct DiskState {
    rng: ChaCha8Rng,
    settings: CutSettings,
    /// The files by number, including files without a name that are open, or whose name a power cut may restore.
    files: BTreeMap<u64, FileContent>,
    last: u64,
    names: Names,
    room: u64,
    /// The number of further writes and syncs before the one at which the power is lost.
    cut_in: Option<u64>,
    is_off: bool,
    open: BTreeMap<u64, usize>,
    /// The number of starts of the process that uses the disk. Handles of an earlier start are invalid.
    starts: u64,
    /// The number of further syncs before the one that fails.
    failing_sync: Option<u32>,
    counts: DiskCounts,
}

impl SimulatedDisk {
    /// An empty disk with `room` bytes of space.
    pub fn new(seed: u64, room: u64, settings: CutSettings) -> Self {
        let state = DiskState {
            rng: ChaCha8Rng::seed_from_u64(seed),
            settings,
            files: BTreeMap::new(),
            last: 0,
            names: Names::default(),
            room,
            cut_in: None,
            is_off: false,
            open: BTreeMap::new(),
            starts: 0,
            failing_sync: None,
            counts: DiskCounts::default(),
        };
        Self { state: Arc::new(Mutex::new(state)), start: None }
    }

    /// Kills the process that uses the disk, and starts another one. Written bytes are kept; open handles become
    /// invalid.
    pub fn restart(&self) {
        let mut state = self.state();
        state.starts += 1;
        state.is_off = false;
        state.cut_in = None;
        state.open.clear();
        state.drop_unreachable();
    }

    /// The power is lost and restored. Unsynced bytes may be lost, in whole or in part. Open handles become invalid.
    pub fn cut_power(&self) {
        self.state().cut();
        self.restart();
    }

    /// Cuts the power at the write or sync after this many further ones. It stays off until [`restart`](Self::restart).
    pub fn cut_power_after(&self, operations: u64) {
        self.state().cut_in = Some(operations);
    }

    /// Makes the kernel discard some of the pages that it considers written. Programs then read the disk's content of
    /// these pages.
    pub fn forget_pages(&self) {
        let DiskState { files, rng, .. } = &mut *self.state();
        files.values_mut().for_each(|content| content.forget_pages(rng));
    }

    pub fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Makes the sync after this many further ones fail. `None`: no sync fails.
    pub fn fail_sync_after(&self, syncs: Option<u32>) {
        self.state().failing_sync = syncs;
    }

    /// The bytes of all files together.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// Sets the maximum bytes of all files together.
    pub fn set_room(&self, room: u64) {
        self.state().room = room;
    }

    /// Flips bit number `bit` of a file, on the disk and for readers. Does nothing beyond the end of the file.
    pub fn flip(&self, name: &str, bit: usize) {
        let mut state = self.state();
        if let Some(content) = state.names.number(name).and_then(|number| state.files.get_mut(&number)) {
            content.flip(bit);
        }
    }

    /// Copies the files to another disk, as programs read them now: like a backup that is restored elsewhere.
    #[must_use]
    pub fn copy(&self, seed: u64) -> Self {
        let state = self.state();
        let copy = Self::new(seed, state.room, state.settings);
        for (name, number) in state.names.all() {
            let bytes = state.files.get(&number).map_or_else(Vec::new, |content| content.bytes().to_vec());
            let mut state = copy.state();
            let number = state.add(FileContent::durable(bytes));
            state.names.give(name, number);
            state.names.sync();
        }
        copy
    }

    pub fn counts(&self) -> DiskCounts {
        self.state().counts
    }

    /// A handle for the process that uses the disk now. It fails once that process has ended.
    #[must_use]
    pub fn of_this_start(&self) -> Self {
        Self { state: self.state.clone(), start: Some(self.state().starts) }
    }

    /// The state, unless the process that uses this handle has ended.
    fn living(&self, file: &str) -> Result<MutexGuard<'_, DiskState>, DiskError> {
        let state = self.state();
        let has_ended = self.start.is_some_and(|start| start != state.starts);
        if has_ended { Err(failed(file, "its process has ended")) } else { Ok(state) }
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, name: &str, number: u64, starts: u64) -> Box<dyn DiskFile> {
        *self.state().open.entry(number).or_default() += 1;
        Box::new(SimulatedFile { disk: self.clone(), name: name.to_owned(), number, starts })
    }
}

impl DiskState {
    fn add(&mut self, content: FileContent) -> u64 {
        let number = self.last + 1;
        self.last = number;
        self.files.insert(number, content);
        number
    }

    fn number(&self, name: &str) -> Result<u64, DiskError> {
        self.is_on(name)?;
        self.names.number(name).ok_or_else(|| DiskError::Missing(name.to_owned()))
    }

    fn used(&self) -> u64 {
        let there: BTreeSet<_> = self.names.all().map(|(_, number)| number).chain(self.open.keys().copied()).collect();
        there.iter().filter_map(|number| self.files.get(number)).map(|content| content.bytes().len() as u64).sum()
    }

    /// Drops files that are no longer reachable by a handle, a name or a power cut.
    fn drop_unreachable(&mut self) {
        if self.files.len() > self.open.len() {
            let (named, open) = (self.names.may_lead_to(), &self.open);
            self.files.retain(|number, _| named.contains(number) || open.contains_key(number));
        }
    }

    fn cut(&mut self) {
        let Self { files, names, rng, settings, .. } = self;
        let mut is_different = names.cut(rng);
        files.values_mut().for_each(|content| is_different |= content.cut(rng, *settings));
        self.counts.cuts += 1;
        self.counts.lossy_cuts += u64::from(is_different);
        self.is_off = true;
        self.cut_in = None;
    }

    fn is_on(&self, file: &str) -> Result<(), DiskError> {
        if self.is_off { Err(failed(file, "the power is lost")) } else { Ok(()) }
    }

    /// Completes a write, or begins a sync. The power may be lost at it.
    fn done(&mut self, file: &str) -> Result<(), DiskError> {
        match &mut self.cut_in {
            None => {}
            Some(0) => self.cut(),
            Some(left) => *left -= 1,
        }
        self.is_on(file)
    }

    fn changed(&mut self, file: &str) -> Result<(), DiskError> {
        self.counts.writes += 1;
        self.done(file)
    }

    /// Begins a sync. Returns whether it will succeed, or an error if the power is lost at it.
    fn begin_sync(&mut self, file: &str) -> Result<bool, DiskError> {
        self.is_on(file)?;
        self.counts.syncs += 1;
        self.done(file)?;
        let works = self.failing_sync != Some(0);
        self.failing_sync = self.failing_sync.and_then(|left| left.checked_sub(1));
        Ok(works)
    }
}

fn failed(file: &str, why: &str) -> DiskError {
    DiskError::Failed { file: file.to_owned(), why: why.to_owned() }
}

impl Disk for SimulatedDisk {
    fn names(&self) -> Result<Vec<String>, DiskError> {
        let state = self.living("")?;
        state.is_on("")?;
        Ok(state.names.all().map(|(name, _)| name.to_owned()).collect())
    }

    fn create(&self, name: &str) -> Result<Box<dyn DiskFile>, DiskError> {
        let mut state = self.living(name)?;
        state.is_on(name)?;
        if state.names.number(name).is_some() {
            return Err(DiskError::Exists(name.to_owned()));
        }
        let number = state.add(FileContent::default());
        state.names.give(name, number);
        state.changed(name)?;
        let starts = state.starts;
        drop(state);
        Ok(self.file(name, number, starts))
    }

    fn open(&self, name: &str) -> Result<Box<dyn DiskFile>, DiskError> {
        let state = self.living(name)?;
        let number = state.number(name)?;
        let starts = state.starts;
        drop(state);
        Ok(self.file(name, number, starts))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut state = self.living(from)?;
        let number = state.number(from)?;
        state.names.rename(from, to, number);
        state.changed(from)
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        let mut state = self.living(name)?;
        state.number(name)?;
        state.names.take(name);
        state.changed(name)
    }

    fn sync_names(&self) -> Result<(), DiskError> {
        let mut state = self.living("")?;
        if state.begin_sync("")? {
            state.names.sync();
            return Ok(());
        }
        let DiskState { names, rng, .. } = &mut *state;
        names.fail_sync(rng);
        Err(failed("", "the sync failed"))
    }

    fn free(&self) -> Result<u64, DiskError> {
        let state = self.living("")?;
        state.is_on("")?;
        Ok(state.room.saturating_sub(state.used()))
    }
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDisk").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    name: String,
    number: u64,
    starts: u64,
}

impl SimulatedFile {
    fn state(&self) -> Result<MutexGuard<'_, DiskState>, DiskError> {
        let state = self.disk.state();
        state.is_on(&self.name)?;
        if state.starts == self.starts && state.files.contains_key(&self.number) {
            return Ok(state);
        }
        Err(failed(&self.name, "its process has ended"))
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.starts != self.starts {
            return;
        }
        if let Some(handles) = state.open.get_mut(&self.number) {
            *handles -= 1;
            if *handles == 0 {
                state.open.remove(&self.number);
            }
        }
        state.drop_unreachable();
    }
}

impl DiskFile for SimulatedFile {
    fn length(&self) -> Result<u64, DiskError> {
        Ok(self.state()?.files[&self.number].bytes().len() as u64)
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<usize, DiskError> {
        let state = self.state()?;
        let bytes = state.files[&self.number].bytes();
        let from = usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        let len = into.len().min(bytes.len() - from);
        into[..len].copy_from_slice(&bytes[from..from + len]);
        Ok(len)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let mut state = self.state()?;
        let at = usize::try_from(at).map_err(|_| DiskError::Full)?;
        let (used, length) = (state.used(), state.files[&self.number].bytes().len());
        let room = length as u64 + state.room.saturating_sub(used);
        // Write the bytes that fit, like a system that runs out of blocks.
        let fits = usize::try_from(room).unwrap_or(usize::MAX).saturating_sub(at).min(bytes.len());
        if let Some(content) = state.files.get_mut(&self.number)
            && fits > 0
        {
            content.write(at, &bytes[..fits]);
        }
        state.changed(&self.name)?;
        if fits == bytes.len() { Ok(()) } else { Err(DiskError::Full) }
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        let mut state = self.state()?;
        let works = state.begin_sync(&self.name)?;
        let DiskState { files, rng, settings, .. } = &mut *state;
        let Some(content) = files.get_mut(&self.number) else { return Ok(()) };
        if works {
            content.sync();
            return Ok(());
        }
        content.fail_sync(rng, *settings);
        Err(failed(&self.name, "the sync failed"))
    }
}
