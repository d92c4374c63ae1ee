//! The table of sessions in a snapshot, with the records of committed updates only.

use super::{RequestRecord, SESSION_BYTES, SessionRecords, Sessions};
use crate::message::SessionEntry;

impl Sessions {
    /// All entries, in the order that [`add`](Self::add) requires.
    pub(crate) fn copy(&self) -> Vec<SessionEntry> {
        let of_session = |(&id, session): (_, &SessionRecords)| {
            let SessionRecords { lowest, used, .. } = *session;
            let records = session.records.iter().map(|(number, record)| SessionEntry::Record {
                number,
                version: record.version,
                outcome: record.outcome,
                taken: record.taken.clone(),
            });
            std::iter::once(SessionEntry::Session { id, lowest, used }).chain(records).collect::<Vec<_>>()
        };
        self.committed.iter().flat_map(of_session).collect()
    }

    /// Adds the next entry. A record belongs to the present session with the highest id.
    pub(crate) fn add(&mut self, entry: SessionEntry) {
        match entry {
            SessionEntry::Session { id, lowest, used } => {
                let session = SessionRecords { lowest, used, bytes: SESSION_BYTES, ..SessionRecords::default() };
                if self.committed.insert(id, session).is_none() {
                    self.by_use.add(id, used);
                    self.bytes += SESSION_BYTES;
                }
            }
            SessionEntry::Record { number, version, outcome, taken } => {
                let Some(mut session) = self.committed.last_entry() else { return };
                let record = RequestRecord { version, outcome, taken };
                session.get_mut().bytes += record.bytes();
                self.bytes += record.bytes();
                session.get_mut().records.insert(number, record);
            }
        }
    }
}
