//! Reserved space for a full disk: a file that exists only so that it can be removed (docs/adr/0042, rule R15).
//!
//! Even if its disk is full, a node must be able to vote, learn that it was removed, delete, write a checkpoint, and
//! restart. So it keeps the file `ballast`. A write that finds the disk full removes that file, and is retried once in
//! the freed space.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskError};

pub(super) const NAME: &str = "ballast";
const PIECE: u64 = 1 << 20;

/// The ballast file. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Ballast(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    disk: Arc<dyn Disk>,
    bytes: u64,
    is_held: bool,
}

impl Ballast {
    /// Ballast of `bytes` bytes. The file may exist from an earlier start.
    pub(super) fn new(disk: Arc<dyn Disk>, bytes: u64) -> Self {
        let is_held = bytes == 0 || disk.open(NAME).and_then(|file| file.length()).is_ok_and(|length| length >= bytes);
        Self(Arc::new(Mutex::new(State { disk, bytes, is_held })))
    }

    /// Bytes that can be written without using the space of the ballast, even if the ballast is missing now.
    pub(super) fn free(&self) -> Result<u64, DiskError> {
        let state = self.state();
        let free = state.disk.free()?;
        Ok(if state.is_held { free } else { free.saturating_sub(state.bytes) })
    }

    /// Writes the file, if it is missing and fits alongside `beside` further bytes.
    pub(super) fn hold(&self, beside: u64) -> Result<(), DiskError> {
        let mut state = self.state();
        if state.is_held || state.disk.free()? < state.bytes.saturating_add(beside) {
            return Ok(());
        }
        state.give()?;
        match state.write() {
            Ok(()) => state.is_held = true,
            // Another program has used the space.
            Err(DiskError::Full) => state.give()?,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Makes an attempt. If it finds the disk full, removes the ballast and makes a second attempt.
    pub(super) fn spend<T, E: From<DiskError> + PartialEq>(
        &self,
        mut attempt: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        match attempt() {
            Err(error) if error == DiskError::Full.into() => {
                self.state().give()?;
                attempt()
            }
            done => done,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn write(&self) -> Result<(), DiskError> {
        let mut file = self.disk.create(NAME)?;
        // A file system that compresses would store zeros without using space.
        let sums = (0..PIECE.min(self.bytes).div_ceil(4) as u32).map(|number| crc32c::crc32c(&number.to_le_bytes()));
        let noise: Vec<u8> = sums.flat_map(u32::to_le_bytes).collect();
        let mut at = 0;
        while at < self.bytes {
            let piece = PIECE.min(self.bytes - at);
            file.write_at(at, &noise[..piece as usize])?;
            at += piece;
        }
        Ok(())
    }

    /// Removes the file. If a power cut restores it, the next start finds it.
    fn give(&mut self) -> Result<(), DiskError> {
        self.is_held = false;
        match self.disk.remove(NAME) {
            Err(DiskError::Missing(_)) => Ok(()),
            removed => removed,
        }
    }
}
