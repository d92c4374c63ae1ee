//! Every interleaving of readers and a writer of one key, with loom's lock. The code is the store's own: its files are
//! compiled again here with another `sync`.
#![allow(missing_docs, dead_code, reason = "the files belong to the store, which uses all of them")]

// The store's files refer to these items by their paths in the crate.
use artillery_proto::{Expiry, Sequence, store};

#[path = "../src/store/memory"]
mod memory {
    mod slot;
    mod versions;

    mod sync {
        pub(super) use loom::sync::RwLock;
    }

    use artillery_proto::{Sequence, Version, store::Held};
    use bytes::Bytes;
    use loom::{sync::Arc, thread};

    use self::{slot::Slot, versions::Versions};

    fn held(sequence: u64) -> (Bytes, Held) {
        let value = Bytes::from(sequence.to_be_bytes().to_vec());
        (value.clone(), Held::new(Version::new(1, sequence), Some(value)))
    }

    /// Checks that version and value belong together.
    fn check(held: &Held) {
        let value = held.value.as_ref().expect("all versions here are values");
        assert_eq!(
            value[..],
            held.version.sequence.0.to_be_bytes(),
            "a reader met a half of one version and a half of another"
        );
    }

    /// A reader's view of a slot: its newest version, whole.
    fn read(slot: &Slot) -> Option<u64> {
        let newest = slot.read(|versions| versions.at(Sequence::MAX).cloned())??;
        check(&newest);
        Some(newest.version.sequence.0)
    }

    #[test]
    fn readers_meet_whole_versions_and_never_older_ones() {
        loom::model(|| {
            let (_, first) = held(1);
            let slot = Arc::new(Slot::new(Versions::new(first)));
            let readers = [(); 2].map(|()| {
                let slot = slot.clone();
                thread::spawn(move || {
                    let (before, after) = (read(&slot), read(&slot));
                    assert!(after.is_none() || before <= after, "time went backwards: {before:?}, {after:?}");
                    assert!(before.is_some() || after.is_none(), "the key reappeared");
                })
            });
            for sequence in 2..=3 {
                let next = slot.read(|old| old.with(held(sequence).1)).expect("its writer empties it");
                drop(slot.replace(Some(next)));
            }
            drop(slot.replace(None));
            for reader in readers {
                reader.join().expect("a reader");
            }
        });
    }

    #[test]
    fn values_are_freed_when_their_writer_and_readers_have_let_go() {
        loom::model(|| {
            let (value, first) = held(1);
            let slot = Arc::new(Slot::new(Versions::new(first)));
            let reader = {
                let slot = slot.clone();
                thread::spawn(move || read(&slot))
            };
            drop(slot.replace(Some(Versions::new(held(2).1))));
            reader.join().expect("a reader");
            assert!(value.is_unique(), "a replaced value is held by something");
        });
    }

    #[test]
    fn a_snapshot_finds_its_version_while_others_come_and_go() {
        loom::model(|| {
            let (_, first) = held(1);
            let slot = Arc::new(Slot::new(Versions::new(first).with(held(2).1)));
            let reader = {
                let slot = slot.clone();
                thread::spawn(move || {
                    let found = slot.read(|versions| versions.at(Sequence(2)).cloned()).flatten().expect("pinned");
                    check(&found);
                    assert_eq!(found.version.sequence, Sequence(2));
                })
            };
            let mut next = slot.read(|old| old.with(held(3).1)).expect("its writer empties it");
            next.prune(Sequence(2));
            drop(slot.replace(Some(next)));
            reader.join().expect("a reader");
        });
    }
}
