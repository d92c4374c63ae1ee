//! The record of all calls and answers of a run.

use std::{collections::BTreeMap, fmt};

use bytes::Bytes;

use crate::{
    ChainId, Error, Refusal, RequestId, Sequence, Timestamp,
    api::{Query, ReadMode, Reply, Write},
    message::request::Operation,
};

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Ask {
    Write(Write),
    Read { query: Query, mode: ReadMode, floor: Option<Sequence> },
}

impl Ask {
    pub(crate) fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Write { write, .. } => Self::Write(write.clone()),
            Operation::Read { query, mode, floor, .. } => {
                Self::Read { query: query.clone(), mode: *mode, floor: *floor }
            }
            Operation::Admin(_) => Self::Write(Write::Resolve),
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum BookAnswer {
    Reply(Reply),
    /// Certainly nothing was applied, for this reason.
    Nothing(String),
    /// The outcome is unknown, or the call is in progress.
    Unknown,
}

/// The time of an answer that never arrived.
pub(crate) const NEVER: u64 = u64::MAX;

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct BookEntry {
    /// The number of the handle that made the call. Clones share one number.
    pub(crate) client: u32,
    pub(crate) called: u64,
    pub(crate) returned: u64,
    pub(crate) began: Timestamp,
    pub(crate) ended: Timestamp,
    pub(crate) ask: Ask,
    pub(crate) told: BookAnswer,
    pub(crate) id: Option<RequestId>,
    /// The chain that answered. Required for calls whose keys don't determine it.
    pub(crate) chain: Option<ChainId>,
}

#[derive(Default, Debug)]
pub(crate) struct Book {
    moment: u64,
    pub(crate) entries: Vec<BookEntry>,
    by_id: BTreeMap<RequestId, usize>,
    pub(crate) contradictions: Vec<String>,
}

/// A call in progress: its entry in the book, if it has one, and its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BookLine {
    entry: Option<usize>,
    called: u64,
}

impl Book {
    fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Records the start of a call. A repetition under a known id belongs to the same entry; settling an id has none of
    /// its own.
    pub(crate) fn begin(&mut self, client: u32, now: Timestamp, ask: Ask, id: Option<RequestId>) -> BookLine {
        let called = self.moment();
        if let Some(&entry) = id.and_then(|id| self.by_id.get(&id)) {
            return BookLine { entry: Some(entry), called };
        }
        if matches!(ask, Ask::Write(Write::Resolve)) {
            return BookLine { entry: None, called };
        }
        let entry = self.entries.len();
        let (returned, told) = (NEVER, BookAnswer::Unknown);
        self.entries.push(BookEntry { client, called, returned, began: now, ended: now, ask, told, id, chain: None });
        id.map(|id| self.by_id.insert(id, entry));
        BookLine { entry: Some(entry), called }
    }

    pub(crate) fn end(
        &mut self,
        line: BookLine,
        now: Timestamp,
        chain: ChainId,
        outcome: Result<&Reply, &Error>,
        id: Option<RequestId>,
    ) {
        let returned = self.moment();
        let Some(index) = line.entry else { return };
        let told = told(outcome);
        let barred = matches!(outcome, Err(Error::Refused { reason: Refusal::Barred, .. }));
        let entry = &mut self.entries[index];
        if let Some(id) = id.filter(|_| entry.id.is_none()) {
            entry.id = Some(id);
            self.by_id.insert(id, index);
        }
        let settles = match (&entry.told, &told) {
            (_, BookAnswer::Unknown) => false,
            (BookAnswer::Unknown, _) => true,
            // The earlier attempt was refused, so this one is recorded instead.
            (BookAnswer::Nothing(_), BookAnswer::Reply(_)) => {
                entry.called = line.called;
                true
            }
            (BookAnswer::Reply(before), BookAnswer::Reply(now)) => {
                if version(before) != version(now) {
                    self.contradictions.push(format!("{before:?} and {now:?} under one request id"));
                }
                false
            }
            (BookAnswer::Reply(before), BookAnswer::Nothing(_)) => {
                if barred {
                    self.contradictions.push(format!("{before:?}, and barred under one request id"));
                }
                false
            }
            (BookAnswer::Nothing(_), BookAnswer::Nothing(_)) => false,
        };
        if settles {
            (entry.told, entry.returned, entry.ended, entry.chain) = (told, returned, now, Some(chain));
        }
    }
}

fn told(outcome: Result<&Reply, &Error>) -> BookAnswer {
    match outcome {
        Ok(Reply::Refused(reason)) => BookAnswer::Nothing(reason.to_string()),
        Ok(Reply::Expired) | Err(Error::OutcomeUnknown { .. }) => BookAnswer::Unknown,
        Ok(reply) => BookAnswer::Reply(reply.clone()),
        Err(error) => BookAnswer::Nothing(error.to_string()),
    }
}

/// The version of the update that an answer to a write names.
fn version(reply: &Reply) -> Option<crate::Version> {
    match reply {
        Reply::Committed(done) => Some(done.version),
        Reply::Conflict { at, .. } => Some(*at),
        _ => None,
    }
}

impl fmt::Display for BookEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {}  {:?} ..", self.client, self.began)?;
        if self.returned == NEVER {
            write!(f, " ?")?
        } else {
            write!(f, " {:?}", self.ended)?
        }
        match &self.ask {
            Ask::Write(write) => write!(f, "  {write:?}")?,
            Ask::Read { query, mode, .. } => write!(f, "  {mode:?} read of {query:?}")?,
        }
        match &self.told {
            BookAnswer::Reply(reply) => write!(f, " -> {reply:?}"),
            BookAnswer::Nothing(why) => write!(f, " -> nothing applied: {why}"),
            BookAnswer::Unknown => write!(f, " -> unknown"),
        }
    }
}

pub(crate) fn text(key: &Bytes) -> String {
    String::from_utf8_lossy(key).into_owned()
}
