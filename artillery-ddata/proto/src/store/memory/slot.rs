//! The place of one key's versions, which readers look into without a lock.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use arc_swap::ArcSwapOption;

use super::versions::Versions;

/// Which slot it is, of all that there ever were in this process, in whatever store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SlotId(u64);

impl SlotId {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// All versions of one key; empty once the key has left the index.
#[derive(Debug)]
pub(super) struct Slot {
    id: SlotId,
    versions: ArcSwapOption<Versions>,
}

impl Slot {
    /// A slot for versions that were made for it.
    pub(super) fn new(versions: Versions) -> Self {
        Self { id: versions.slot(), versions: ArcSwapOption::from_pointee(versions) }
    }

    pub(super) fn id(&self) -> SlotId {
        self.id
    }

    /// What `look` finds among the versions, if it finds something, and there are any still.
    ///
    /// Who loses the processor at the wrong moment may come by versions of another key: he announces that he is about to
    /// use the memory that he saw here, but too late; another slot has it by then, and the writer who takes it from there
    /// grants what was announced, which `arc_swap` takes for what was here. So versions say whose they are, and he looks
    /// again (docs/adr/0025-versions-say-whose-they-are.md).
    pub(super) fn read<T>(&self, look: impl FnOnce(&Versions) -> Option<T>) -> Option<T> {
        loop {
            match &*self.versions.load() {
                Some(found) if found.slot() == self.id => return look(found),
                Some(_) => {}
                None => return None,
            }
        }
    }

    /// The same for the one who may change it: what doesn't change can't be missed.
    pub(super) fn load(&self) -> Option<Arc<Versions>> {
        self.versions.load_full()
    }

    /// Gives it other versions; returns those that were here.
    pub(super) fn replace(&self, versions: Option<Arc<Versions>>) -> Option<Arc<Versions>> {
        self.versions.swap(versions)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::{Version, store::Held};

    fn versions(slot: SlotId, sequence: u64) -> Versions {
        Versions::new(slot, Held { version: Version::new(1, sequence), value: None })
    }

    #[test]
    fn versions_of_another_slot_are_not_taken_for_its_own() {
        let (own, other) = (SlotId::new(), SlotId::new());
        let slot = Slot::new(versions(own, 1));
        let sequence = |versions: &Versions| Some(versions.newest().version.sequence.0);
        assert_eq!(slot.read(sequence), Some(1));
        // As they are met by who was away at the wrong moment.
        slot.replace(Some(Arc::new(versions(other, 7))));
        thread::scope(|scope| {
            let reader = scope.spawn(|| slot.read(sequence));
            let early = (0..100).any(|_| {
                thread::yield_now();
                reader.is_finished()
            });
            slot.replace(Some(Arc::new(versions(own, 3))));
            assert!(!early, "it had nothing of its own to show");
            assert_eq!(reader.join().unwrap(), Some(3));
        });
        slot.replace(None);
        assert_eq!(slot.read(sequence), None);
    }
}
