//! The table by which a retry is known (docs/DESIGN.md §9).
//!
//! What committed updates say stands in it for good; what pending ones say stands beside it, and goes with them if they
//! do (trap 31). Every member keeps the same table of the same history, so any of them can be head.

mod copy;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::{
    Sequence, Version,
    update::{Outcome, RequestKey, Update, UpdateKind},
};

/// Records of one session at most.
pub(super) const MAX_RECORDS: usize = 1 << 16;

const SESSION_BYTES: usize = 160;
const RECORD_BYTES: usize = 96;

/// What became of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) version: Version,
    pub(super) outcome: Outcome,
    pub(super) taken: Option<Bytes>,
}

impl Record {
    pub(super) fn of(update: &Update, taken: Option<Bytes>) -> Self {
        Self { version: update.version, outcome: update.outcome, taken }
    }

    fn bytes(&self) -> usize {
        RECORD_BYTES + self.taken.as_ref().map_or(0, Bytes::len)
    }
}

/// What is known of a request that arrives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// Nothing: it may be executed.
    Nothing,
    /// It stands in this update, which isn't committed here yet.
    Pending(Sequence),
    /// It stands in a committed update.
    Done(Record),
    /// Its session is none of those that are kept.
    NoSession,
    /// Its client has said that it knows the outcome.
    Answered,
    /// Its session has as many records as it may have.
    Full,
}

#[derive(Clone, Debug, Default)]
struct Session {
    lowest: u64,
    used: Sequence,
    records: BTreeMap<u64, Record>,
    /// Of itself and its records.
    bytes: usize,
}

impl Session {
    /// How many records there are of requests below `lowest`, and their bytes.
    fn below(&self, lowest: u64) -> (usize, usize) {
        self.records.range(..lowest).fold((0, 0), |(records, bytes), (_, record)| (records + 1, bytes + record.bytes()))
    }
}

/// What pending updates add.
#[derive(Clone, Debug, Default)]
struct Pending {
    requests: BTreeMap<(Version, u64), Noted>,
    by_session: BTreeMap<Version, Ahead>,
    opened: BTreeSet<Version>,
    evicted: BTreeSet<Version>,
    bytes: usize,
}

/// What they add to one session.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    lowest: u64,
    records: usize,
    bytes: usize,
}

impl Pending {
    fn ahead(&self, id: &Version) -> Ahead {
        self.by_session.get(id).copied().unwrap_or_default()
    }
}

#[derive(Clone, Debug)]
struct Noted {
    sequence: Sequence,
    taken: Option<Bytes>,
}

/// The sessions of one chain.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions {
    committed: BTreeMap<Version, Session>,
    by_use: BTreeSet<(Sequence, Version)>,
    bytes: usize,
    pending: Pending,
}

impl Sessions {
    pub(super) fn len(&self) -> usize {
        self.committed.len()
    }

    /// Bytes of all that is kept, pending and committed.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.pending.bytes
    }

    /// Bytes of what pending updates add.
    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.bytes
    }

    /// What is known of a request, where the sessions may have `limit` bytes: one of them a quarter of that, so that its
    /// client may have another one beside it, and twice as much with requests that [settle](super::Write::Resolve) what became of others.
    pub(super) fn look_up(&self, request: RequestKey, settles: bool, limit: usize) -> Known {
        let RequestKey { session: id, number, .. } = request;
        let session = self.committed.get(&id);
        if self.pending.evicted.contains(&id) || session.is_none() && !self.pending.opened.contains(&id) {
            return Known::NoSession;
        }
        if let Some(noted) = self.pending.requests.get(&(id, number)) {
            return Known::Pending(noted.sequence);
        }
        if let Some(record) = session.and_then(|session| session.records.get(&number)) {
            return Known::Done(record.clone());
        }
        let ahead = self.pending.ahead(&id);
        let lowest = session.map_or(0, |session| session.lowest);
        if number < lowest.max(ahead.lowest) {
            return Known::Answered;
        }
        // With what is under way: however many come before one is committed, no session outgrows its part.
        let records = session.map_or(0, |session| session.records.len()) + ahead.records;
        let bytes = session.map_or(0, |session| session.bytes) + ahead.bytes;
        let (most, limit) = if settles { (2 * MAX_RECORDS, limit / 2) } else { (MAX_RECORDS, limit / 4) };
        let is_full = |records: usize, bytes: usize| records >= most || bytes > limit;
        if !is_full(records, bytes) {
            return Known::Nothing;
        }
        // Only a request that is taken in can say that others are answered, and let their records go: were it refused,
        // the session would be full for good. So one at a time goes in that makes room enough, or that the client waits
        // for before all others: it can't say anything before it knows the outcome of that one.
        let makes_room = || {
            let (gone, gone_bytes) = session.map_or((0, 0), |session| session.below(request.lowest));
            number == request.lowest.max(lowest) || !is_full(records - gone, bytes - gone_bytes)
        };
        if ahead.records == 0 && makes_room() { Known::Nothing } else { Known::Full }
    }

    /// The session to evict next, if they are beyond `limit` bytes; never the only one.
    pub(super) fn to_evict(&self, limit: usize) -> Option<Version> {
        let bytes = |id: &Version| {
            let committed = self.committed.get(id).map_or(0, |session| session.bytes);
            let opened = if self.pending.opened.contains(id) { SESSION_BYTES } else { 0 };
            committed + opened + self.pending.ahead(id).bytes
        };
        let going: usize = self.pending.evicted.iter().map(bytes).sum();
        if self.bytes() - going <= limit {
            return None;
        }
        // Those that are being opened too: many of them may be, before the first one is committed.
        let all = self.by_use.iter().map(|&(_, id)| id).chain(self.pending.opened.iter().copied());
        let mut kept = all.filter(|id| !self.pending.evicted.contains(id));
        let first = kept.next()?;
        kept.next().map(|_| first)
    }

    /// The value that a request took away, by its update.
    pub(super) fn taken(&self, update: &Update) -> Option<Bytes> {
        // Nearly every update takes nothing away, and needs no look at the table.
        let RequestKey { session, number, .. } =
            update.request.filter(|_| matches!(update.outcome, Outcome::Took(_)))?;
        let committed = || self.committed.get(&session)?.records.get(&number)?.taken.clone();
        self.pending.requests.get(&(session, number)).and_then(|noted| noted.taken.clone()).or_else(committed)
    }

    /// Takes in what a new, pending update says, and the value that it takes away, if that is to be kept.
    pub(super) fn note(&mut self, update: &Update, taken: Option<Bytes>) {
        if update.kind == UpdateKind::SESSION_OPEN {
            self.pending.opened.insert(update.version);
            self.pending.bytes += SESSION_BYTES;
        }
        let Some(request) = update.request else { return };
        if update.kind == UpdateKind::SESSION_EVICT {
            self.pending.evicted.insert(request.session);
            return;
        }
        let bytes = RECORD_BYTES + taken.as_ref().map_or(0, Bytes::len);
        let ahead = self.pending.by_session.entry(request.session).or_default();
        let Ahead { lowest, records, bytes: of_session } = *ahead;
        *ahead = Ahead { lowest: request.lowest.max(lowest), records: records + 1, bytes: of_session + bytes };
        self.pending.bytes += bytes;
        let noted = Noted { sequence: update.version.sequence, taken };
        self.pending.requests.insert((request.session, request.number), noted);
    }

    /// The update is committed now; they come in order, each having been [noted](Self::note).
    pub(super) fn commit(&mut self, update: &Update) {
        let used = update.version.sequence;
        if update.kind == UpdateKind::SESSION_OPEN {
            self.pending.opened.remove(&update.version);
            self.pending.bytes -= SESSION_BYTES;
            self.bytes += SESSION_BYTES;
            self.committed.insert(update.version, Session { used, bytes: SESSION_BYTES, ..Session::default() });
            self.by_use.insert((used, update.version));
        }
        let Some(request) = update.request else { return };
        let id = request.session;
        if update.kind == UpdateKind::SESSION_EVICT {
            self.pending.evicted.remove(&id);
            self.forget(id);
            return;
        }
        let noted = self.pending.requests.remove(&(id, request.number));
        let record = Record::of(update, noted.and_then(|noted| noted.taken));
        self.pending.bytes -= record.bytes();
        if let Some(ahead) = self.pending.by_session.get_mut(&id) {
            ahead.records -= 1;
            ahead.bytes -= record.bytes();
            if ahead.records == 0 {
                self.pending.by_session.remove(&id);
            }
        }
        // Evicted while this was on its way: nothing is recorded, and a retry is told so.
        let Some(session) = self.committed.get_mut(&id) else { return };
        self.by_use.remove(&(std::mem::replace(&mut session.used, used), id));
        self.by_use.insert((used, id));
        self.bytes -= session.bytes;
        session.bytes += record.bytes();
        session.records.insert(request.number, record);
        if request.lowest > session.lowest {
            session.lowest = request.lowest;
            let kept = session.records.split_off(&request.lowest);
            let gone = std::mem::replace(&mut session.records, kept);
            session.bytes -= gone.values().map(Record::bytes).sum::<usize>();
        }
        self.bytes += session.bytes;
    }

    /// Pending updates went: those that stay are to be [noted](Self::note) anew.
    pub(super) fn forget_pending(&mut self) {
        self.pending = Pending::default();
    }

    fn forget(&mut self, id: Version) {
        let Some(session) = self.committed.remove(&id) else { return };
        self.by_use.remove(&(session.used, id));
        self.bytes -= session.bytes;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use smallvec::smallvec;

    use super::*;

    fn update(sequence: u64, kind: UpdateKind, request: Option<RequestKey>) -> Update {
        Update {
            version: Version::new(1, sequence),
            kind,
            request,
            outcome: Outcome::Done,
            chain_time: 0,
            changes: smallvec![],
        }
    }

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
        fn order(&mut self, kind: UpdateKind, request: Option<RequestKey>) -> u64 {
            let update = update(self.history.len() as u64 + 1, kind, request);
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
    fn a_request_is_known_from_its_ordering_to_its_clients_word() {
        let mut table = Table::default();
        let unknown = key(1, 1, 1);
        assert_eq!(table.sessions.look_up(unknown, false, 1 << 20), Known::NoSession);
        assert_eq!(table.order(UpdateKind::SESSION_OPEN, None), 1);
        table.commit();
        assert_eq!(table.sessions.look_up(unknown, false, 1 << 20), Known::Nothing);
        table.order(UpdateKind::WRITE, Some(key(1, 1, 1)));
        assert_eq!(table.sessions.look_up(unknown, false, 1 << 20), Known::Pending(Sequence(2)));
        table.commit();
        assert!(
            matches!(table.sessions.look_up(unknown, false, 1 << 20), Known::Done(record) if record.version == Version::new(1, 2))
        );
        table.order(UpdateKind::WRITE, Some(key(1, 2, 2)));
        assert!(
            matches!(table.sessions.look_up(unknown, false, 1 << 20), Known::Done(_)),
            "the word isn't committed yet"
        );
        table.commit();
        assert_eq!(table.sessions.look_up(unknown, false, 1 << 20), Known::Answered);
    }

    #[test]
    fn what_vanishes_takes_its_record_along() {
        let mut table = Table::default();
        table.order(UpdateKind::SESSION_OPEN, None);
        table.commit();
        table.order(UpdateKind::WRITE, Some(key(1, 7, 5)));
        assert_eq!(table.sessions.look_up(key(1, 4, 1), false, 1 << 20), Known::Answered);
        table.cut(1);
        assert_eq!(table.sessions.look_up(key(1, 7, 5), false, 1 << 20), Known::Nothing);
        assert_eq!(table.sessions.look_up(key(1, 4, 1), false, 1 << 20), Known::Nothing);
        assert_eq!(table.sessions.bytes(), SESSION_BYTES);
    }

    #[test]
    fn the_longest_unused_session_goes_and_is_gone_for_good() {
        let mut table = Table::default();
        table.order(UpdateKind::SESSION_OPEN, None);
        table.order(UpdateKind::SESSION_OPEN, None);
        table.order(UpdateKind::WRITE, Some(key(1, 1, 1)));
        table.commit();
        assert_eq!(table.sessions.to_evict(1 << 20), None);
        assert_eq!(table.sessions.to_evict(0), Some(Version::new(1, 2)));
        table.order(UpdateKind::SESSION_EVICT, Some(key(2, 0, 0)));
        assert_eq!(table.sessions.to_evict(0), None, "never the only one");
        assert_eq!(table.sessions.look_up(key(2, 1, 1), false, 1 << 20), Known::NoSession);
        table.commit();
        assert_eq!(table.sessions.look_up(key(2, 1, 1), false, 1 << 20), Known::NoSession);
        assert_eq!((table.sessions.len(), table.sessions.bytes()), (1, SESSION_BYTES + RECORD_BYTES));
    }

    /// A table of one session, which fills its half of 1,000 bytes: with the records of 2, 3, 4 and 5.
    fn full() -> Table {
        let mut table = Table::default();
        table.order(UpdateKind::SESSION_OPEN, None);
        for number in 2..6 {
            assert_eq!(table.sessions.look_up(key(1, number, 1), false, 2000), Known::Nothing);
            table.order(UpdateKind::WRITE, Some(key(1, number, 1)));
            table.commit();
        }
        assert_eq!(table.sessions.look_up(key(1, 6, 1), false, 2000), Known::Full);
        table
    }

    #[test]
    fn a_full_session_takes_in_what_lets_its_records_go() {
        let mut table = full();
        assert_eq!(table.sessions.look_up(key(1, 6, 2), false, 2000), Known::Full, "nothing would go");
        assert_eq!(table.sessions.look_up(key(1, 6, 5), false, 2000), Known::Nothing);
        table.order(UpdateKind::WRITE, Some(key(1, 6, 5)));
        assert_eq!(table.sessions.look_up(key(1, 7, 5), false, 2000), Known::Full, "one at a time");
        table.commit();
        assert_eq!(table.sessions.look_up(key(1, 7, 5), false, 2000), Known::Nothing);
        assert_eq!(table.sessions.bytes(), SESSION_BYTES + 2 * RECORD_BYTES);
    }

    #[test]
    fn a_full_session_takes_in_what_its_client_waits_for_before_all_others() {
        let mut table = full();
        assert_eq!(table.sessions.look_up(key(1, 1, 1), false, 2000), Known::Nothing);
        table.order(UpdateKind::WRITE, Some(key(1, 1, 1)));
        table.commit();
        assert_eq!(table.sessions.look_up(key(1, 6, 1), false, 2000), Known::Full);
        assert_eq!(
            table.sessions.look_up(key(1, 6, 6), false, 2000),
            Known::Nothing,
            "its client knows them all by now"
        );
        assert_eq!(table.sessions.look_up(key(1, 6, 1), true, 2000), Known::Nothing, "what settles another one");
        assert_eq!(table.sessions.look_up(key(1, 6, 1), true, 1000), Known::Full, "within bounds");
    }

    proptest! {
        /// Bytes are those of what is there, and a cut leaves what a table would hold that never saw the rest.
        #[test]
        fn a_cut_table_is_one_that_never_saw_more(
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
                // As a head would: no update under a number that is known.
                let known = request.map_or(Known::Nothing, |request| cut.sessions.look_up(request, false, 1 << 20));
                let evicts = kind == UpdateKind::SESSION_EVICT && known != Known::NoSession;
                if known != Known::Nothing && !evicts {
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
                SESSION_BYTES + session.records.values().map(Record::bytes).sum::<usize>()
            }).sum();
            prop_assert_eq!(plain.sessions.bytes(), recount);
        }
    }
}
