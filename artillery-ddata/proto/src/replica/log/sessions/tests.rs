use proptest::prelude::*;

use super::*;
use crate::fixtures;

fn key(session: u64, number: u64, lowest: u64) -> RequestKey {
    RequestKey { session: Version::new(1, session), number, lowest }
}

#[derive(Default)]
struct Table {
    sessions: Sessions,
    history: Vec<Update>,
    committed: usize,
}

impl Table {
    /// A table in which one session is being opened.
    fn with_session() -> Self {
        let mut table = Self::default();
        table.order(UpdateKind::SESSION_OPEN, None);
        table
    }

    /// A table of one session with the records of these requests, each admitted within a limit of 2,000 bytes.
    fn with_records(numbers: impl IntoIterator<Item = u64>) -> Self {
        let mut table = Self::with_session();
        for number in numbers {
            table.admit(key(1, number, 1));
        }
        table
    }

    /// Checks that the table admits a request within 2,000 bytes, and commits its write.
    fn admit(&mut self, request: RequestKey) {
        assert_eq!(self.room_for(request), KnownRequest::Nothing);
        self.order(UpdateKind::WRITE, Some(request));
        self.commit();
    }

    fn look_up(&self, request: RequestKey) -> KnownRequest {
        self.sessions.look_up(request, false, 1 << 20)
    }

    fn room_for(&self, request: RequestKey) -> KnownRequest {
        self.sessions.look_up(request, false, 2000)
    }

    fn order(&mut self, kind: UpdateKind, request: Option<RequestKey>) -> u64 {
        let version = Version::new(1, self.history.len() as u64 + 1);
        let update = Update { kind, request, ..fixtures::update(version, []) };
        self.sessions.note(&update, None);
        self.history.push(update);
        self.history.len() as u64
    }

    fn commit(&mut self) {
        for update in &self.history[self.committed..] {
            self.sessions.commit(update);
        }
        self.committed = self.history.len();
    }

    fn cut(&mut self, keep: usize) {
        self.history.truncate(keep.max(self.committed));
        self.sessions.forget_pending();
        for update in &self.history[self.committed..] {
            self.sessions.note(update, None);
        }
    }
}

#[test]
fn a_request_is_known_until_its_client_confirms_it() {
    let mut table = Table::default();
    let unknown = key(1, 1, 1);
    assert_eq!(table.look_up(unknown), KnownRequest::NoSession);
    assert_eq!(table.order(UpdateKind::SESSION_OPEN, None), 1);
    table.commit();
    assert_eq!(table.look_up(unknown), KnownRequest::Nothing);
    table.order(UpdateKind::WRITE, Some(key(1, 1, 1)));
    assert_eq!(table.look_up(unknown), KnownRequest::Pending(Sequence(2)));
    table.commit();
    assert!(matches!(table.look_up(unknown), KnownRequest::Done(record) if record.version == Version::new(1, 2)));
    table.order(UpdateKind::WRITE, Some(key(1, 2, 2)));
    assert!(matches!(table.look_up(unknown), KnownRequest::Done(_)), "the confirmation isn't committed yet");
    table.commit();
    assert_eq!(table.look_up(unknown), KnownRequest::Answered);
}

#[test]
fn a_dropped_update_takes_its_record_along() {
    let mut table = Table::with_session();
    table.commit();
    table.order(UpdateKind::WRITE, Some(key(1, 7, 5)));
    assert_eq!(table.look_up(key(1, 4, 1)), KnownRequest::Answered);
    table.cut(1);
    assert_eq!(table.look_up(key(1, 7, 5)), KnownRequest::Nothing);
    assert_eq!(table.look_up(key(1, 4, 1)), KnownRequest::Nothing);
    assert_eq!(table.sessions.bytes(), SESSION_BYTES);
}

#[test]
fn the_longest_unused_session_is_evicted_for_good() {
    let mut table = Table::with_session();
    table.order(UpdateKind::SESSION_OPEN, None);
    table.order(UpdateKind::WRITE, Some(key(1, 1, 1)));
    table.commit();
    assert_eq!(table.sessions.to_evict(1 << 20), None);
    assert_eq!(table.sessions.to_evict(0), Some(Version::new(1, 2)));
    table.order(UpdateKind::SESSION_EVICT, Some(key(2, 0, 0)));
    assert_eq!(table.sessions.to_evict(0), None, "never the only one");
    assert_eq!(table.look_up(key(2, 1, 1)), KnownRequest::NoSession);
    table.commit();
    assert_eq!(table.look_up(key(2, 1, 1)), KnownRequest::NoSession);
    assert_eq!((table.sessions.status().count, table.sessions.bytes()), (1, SESSION_BYTES + RECORD_BYTES));
}

/// A session that fills its quarter of 2,000 bytes with the records of requests 2 to 5.
fn full() -> Table {
    let table = Table::with_records(2..6);
    assert_eq!(table.room_for(key(1, 6, 1)), KnownRequest::Full);
    table
}

#[test]
fn a_full_session_admits_a_request_that_frees_records() {
    let mut table = full();
    assert_eq!(table.room_for(key(1, 6, 2)), KnownRequest::Full, "no record would be freed");
    assert_eq!(table.room_for(key(1, 6, 5)), KnownRequest::Nothing);
    table.order(UpdateKind::WRITE, Some(key(1, 6, 5)));
    assert_eq!(table.room_for(key(1, 7, 5)), KnownRequest::Full, "one at a time");
    table.commit();
    assert_eq!(table.room_for(key(1, 7, 5)), KnownRequest::Nothing);
    assert_eq!(table.sessions.bytes(), SESSION_BYTES + 2 * RECORD_BYTES);
}

#[test]
fn a_full_session_admits_its_lowest_unanswered_request() {
    let mut table = full();
    table.admit(key(1, 1, 1));
    assert_eq!(table.room_for(key(1, 6, 1)), KnownRequest::Full);
    assert_eq!(table.room_for(key(1, 6, 6)), KnownRequest::Nothing, "its client knows all outcomes");
    assert_eq!(table.sessions.look_up(key(1, 6, 1), true, 2000), KnownRequest::Nothing, "it settles another one");
    assert_eq!(table.sessions.look_up(key(1, 6, 1), true, 1000), KnownRequest::Full, "bounded too");
}

proptest! {
    /// The byte count matches the entries, and a cut leaves the same table as without the dropped updates.
    #[test]
    fn a_cut_equals_never_having_seen_the_dropped_updates(
        steps in prop::collection::vec((0u8..6, 0u64..3, 1u64..6, 0u64..6), 0..60),
        commit_every in 1usize..9,
        keep in 0usize..60,
    ) {
        let (mut cut, mut plain) = (Table::default(), Table::default());
        for (at, (what, session, number, lowest)) in steps.into_iter().enumerate() {
            let request = key(session + 1, number, lowest);
            let (kind, request) = match what {
                0 => (UpdateKind::SESSION_OPEN, None),
                1 => (UpdateKind::SESSION_EVICT, Some(request)),
                _ => (UpdateKind::WRITE, Some(request)),
            };
            // Like a head, order no update under a known number.
            let known = request.map_or(KnownRequest::Nothing, |request| cut.sessions.look_up(request, false, 1 << 20));
            let evicts = kind == UpdateKind::SESSION_EVICT && known != KnownRequest::NoSession;
            if known != KnownRequest::Nothing && !evicts {
                continue;
            }
            cut.order(kind, request);
            if at < keep {
                plain.order(kind, request);
            }
            if at < keep && at % commit_every == 0 {
                cut.commit();
                plain.commit();
            }
        }
        cut.cut(plain.history.len());
        cut.commit();
        plain.commit();
        prop_assert_eq!(format!("{:?}", cut.sessions), format!("{:?}", plain.sessions));
        let recount: usize = plain.sessions.committed.values().map(|session| {
            SESSION_BYTES + session.records.iter().map(|(_, record)| record.bytes()).sum::<usize>()
        }).sum();
        prop_assert_eq!(plain.sessions.bytes(), recount);
    }
}

/// Requests 1 and 3 never arrived. Their client has abandoned the session, which is full.
#[test]
fn each_request_of_a_full_session_fits_once_it_is_the_lowest() {
    let mut table = Table::with_records([2, 4, 5, 6]);
    assert_eq!(table.room_for(key(1, 3, 1)), KnownRequest::Full);
    for number in [1, 3] {
        table.admit(key(1, number, number));
    }
}
