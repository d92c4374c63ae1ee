//! Histories that a register can produce, even though some look odd.

use super::brute::is_linearizable;
use super::*;

fn accepted(operations: &[Operation]) {
    if let Err(violation) = checked(operations) {
        panic!("{violation}");
    }
    if operations.len() < 9 && operations.iter().all(|operation| operation.key == 7) {
        assert!(is_linearizable(operations), "the exhaustive check rejects it");
    }
}

macro_rules! good {
    ($($(#[$why:meta])+ $name:ident = [$($operation:expr),* $(,)?];)+) => {$(
        $(#[$why])+
        #[test]
        fn $name() {
            accepted(&[$($operation),*]);
        }
    )+};
}

good! {
    /// No operation at all.
    empty = [];
    /// One client, one operation after the other.
    sequential = [
        read(1, 2, ABSENT), put(3, 4, 1, written(1)), read(5, 6, found(1, 1)), swap(7, 8, 1, 2, written(2)),
        swap(9, 10, 1, 3, conflict(2, 2)), delete(11, 12, written(3)), read(13, 14, ABSENT),
    ];
    /// All operations overlap, so any order is possible.
    everything_overlaps = [
        put(1, 20, 1, written(2)), put(2, 19, 2, written(1)), delete(3, 18, written(3)), read(4, 17, found(1, 2)),
        read(5, 16, ABSENT), read(6, 15, found(2, 1)), swap(7, 14, 0, 3, written(4)), read(8, 13, found(4, 3)),
    ];
    /// Two concurrent writes have versions in the reverse order of their calls and answers.
    versions_against_the_order_of_calls = [
        put(1, 9, 1, written(2)), put(2, 8, 2, written(1)), read(10, 11, found(2, 1)),
    ];
    /// A reader sees a write before its acknowledgement.
    seen_before_it_is_acknowledged = [put(1, 10, 1, written(1)), read(2, 3, found(1, 1)), read(11, 12, found(1, 1))];
    /// During one write a read may return the old value and a later read the new one.
    old_then_new_during_a_write = [
        put(1, 2, 1, written(1)), put(3, 10, 2, written(2)), read(4, 5, found(1, 1)), read(6, 7, found(2, 2)),
    ];
    /// A write of unknown outcome takes effect much later.
    unknown_write_shows_up_late = [
        put(1, 2, 1, written(1)), put(3, 4, 2, UNKNOWN), read(5, 6, found(1, 1)), put(7, 8, 3, written(2)),
        read(9, 10, found(2, 3)), read(11, 12, found(9, 2)),
    ];
    /// A write of unknown outcome may never take effect.
    unknown_write_never_shows = [
        put(1, 2, 1, written(1)), put(3, 4, 2, UNKNOWN), read(5, 6, found(1, 1)), swap(7, 8, 1, 3, written(2)),
    ];
    /// An unknown put created the version that another client's swap expected.
    unknown_put_made_the_expected_version = [
        put(1, 2, 1, written(1)), put(3, 4, 2, UNKNOWN), swap(5, 6, 4, 3, written(5)), read(7, 8, found(5, 3)),
    ];
    /// Each unknown write created the version that the next one expected.
    unknown_writes_made_each_others_expected_version = [
        put(1, 2, 1, UNKNOWN), swap(3, 4, 2, 2, UNKNOWN), swap(5, 6, 4, 3, UNKNOWN), swap(7, 8, 6, 4, written(7)),
    ];
    /// An unknown swap creates the key after an unknown delete.
    unknown_delete_and_unknown_creation = [
        put(1, 2, 1, written(1)), delete(3, 4, UNKNOWN), swap(5, 6, 0, 2, UNKNOWN), swap(7, 8, 5, 3, written(6)),
    ];
    /// Two unknown deletes explain two absences.
    unknown_deletes_explain_absences = [
        put(1, 2, 1, written(1)), delete(3, 4, UNKNOWN), delete(5, 6, UNKNOWN), read(7, 8, ABSENT),
        put(9, 10, 2, written(3)), read(11, 12, found(3, 2)), read(13, 14, ABSENT),
    ];
    /// Absences on both sides of a write that is concurrent with all: before the write the key was absent anyway.
    absent_before_and_after_a_write = [
        put(1, 30, 1, written(1)), delete(2, 3, UNKNOWN), read(4, 5, ABSENT), read(6, 7, found(1, 1)), read(8, 9, ABSENT),
    ];
    /// A delete of an absent key is applied like any other write.
    delete_of_an_absent_key = [delete(1, 2, written(1)), read(3, 4, ABSENT), swap(5, 6, 0, 1, written(2))];
    /// A deleted key is absent, even for a swap that expects the old version.
    swap_of_a_deleted_key_conflicts_with_nothing = [
        put(1, 2, 1, written(1)), delete(3, 4, written(2)), swap(5, 6, 1, 2, CONFLICT_ABSENT), swap(7, 8, 0, 3, written(3)),
    ];
    /// Creation, deletion, creation: the two swaps expect the same state, and both are correct.
    two_creations_with_a_delete_between = [
        swap(1, 2, 0, 1, written(1)), delete(3, 4, written(2)), swap(5, 6, 0, 2, written(3)),
    ];
    /// As `two_creations_with_a_delete_between`, with a delete of unknown outcome.
    two_creations_with_an_unknown_delete_between = [
        swap(1, 2, 0, 1, written(1)), delete(3, 4, UNKNOWN), swap(5, 6, 0, 2, written(3)),
    ];
    /// A swap of unknown outcome was applied: another operation saw its value.
    unknown_swap_was_applied = [
        put(1, 2, 1, written(1)), swap(3, 4, 1, 2, UNKNOWN), swap(5, 6, 1, 3, conflict(2, 2)), read(7, 8, found(2, 2)),
    ];
    /// Refused operations have no effect, and unanswered reads reveal nothing.
    refused_and_unanswered = [
        put(1, 2, 1, REFUSED), delete(3, 4, REFUSED), swap(5, 6, 0, 2, REFUSED), read(7, 8, REFUSED), read(9, 9, UNKNOWN),
        read(10, 11, ABSENT),
    ];
    /// A read of the absent key may precede a concurrent first write.
    absent_during_the_first_write = [put(1, 6, 1, written(1)), read(2, 3, ABSENT), read(4, 5, found(1, 1))];
    /// The old and the new value are read concurrently, while the write is in progress.
    concurrent_readers_disagree = [
        put(1, 2, 1, written(1)), put(3, 20, 2, written(2)), read(4, 10, found(2, 2)), read(5, 11, found(1, 1)),
    ];
    /// Keys are independent.
    two_keys = [
        put(1, 2, 1, written(1)), Operation { key: 8, ..read(3, 4, ABSENT) },
        Operation { key: 8, ..put(5, 6, 2, written(2)) }, read(7, 8, found(1, 1)),
    ];
    /// A key with a time to live goes after it, without any call.
    expired = [put(1, 2, 1, written(1)), read(3, 4, found(1, 1)), expiry(5, 1), read(6, 7, ABSENT), read(8, 9, ABSENT)];
    /// A key may stay longer than its time to live, even forever.
    not_yet_expired = [put(1, 2, 1, written(1)), expiry(3, 1), read(4, 5, found(1, 1)), put(6, 7, 2, written(2))];
    /// A read that is in progress when the key expires may find it or not.
    expired_during_reads = [
        put(1, 2, 1, written(1)), expiry(5, 1), read(3, 6, ABSENT), read(4, 7, found(1, 1)), read(8, 9, ABSENT),
    ];
    /// After its expiry the key is created and expires again.
    expired_twice = [
        put(1, 2, 1, written(1)), expiry(3, 1), read(4, 5, ABSENT), swap(6, 7, 0, 2, written(3)), expiry(8, 3),
        read(9, 10, found(3, 2)), read(11, 12, ABSENT),
    ];
    /// Two expiries of one version, as of two requests that set it: the earlier one counts.
    expired_once = [put(1, 2, 1, written(1)), expiry(3, 1), read(4, 5, ABSENT), expiry(6, 1)];
    /// A put concurrent with the expiry of the value before: the absence between the two was seen.
    put_again_during_the_expiry = [
        put(1, 2, 1, written(1)), expiry(3, 1), put(4, 9, 2, written(3)), read(5, 6, ABSENT), read(7, 8, found(3, 2)),
    ];
    /// The expiry of an overwritten value does nothing.
    expiry_of_an_overwritten_value = [
        put(1, 2, 1, written(1)), put(3, 4, 2, written(2)), expiry(5, 1), read(6, 7, found(2, 2)), delete(8, 9, written(3)),
        read(10, 11, ABSENT),
    ];
    /// A put of unknown outcome was applied in a version that no answer reported, and its value expired.
    expiry_of_an_unseen_value = [put(1, 2, 1, written(1)), put(3, 4, 2, UNKNOWN), expiry(5, 2), read(6, 7, ABSENT)];
    /// As `expiry_of_an_unseen_value`, and then the key was created again.
    creation_after_an_unseen_value_expired = [
        put(1, 2, 1, written(1)), swap(3, 4, 1, 2, UNKNOWN), expiry(5, 3), swap(6, 7, 0, 3, written(5)), read(8, 9, found(5, 3)),
    ];
    /// A swap finds the key absent, and a deletion has nothing to return.
    expired_for_other_calls = [
        put(1, 2, 1, written(1)), expiry(3, 1), swap(4, 5, 1, 2, CONFLICT_ABSENT), op(6, 7, Call::GetDelete, ABSENT),
    ];
    /// A write of another key has the version in between, but higher versions are free.
    a_delete_takes_a_free_version = [
        put(1, 2, 1, written(1)), Operation { key: 8, ..put(3, 4, 2, written(2)) },
        delete(5, 6, UNKNOWN), read(7, 8, ABSENT), put(9, 10, 3, written(4)),
    ];
}

/// The write of the other key has the only version in between.
#[test]
fn a_delete_takes_no_version_of_another_key() {
    let operations = [
        put(1, 2, 1, written(1)),
        Operation { key: 8, ..put(3, 4, 2, written(2)) },
        delete(5, 6, UNKNOWN),
        read(7, 8, ABSENT),
        put(9, 10, 3, written(3)),
    ];
    assert_eq!(checked(&operations).expect_err("accepted").kind, Kind::NotLinearizable);
}

#[test]
fn the_order_of_the_list_does_not_matter() {
    let mut operations =
        vec![put(1, 2, 1, written(1)), read(3, 4, found(1, 1)), delete(5, 6, written(2)), read(7, 8, ABSENT)];
    for _ in 0..operations.len() {
        operations.rotate_left(1);
        accepted(&operations);
    }
}
