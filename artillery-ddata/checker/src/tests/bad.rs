//! Histories that no register can produce, or that are malformed, with the source of each pattern where it has one.
//!
//! Versions are given as their sequences, all in one epoch; `swap(.., 0, ..)` expects an absent key.

use super::brute::is_linearizable;
use super::shrinking::explains_itself;
use super::*;

fn refused(kind: Kind, operations: &[Operation]) {
    let history = history(operations.iter().copied());
    let violation = check(&history, Budget::default()).expect_err("accepted");
    assert_eq!(violation.kind, kind, "{violation}");
    assert_eq!(violation.key, 7);
    if kind != Kind::Malformed && operations.iter().all(|operation| operation.key == 7) {
        assert!(!is_linearizable(operations), "the exhaustive check accepts it");
    }
    explains_itself(&history, &violation);
}

macro_rules! bad {
    ($($(#[$source:meta])+ $name:ident: $kind:ident = [$($operation:expr),* $(,)?];)+) => {$(
        $(#[$source])+
        #[test]
        fn $name() {
            refused(Kind::$kind, &[$($operation),*]);
        }
    )+};
}

bad! {
    /// Herlihy & Wing 1990: operations that don't overlap keep their order, so the second put has replaced the first
    /// value.
    overwritten_value_is_read: StaleRead = [
        put(1, 2, 1, written(1)), put(3, 4, 2, written(2)), read(5, 6, found(1, 1)),
    ];
    /// Jepsen on Consul 0.4 and etcd 0.4 (2014): a deposed leader behind a partition kept answering from its own state.
    stale_read_behind_a_partition: StaleRead = [
        put(1, 2, 1, written(1)), read(3, 4, found(1, 1)), put(5, 6, 2, written(2)),
        read(7, 8, found(2, 2)), read(9, 12, found(1, 1)), read(10, 11, found(2, 2)),
    ];
    /// CRAQ (Terrace & Freedman 2009), §2.3: a dirty object is read at its older version although the tail has the
    /// newer one.
    dirty_replica_answers_with_the_old_version: StaleRead = [
        put(1, 2, 1, written(1)), put(3, 6, 2, written(2)), read(4, 5, found(1, 1)), read(7, 8, found(1, 1)),
    ];
    /// Chain replication (van Renesse & Schneider 2004), §2: a member that was removed from the chain still answers
    /// queries.
    expelled_member_answers: StaleRead = [
        put(1, 2, 1, written(1)), put(3, 4, 2, written(2)), put(5, 6, 3, written(3)), read(7, 8, found(2, 2)),
    ];
    /// CRAQ §2.3: clean reads at two members, one of which has an older watermark.
    read_goes_backwards_between_clients: ReadWentBack = [
        put(1, 2, 1, written(1)), put(3, 20, 2, written(2)), read(4, 5, found(2, 2)), read(6, 7, found(1, 1)),
    ];
    /// Lamport 1986, new-old inversion: the difference between a regular register and an atomic one.
    read_goes_backwards_under_an_unknown_write: ReadWentBack = [
        put(1, 2, 1, written(1)), put(3, 4, 2, UNKNOWN), read(5, 6, found(2, 2)), read(7, 8, found(1, 1)),
    ];
    /// docs/DESIGN.md §12, trap 20: a conflict reports a version that a later reader no longer sees.
    failed_swap_reports_a_version_that_then_vanishes: ReadWentBack = [
        put(1, 2, 1, written(1)), put(3, 4, 2, UNKNOWN), swap(5, 6, 1, 3, conflict(2, 2)), read(7, 8, found(1, 1)),
    ];
    /// Jepsen on MongoDB 2.4 (2013): acknowledged writes are rolled back when a new primary is elected.
    acknowledged_write_is_rolled_back: StaleRead = [
        put(1, 2, 1, written(1)), put(3, 4, 2, written(2)), put(5, 6, 3, written(3)),
        read(7, 8, found(3, 3)), read(9, 10, found(1, 1)),
    ];
    /// Jepsen on Elasticsearch 1.1 (2014): acknowledged documents are missing after a partition.
    acknowledged_write_is_lost: Vanished = [put(1, 2, 1, written(1)), read(3, 4, ABSENT)];
    /// Jepsen on Redis Sentinel (2013), acknowledged writes lost in a failover: a value that a client had seen is
    /// missing.
    value_that_was_seen_is_lost: Vanished = [
        put(1, 2, 1, UNKNOWN), read(3, 4, found(1, 1)), read(5, 6, ABSENT),
    ];
    /// A key with a time to live is gone before it: the call of its expiry is the earliest time at which it may go.
    expired_too_early: Vanished = [put(1, 2, 1, written(1)), read(3, 4, ABSENT), expiry(5, 1)];
    /// The expiry of an overwritten value removes the new value (docs/adr/0031-chain-time.md).
    expiry_of_an_earlier_version: Vanished = [
        put(1, 2, 1, written(1)), expiry(3, 1), put(4, 5, 2, written(2)), read(6, 7, ABSENT),
    ];
    /// As `expiry_of_an_earlier_version`, but the new value was put before the old one could expire.
    expiry_after_an_overwrite: Vanished = [
        put(1, 2, 1, written(1)), put(3, 4, 2, written(2)), expiry(5, 1), read(6, 7, ABSENT),
    ];
    /// A swap creates the key while its value has not yet expired.
    creation_before_the_expiry: LostUpdate = [
        put(1, 2, 1, written(1)), swap(3, 4, 0, 2, written(3)), expiry(5, 1),
    ];
    /// A swap fails because the key is absent, too early.
    swap_fails_before_the_expiry: Vanished = [
        put(1, 2, 1, written(1)), swap(3, 4, 1, 2, CONFLICT_ABSENT), expiry(5, 1),
    ];
    /// A value that has expired is shown again, by a member that has not removed it.
    expired_value_comes_back: NotLinearizable = [
        put(1, 2, 1, written(1)), expiry(3, 1), read(4, 5, ABSENT), read(6, 7, found(1, 1)),
    ];
    /// A swap of a version succeeds after a reader found that it had expired.
    swap_of_an_expired_value: NotLinearizable = [
        put(1, 2, 1, written(1)), expiry(3, 1), read(4, 5, ABSENT), swap(6, 7, 1, 2, written(3)),
    ];
    /// One expiry can't explain two absences with a put in between.
    one_expiry_for_two_absences: Vanished = [
        put(1, 2, 1, written(1)), expiry(3, 1), read(4, 5, ABSENT), put(6, 7, 2, written(3)), read(8, 9, ABSENT),
    ];
    /// The update that removes the key needs a version of its own.
    no_version_is_left_for_an_expiry: NotLinearizable = [
        put(1, 2, 1, written(1)), expiry(3, 1), read(4, 5, ABSENT), put(6, 7, 2, written(2)),
    ];
    /// The put of unknown outcome that may have made the expired version was called too late.
    expiry_of_a_later_unknown_put: Vanished = [
        put(1, 2, 1, written(1)), read(3, 4, ABSENT), put(5, 6, 2, UNKNOWN), expiry(7, 2),
    ];
    /// No write can have made the version that expired.
    expiry_of_nothing: NotLinearizable = [put(1, 2, 1, written(1)), expiry(3, 2), read(4, 5, ABSENT)];
    /// docs/DESIGN.md §12, trap 21: a node restarted with an empty store answers as its former incarnation.
    conflict_with_an_empty_store: Vanished = [
        put(1, 2, 1, written(1)), swap(3, 4, 1, 2, CONFLICT_ABSENT),
    ];
    /// Jepsen on MongoDB 2.6 (2015), dirty reads: a primary shows a write that it then rolls back.
    dirty_read: RefusedSeen = [
        put(1, 2, 1, written(1)), put(3, 8, 2, REFUSED), read(4, 5, found(2, 2)), read(9, 10, found(1, 1)),
    ];
    /// docs/DESIGN.md §12, trap 33: the answer is "not applied" although an earlier attempt was applied.
    refused_write_is_seen: RefusedSeen = [put(1, 2, 1, REFUSED), read(3, 4, found(1, 1))];
    /// Adya 1999, G1a (aborted read): the value of an aborted transaction is seen.
    aborted_read: FailedSwapSeen = [
        put(1, 2, 1, written(1)), swap(3, 4, 9, 2, conflict(1, 1)), read(5, 6, found(2, 2)),
    ];
    /// docs/DESIGN.md §12, trap 20: a failed compare-and-swap succeeds later, as a duplicate.
    failed_swap_succeeds_later: FailedSwapSeen = [
        put(1, 2, 1, written(1)), swap(3, 4, 2, 2, conflict(1, 1)), put(5, 6, 3, written(2)), read(7, 8, found(3, 2)),
    ];
    /// Jepsen on Aerospike 3.99 (2018) and Riak with short tombstones: a deleted record comes back after a partition.
    deleted_key_comes_back: Resurrected = [
        put(1, 2, 1, written(1)), delete(3, 4, written(2)), read(5, 6, ABSENT), read(7, 8, found(1, 1)),
    ];
    /// Cassandra's zombies: a replica that missed a delete for longer than `gc_grace_seconds` propagates the value.
    zombie_is_met_by_a_swap: Resurrected = [
        put(1, 2, 1, written(1)), delete(3, 4, written(2)), swap(5, 6, 0, 2, conflict(1, 1)),
    ];
    /// As `deleted_key_comes_back`, but the delete's outcome is unknown: only the read that found nothing proves that
    /// it was applied.
    zombie_without_an_acknowledged_delete: NotLinearizable = [
        put(1, 2, 1, written(1)), delete(3, 4, UNKNOWN), read(5, 6, ABSENT), read(7, 8, found(1, 1)),
    ];
    /// Readers find the value, then nothing, then the value again, while the delete is in progress at a slow tail.
    absence_between_two_sights: NotLinearizable = [
        put(1, 2, 1, written(1)), delete(3, 12, written(2)), read(4, 5, found(1, 1)), read(6, 7, ABSENT), read(8, 9, found(1, 1)),
    ];
    /// RIFL (Lee et al. 2015): a conditional write is retried after a lost answer and applied again.
    swap_is_applied_twice_after_a_retry: TwoVersions = [
        put(1, 2, 1, written(1)), swap(3, 4, 1, 2, written(2)), read(5, 6, found(2, 2)), read(7, 8, found(3, 2)),
    ];
    /// docs/DESIGN.md §12, trap 7: a write is retried at the new head although its first attempt was committed.
    write_is_applied_twice_across_a_failover: TwoVersions = [
        put(1, 2, 1, UNKNOWN), read(3, 4, found(1, 1)), put(5, 6, 2, written(2)), read(7, 8, found(3, 1)),
    ];
    /// RIFL: the duplicate of an older write overwrites a newer one.
    duplicate_overwrites_a_newer_write: StaleRead = [
        put(1, 2, 1, written(1)), put(3, 4, 2, written(2)), swap(5, 6, 2, 3, conflict(1, 1)),
    ];
    /// Split brain: two primaries each let one compare-and-swap succeed.
    two_primaries_swap_the_same_version: DoubleSwap = [
        put(1, 2, 1, written(1)), swap(3, 6, 1, 2, written(2)), swap(4, 5, 1, 3, written(3)),
    ];
    /// Jepsen on etcd 3.4.3 (2020), locks: two clients create the same lock.
    two_clients_create_one_lock: DoubleSwap = [
        swap(1, 4, 0, 1, written(1)), swap(2, 3, 0, 2, written(2)),
    ];
    /// As `two_clients_create_one_lock`, but one client never learns its outcome, and a reader sees its value.
    two_clients_create_one_lock_unknown: DoubleSwap = [
        swap(1, 4, 0, 1, UNKNOWN), swap(2, 3, 0, 2, written(2)), read(5, 6, found(3, 1)),
    ];
    /// As `two_clients_create_one_lock`, with a delete between the two but no version left for it.
    two_clients_create_one_lock_with_no_room_between: DoubleSwap = [
        swap(1, 2, 0, 1, written(1)), delete(3, 4, UNKNOWN), swap(5, 6, 0, 2, written(2)),
    ];
    /// Two swaps of a version that no other operation reports.
    two_swaps_of_an_unreported_version: DoubleSwap = [
        put(1, 2, 1, UNKNOWN), swap(3, 4, 1, 2, written(2)), swap(5, 6, 1, 3, written(3)),
    ];
    /// Berenson et al. 1995, P4 (lost update): the swap ignores a write that it hadn't read.
    lost_update: LostUpdate = [
        put(1, 2, 1, written(1)), put(3, 4, 2, written(2)), swap(5, 6, 1, 3, written(3)),
    ];
    /// Put-if-absent without a check at the head: a creation succeeds over an existing value.
    creation_over_a_value: LostUpdate = [put(1, 2, 1, written(1)), swap(3, 4, 0, 2, written(2))];
    /// A swap that expects the version of a delete: a tombstone was treated as a value.
    swap_of_a_tombstone: SwapWithoutMatch = [
        put(1, 2, 1, written(1)), delete(3, 4, written(2)), swap(5, 6, 2, 2, written(3)),
    ];
    /// A swap that expects a version that no operation wrote.
    swap_of_nothing: SwapWithoutMatch = [put(1, 2, 1, written(2)), swap(3, 4, 3, 2, written(4)), put(5, 6, 3, UNKNOWN)];
    /// One write of unknown outcome can't have created both versions that were swapped.
    one_maker_for_two_orphans: NotLinearizable = [
        put(1, 2, 1, UNKNOWN), swap(3, 4, 5, 2, written(6)), swap(5, 6, 8, 3, written(9)),
    ];
    /// docs/DESIGN.md §12, trap 6: a new head continues counting from a state without the last write.
    version_goes_back: VersionWentBack = [put(1, 2, 1, written(5)), put(3, 4, 2, written(4))];
    /// As `version_goes_back`, with a version known only from a reader.
    version_goes_back_below_a_seen_one: VersionWentBack = [
        put(1, 2, 1, UNKNOWN), read(3, 4, found(5, 1)), put(5, 6, 2, written(4)),
    ];
    /// A swap whose own version is below the one that it replaced.
    swap_below_what_it_replaced: VersionWentBack = [put(1, 8, 1, written(5)), swap(2, 7, 5, 2, written(4))];
    /// Kafka before KIP-101: truncation to the high watermark lets another record take the same offset.
    offset_is_used_for_two_records: VersionReused = [put(1, 2, 1, written(1)), put(3, 4, 2, written(1))];
    /// KIP-101, observed by readers only.
    two_readers_see_one_version: VersionReused = [
        put(1, 2, 1, UNKNOWN), put(3, 4, 2, UNKNOWN), read(5, 6, found(1, 1)), read(7, 8, found(1, 2)),
    ];
    /// KIP-101 across keys: a position in the chain's history belongs to one key.
    one_position_for_two_keys: VersionReused = [
        Operation { key: 3, ..put(1, 2, 1, written(1)) }, put(3, 4, 2, written(1)),
    ];
    /// A value out of thin air: a torn page, or one with a flipped bit, is served (docs/DESIGN.md §8).
    value_that_was_never_written: NeverWritten = [put(1, 2, 1, written(1)), read(3, 4, found(2, 9))];
    /// Crossed answers on a shared connection: a read of one key is answered with the value of another.
    value_of_another_key: NeverWritten = [
        Operation { key: 8, ..put(1, 2, 1, UNKNOWN) }, read(3, 4, found(1, 1)),
    ];
    /// Herlihy & Wing 1990: a response may not depend on a future invocation.
    read_of_a_future_write: FromTheFuture = [read(1, 2, found(1, 1)), put(3, 4, 1, written(1))];
    /// As `read_of_a_future_write`, reported by a conflict.
    conflict_with_a_future_write: FromTheFuture = [
        put(1, 2, 1, written(1)), swap(3, 4, 9, 2, conflict(2, 3)), put(5, 6, 3, UNKNOWN),
    ];
    /// A spurious failure, as of a weak compare-exchange: the swap found the version that it expected.
    swap_fails_for_what_it_expected: FalseConflict = [put(1, 2, 1, written(1)), swap(3, 4, 1, 2, conflict(1, 1))];
    /// As `swap_fails_for_what_it_expected`, on an absent key.
    creation_fails_on_an_absent_key: FalseConflict = [swap(1, 2, 0, 1, CONFLICT_ABSENT)];
    /// One delete of unknown outcome can't explain two absences with a put in between: the acknowledged put was lost.
    one_delete_for_two_absences: NotLinearizable = [
        put(1, 2, 1, written(1)), delete(3, 4, UNKNOWN), read(5, 6, ABSENT), put(7, 8, 2, written(3)), read(9, 10, ABSENT),
    ];
    /// The delete would need a version between two consecutive ones.
    no_version_is_left_for_a_delete: NotLinearizable = [
        put(1, 2, 1, written(1)), delete(3, 4, UNKNOWN), read(5, 6, ABSENT), put(7, 8, 2, written(2)),
    ];
    /// CRAQ §2.3: one member shows a delete in progress to a reader; another one, which hasn't applied it, then shows
    /// the old value.
    two_readers_disagree_on_a_delete: NotLinearizable = [
        put(1, 2, 1, written(1)), delete(3, 20, written(2)), read(4, 5, ABSENT), read(6, 7, found(1, 1)),
    ];
    /// A recording error: a read has the answer of a write.
    answer_to_another_question: Malformed = [read(1, 2, written(1))];
    /// A recording error: two writes of one value, so a read identifies neither.
    one_value_written_twice: Malformed = [put(1, 2, 1, written(1)), put(3, 4, 1, written(2))];
    /// A recording error: an expiry has no answer.
    answer_to_an_expiry: Malformed = [op(1, 2, Call::Expire { version: version(1) }, written(2))];
    /// A recording error: an answer before its call.
    answer_before_the_question: Malformed = [put(5, 2, 1, written(1))];
    /// A write has the version that means "never written".
    version_of_nothing: Malformed = [put(1, 2, 1, written(0))];
}
