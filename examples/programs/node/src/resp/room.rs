//! Permits for the bytes that all connections together may hold: of large commands, and of large or waiting answers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::COMMAND_TIMEOUT;

/// A shared budget of permits, one per KiB.
#[derive(Debug)]
pub(super) struct Room {
    free: Arc<Semaphore>,
    all: usize,
    waiting: AtomicUsize,
    /// Bounds the bytes that are kept while their permits are awaited.
    queue: Semaphore,
}

/// Permits, returned on drop.
pub(super) type Taken = OwnedSemaphorePermit;

impl Room {
    pub(super) fn new(bytes: usize) -> Self {
        let all = (bytes >> 10).clamp(1, u32::MAX as usize).min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(all)), all, waiting: AtomicUsize::new(0), queue: Semaphore::new(all) }
    }

    fn wanted(&self, kib: usize) -> u32 {
        kib.min(self.all) as u32
    }

    /// Acquires this many permits, at most all that exist, if they are free now.
    pub(super) fn try_take(&self, kib: usize) -> Option<Taken> {
        self.free.clone().try_acquire_many_owned(self.wanted(kib)).ok()
    }

    /// The total number of permits.
    pub(super) fn kib(&self) -> usize {
        self.all
    }

    /// The acquired permits, in bytes.
    pub(super) fn taken_bytes(&self) -> usize {
        (self.all - self.free.available_permits()) << 10
    }

    /// Like [`Room::try_take`], but keeps `taken` if it suffices.
    pub(super) fn try_take_with(&self, taken: Option<Taken>, kib: usize) -> Option<Taken> {
        let enough = self.wanted(kib) as usize;
        let taken = taken.filter(|taken| taken.num_permits() >= enough);
        taken.or_else(|| self.try_take(kib))
    }

    /// Like [`Room::try_take`], but waits until the permits are free. `None` after the timeout.
    pub(super) async fn take(&self, kib: usize) -> Option<Taken> {
        if let Some(taken) = self.try_take(kib) {
            return Some(taken);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let taken = timeout(COMMAND_TIMEOUT, self.free.clone().acquire_many_owned(self.wanted(kib))).await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        taken.ok()?.ok()
    }

    /// Like [`Room::take`], for a caller that keeps the bytes in memory while it waits: all such callers together may
    /// keep at most as much as there are permits.
    pub(super) async fn take_for_kept(&self, kib: usize) -> Option<Taken> {
        if let Some(taken) = self.try_take(kib) {
            return Some(taken);
        }
        let _queued = self.queue.try_acquire_many(self.wanted(kib)).ok()?;
        self.take(kib).await
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn as_much_may_wait_as_there_is_room_for() {
        let room = Room::new(8 << 10);
        let first = room.try_take(100).expect("all permits");
        assert!(room.try_take(1).is_none());
        let (kept, told_at_once, patient) = tokio::join!(
            room.take_for_kept(5),
            async {
                assert!(room.is_wanted());
                room.take_for_kept(4).await.is_none()
            },
            room.take(7)
        );
        assert!(told_at_once);
        assert!(kept.is_none() && patient.is_none(), "they got no permits");
        drop(first);
        let kept = room.take_for_kept(8).await.expect("no other caller is waiting");
        let (next, ()) = tokio::join!(room.take_for_kept(8), async { drop(kept) });
        assert!(next.is_some());
    }
}
