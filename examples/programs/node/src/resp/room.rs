//! Room for the large commands and the large answers of all connections together.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::COMMAND_TIMEOUT;

/// Room that is shared, in KiB.
#[derive(Debug)]
pub(super) struct Room {
    free: Arc<Semaphore>,
    all: usize,
    waiting: AtomicUsize,
    /// Bounds what waits for room.
    queue: Semaphore,
}

/// Room that was taken, until it is dropped.
pub(super) type Taken = OwnedSemaphorePermit;

impl Room {
    pub(super) fn new(bytes: usize) -> Self {
        let all = (bytes >> 10).clamp(1, u32::MAX as usize).min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(all)), all, waiting: AtomicUsize::new(0), queue: Semaphore::new(all) }
    }

    fn wanted(&self, kib: usize) -> u32 {
        kib.min(self.all) as u32
    }

    /// Takes this many KiB, or all KiB of the room if it has fewer, if they are free.
    pub(super) fn try_take(&self, kib: usize) -> Option<Taken> {
        self.free.clone().try_acquire_many_owned(self.wanted(kib)).ok()
    }

    /// All KiB, free and taken.
    pub(super) fn kib(&self) -> usize {
        self.all
    }

    /// The bytes that are taken, in whole KiB.
    pub(super) fn taken_bytes(&self) -> usize {
        (self.all - self.free.available_permits()) << 10
    }

    /// Like [`Room::try_take`], for a holder of some room already: keeps that if it is enough.
    pub(super) fn try_take_with(&self, taken: Option<Taken>, kib: usize) -> Option<Taken> {
        let enough = self.wanted(kib) as usize;
        let taken = taken.filter(|taken| taken.num_permits() >= enough);
        taken.or_else(|| self.try_take(kib))
    }

    /// Like [`Room::try_take`], but waits until they are free. `None`: that took too long.
    pub(super) async fn take(&self, kib: usize) -> Option<Taken> {
        if let Some(taken) = self.try_take(kib) {
            return Some(taken);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let taken = timeout(COMMAND_TIMEOUT, self.free.clone().acquire_many_owned(self.wanted(kib))).await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        taken.ok()?.ok()
    }

    /// Like [`Room::take`], for a caller that keeps in memory meanwhile what the room is for: all such callers together
    /// may keep as much again, and no more.
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
        let first = room.try_take(100).expect("all that there is");
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
        assert!(kept.is_none() && patient.is_none(), "they waited in vain");
        drop(first);
        let kept = room.take_for_kept(8).await.expect("no other caller waits any more");
        let (next, ()) = tokio::join!(room.take_for_kept(8), async { drop(kept) });
        assert!(next.is_some());
    }
}
