//! The table by which retries are recognized (docs/DESIGN.md §9).
//!
//! Records of pending updates are stored separately, and dropped with their updates (trap 31). Equal histories produce
//! equal tables, so any member can become head.

mod by_use;
mod copy;
mod ring;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use self::{by_use::ByUse, ring::Ring};
use crate::{
    Sequence, Version,
    replica::SessionStatus,
    types::update::{RequestKey, RequestOutcome, Update, UpdateKind},
};

/// The number of records at which a session is full. [`Sessions::look_up`] still admits some requests then.
pub(crate) const MAX_RECORDS: usize = 1 << 16;

const SESSION_BYTES: usize = 160;
const RECORD_BYTES: usize = 96;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RequestRecord {
    pub(crate) version: Version,
    pub(crate) outcome: RequestOutcome,
    pub(crate) taken: Option<Bytes>,
}

impl RequestRecord {
    pub(crate) fn of(update: &Update, taken: Option<Bytes>) -> Self {
        Self { version: update.version, outcome: update.outcome, taken }
    }

    fn bytes(&self) -> usize {
        record_bytes(self.taken.as_ref())
    }
}

fn record_bytes(taken: Option<&Bytes>) -> usize {
    RECORD_BYTES + taken.map_or(0, Bytes::len)
}

/// The state of an arriving request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum KnownRequest {
    /// The request is new and may be executed.
    Nothing,
    /// The update with this sequence holds the request, and isn't committed here yet.
    Pending(Sequence),
    /// A committed update holds the request.
    Done(RequestRecord),
    NoSession,
    /// The client has confirmed that it knows the outcome.
    Answered,
    /// The session has reached its limit of records or bytes.
    Full,
}

#[derive(Clone, Hash, Debug, Default)]
struct SessionRecords {
    lowest: u64,
    used: Sequence,
    records: Ring<RequestRecord>,
    bytes: usize,
}

impl SessionRecords {
    /// The number and bytes of the records of requests below `lowest`.
    fn below(&self, lowest: u64) -> (usize, usize) {
        let below = self.records.iter().take_while(|&(number, _)| number < lowest);
        below.fold((0, 0), |(records, bytes), (_, record)| (records + 1, bytes + record.bytes()))
    }
}

/// The changes of pending updates to the table.
#[derive(Clone, Hash, Debug, Default)]
struct Pending {
    by_session: BTreeMap<Version, Ahead>,
    opened: BTreeSet<Version>,
    evicted: BTreeSet<Version>,
    bytes: usize,
}

/// The changes of pending updates to one session.
#[derive(Clone, Hash, Debug, Default)]
struct Ahead {
    lowest: u64,
    records: Ring<PendingRecord>,
    bytes: usize,
}

impl Pending {
    fn noted(&self, id: &Version, number: u64) -> Option<&PendingRecord> {
        self.by_session.get(id)?.records.get(number)
    }
}

#[derive(Clone, Hash, Debug)]
struct PendingRecord {
    sequence: Sequence,
    taken: Option<Bytes>,
}

#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Sessions {
    committed: BTreeMap<Version, SessionRecords>,
    by_use: ByUse,
    bytes: usize,
    pending: Pending,
}

impl Sessions {
    pub(crate) fn status(&self) -> SessionStatus {
        let pending_bytes = self.pending.bytes;
        SessionStatus { count: self.committed.len(), bytes: self.bytes(), pending_bytes }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.pending.bytes
    }

    /// Returns the state of a request, where `limit` bounds the bytes of all sessions. One session may use a quarter of
    /// `limit`, so that its client can open another one alongside it. For a request that
    /// [settles](crate::api::Write::Resolve) the outcome of others, the session's limits are doubled.
    pub(crate) fn look_up(&self, request: RequestKey, settles: bool, limit: usize) -> KnownRequest {
        let RequestKey { session: id, number, .. } = request;
        let session = self.committed.get(&id);
        if self.pending.evicted.contains(&id) || session.is_none() && !self.pending.opened.contains(&id) {
            return KnownRequest::NoSession;
        }
        if let Some(noted) = self.pending.noted(&id, number) {
            return KnownRequest::Pending(noted.sequence);
        }
        if let Some(record) = session.and_then(|session| session.records.get(number)) {
            return KnownRequest::Done(record.clone());
        }
        let ahead = self.pending.by_session.get(&id);
        let lowest = session.map_or(0, |session| session.lowest);
        if number < ahead.map_or(lowest, |ahead| lowest.max(ahead.lowest)) {
            return KnownRequest::Answered;
        }
        // Include pending records: otherwise requests that arrive before a commit would exceed the session's share.
        let (records_ahead, bytes_ahead) = ahead.map_or((0, 0), |ahead| (ahead.records.len(), ahead.bytes));
        let records = session.map_or(0, |session| session.records.len()) + records_ahead;
        let bytes = session.map_or(0, |session| session.bytes) + bytes_ahead;
        let (most, limit) = if settles { (2 * MAX_RECORDS, limit / 2) } else { (MAX_RECORDS, limit / 4) };
        let is_full = |records: usize, bytes: usize| records >= most || bytes > limit;
        if !is_full(records, bytes) {
            return KnownRequest::Nothing;
        }
        // A full session must still admit some requests: only an admitted request can raise `lowest` and so free
        // records. So it admits one at a time, if that frees enough records, or if it is the lowest unanswered request:
        // its client can't raise `lowest` before it knows the outcome of that request.
        let makes_room = || {
            let (gone, gone_bytes) = session.map_or((0, 0), |session| session.below(request.lowest));
            number == request.lowest.max(lowest) || !is_full(records - gone, bytes - gone_bytes)
        };
        if records_ahead == 0 && makes_room() { KnownRequest::Nothing } else { KnownRequest::Full }
    }

    /// The next session to evict if all sessions together exceed `limit` bytes. The last remaining session is never
    /// evicted.
    pub(crate) fn to_evict(&self, limit: usize) -> Option<Version> {
        let bytes = |id: &Version| {
            let committed = self.committed.get(id).map_or(0, |session| session.bytes);
            let opened = if self.pending.opened.contains(id) { SESSION_BYTES } else { 0 };
            committed + opened + self.pending.by_session.get(id).map_or(0, |ahead| ahead.bytes)
        };
        let going: usize = self.pending.evicted.iter().map(bytes).sum();
        if self.bytes() - going <= limit {
            return None;
        }
        // Include sessions that are being opened: many may be pending before the first one is committed.
        let all = self.by_use.iter().chain(self.pending.opened.iter().copied());
        let mut kept = all.filter(|id| !self.pending.evicted.contains(id));
        let first = kept.next()?;
        kept.next().map(|_| first)
    }

    /// The value that the update's request removed.
    pub(crate) fn taken(&self, update: &Update) -> Option<Bytes> {
        // Nearly every update removes no value, so the lookup can be skipped.
        let RequestKey { session, number, .. } =
            update.request.filter(|_| matches!(update.outcome, RequestOutcome::Took(_)))?;
        let committed = || self.committed.get(&session)?.records.get(number)?.taken.clone();
        self.pending.noted(&session, number).and_then(|noted| noted.taken.clone()).or_else(committed)
    }

    /// Records a new, pending update, and the value that it removes, if that must be kept.
    pub(crate) fn note(&mut self, update: &Update, taken: Option<Bytes>) {
        if update.kind == UpdateKind::SESSION_OPEN {
            self.pending.opened.insert(update.version);
            self.pending.bytes += SESSION_BYTES;
        }
        let Some(request) = update.request else { return };
        if update.kind == UpdateKind::SESSION_EVICT {
            self.pending.evicted.insert(request.session);
            return;
        }
        let bytes = record_bytes(taken.as_ref());
        let ahead = self.pending.by_session.entry(request.session).or_default();
        ahead.lowest = ahead.lowest.max(request.lowest);
        let noted = PendingRecord { sequence: update.version.sequence, taken };
        let before = ahead.records.insert(request.number, noted);
        let before = before.map_or(0, |noted| record_bytes(noted.taken.as_ref()));
        ahead.bytes = ahead.bytes + bytes - before;
        self.pending.bytes = self.pending.bytes + bytes - before;
    }

    /// Records the commit of an update. Updates are committed in order, after each was [noted](Self::note).
    pub(crate) fn commit(&mut self, update: &Update) {
        let used = update.version.sequence;
        if update.kind == UpdateKind::SESSION_OPEN {
            self.pending.opened.remove(&update.version);
            self.pending.bytes -= SESSION_BYTES;
            self.bytes += SESSION_BYTES;
            self.committed
                .insert(update.version, SessionRecords { used, bytes: SESSION_BYTES, ..SessionRecords::default() });
            self.by_use.add(update.version, used);
        }
        let Some(request) = update.request else { return };
        let id = request.session;
        if update.kind == UpdateKind::SESSION_EVICT {
            self.pending.evicted.remove(&id);
            self.forget(id);
            return;
        }
        let record = RequestRecord::of(update, self.no_longer_ahead(id, request.number));
        // If the session has been evicted since, nothing is recorded: a retry is refused as expired.
        let Some(session) = self.committed.get_mut(&id) else { return };
        self.by_use.used(id, std::mem::replace(&mut session.used, used), used);
        self.bytes -= session.bytes;
        session.bytes += record.bytes();
        session.records.insert(request.number, record);
        if request.lowest > session.lowest {
            session.lowest = request.lowest;
            while let Some(gone) = session.records.pop_below(request.lowest) {
                session.bytes -= gone.bytes();
            }
        }
        self.bytes += session.bytes;
    }

    /// Removes the pending record of a request that is being committed. Returns the value that the request removed.
    fn no_longer_ahead(&mut self, id: Version, number: u64) -> Option<Bytes> {
        let ahead = self.pending.by_session.get_mut(&id)?;
        let taken = ahead.records.remove(number)?.taken;
        let bytes = record_bytes(taken.as_ref());
        ahead.bytes -= bytes;
        self.pending.bytes -= bytes;
        if ahead.records.is_empty() {
            self.pending.by_session.remove(&id);
        }
        taken
    }

    /// Drops all pending records. The remaining updates must be [noted](Self::note) again.
    pub(crate) fn forget_pending(&mut self) {
        self.pending = Pending::default();
    }

    fn forget(&mut self, id: Version) {
        let Some(session) = self.committed.remove(&id) else { return };
        self.by_use.remove(id, session.used);
        self.bytes -= session.bytes;
    }
}
