//! How operations on a directory begin, wait and end. A release waits until pending operations have ended; later ones
//! fail.

use std::{
    io,
    sync::{
        Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use artillery_proto::disk::DiskError;

use super::failed;
use crate::system::{Refused, refused};

/// The pause before retrying an operation for which the system had no resources.
const PAUSE: Duration = Duration::from_millis(100);

/// Admits operations on a directory until the directory is released.
#[derive(Debug, Default)]
pub(super) struct Gate {
    is_closed: AtomicBool,
    /// Read-locked by each operation, write-locked by the release.
    operations: RwLock<()>,
    /// Whether an operation is waiting for a resource of the system.
    lacks: AtomicBool,
    waiting: Mutex<()>,
    /// Notified by the release.
    ended: Condvar,
}

impl Gate {
    /// Begins an operation, which ends when the result is dropped.
    pub(super) fn pass(&self, file: &str) -> Result<RwLockReadGuard<'_, ()>, DiskError> {
        // Checked before the lock, too: after the release, a stuck operation would block every later one.
        self.check(file)?;
        let operation = self.operations.read().unwrap_or_else(PoisonError::into_inner);
        self.check(file)?;
        Ok(operation)
    }

    /// Performs an operation that may be repeated. Repeats it while it is interrupted or the system has no resources
    /// for it.
    pub(super) fn insist<T>(&self, file: &str, operation: impl FnMut() -> io::Result<T>) -> Result<T, DiskError> {
        self.insist_or(file, operation, |error| failed(file, error))
    }

    /// Like `insist`; `failed` converts an error that is not retried.
    pub(super) fn insist_or<T>(
        &self,
        file: &str,
        operation: impl FnMut() -> io::Result<T>,
        failed: impl FnOnce(&io::Error) -> DiskError,
    ) -> Result<T, DiskError> {
        self.insist_with(file, operation, || self.pause(), failed)
    }

    /// Waits for `PAUSE`, or until the release.
    fn pause(&self) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ended.wait_timeout_while(waiting, PAUSE, |()| !self.is_closed()));
    }

    fn insist_with<T>(
        &self,
        file: &str,
        mut operation: impl FnMut() -> io::Result<T>,
        mut pause: impl FnMut(),
        failed: impl FnOnce(&io::Error) -> DiskError,
    ) -> Result<T, DiskError> {
        loop {
            let passed = self.pass(file)?;
            let done = operation();
            drop(passed);
            let error = match done {
                Ok(done) => {
                    if self.lacks.load(Ordering::Relaxed) && self.lacks.swap(false, Ordering::Relaxed) {
                        tracing::info!("the system has resources for this node's files again");
                    }
                    return Ok(done);
                }
                Err(error) => error,
            };
            match refused(&error) {
                Refused::Interrupted => {}
                Refused::Lacking => {
                    if !self.lacks.swap(true, Ordering::Relaxed) {
                        tracing::error!(%error, file, "the system has no resources for this node's files: the node waits for them");
                    }
                    pause();
                }
                Refused::Failed => return Err(failed(&error)),
            }
        }
    }

    fn check(&self, file: &str) -> Result<(), DiskError> {
        if self.is_closed() {
            let why = "the node has stopped and given the directory back".to_owned();
            return Err(DiskError::Failed { file: file.to_owned(), why });
        }
        Ok(())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Waits until all pending operations have ended; later ones fail.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        drop(self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        self.ended.notify_all();
        drop(self.operations.write().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    /// The result of an operation that fails with these errors one after the other, and the number of pauses.
    fn insist(errors: &[Errno]) -> (Result<(), DiskError>, u32) {
        let (mut errors, mut pauses) = (errors.iter(), 0);
        let operation = || errors.next().map_or(Ok(()), |error| Err((*error).into()));
        let done = Gate::default().insist_with("journal.new", operation, || pauses += 1, |error| failed("", error));
        (done, pauses)
    }

    #[test]
    fn what_the_system_lacks_is_waited_for() {
        assert_eq!(insist(&[Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::MFILE]), (Ok(()), 4));
        assert_eq!(insist(&[Errno::INTR, Errno::INTR]), (Ok(()), 0));
        assert_eq!(insist(&[Errno::MFILE, Errno::DQUOT]), (Err(DiskError::Full), 1));
        assert_eq!(insist(&[Errno::NOSPC]), (Err(DiskError::Full), 0));
        for error in [Errno::IO, Errno::ROFS, Errno::ACCESS] {
            assert!(matches!(insist(&[error]), (Err(DiskError::Failed { .. }), 0)), "{error}");
        }
    }

    #[test]
    fn the_end_of_the_use_ends_the_wait() {
        let gate = Gate::default();
        let done: Result<(), _> =
            gate.insist_with("a", || Err(Errno::MFILE.into()), || gate.close(), |error| failed("", error));
        assert!(matches!(done, Err(DiskError::Failed { .. })));
    }
}
