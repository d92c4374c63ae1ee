//! Follows the data below a prefix in one chain: first a whole copy, then each change, without a gap.
//!
//! A follower asks for a *position* first, then for the *pages* of a scan, each from a member that has reached that
//! position, and then for the *changes* after it. A page states as of which sequence it was read; changes of its keys up
//! to that sequence are skipped, since the page shows them. So the state that a follower reports only moves forward.
//! Once the changes reach the highest sequence of any page, all keys show one point of the history: the follower is
//! *level*.
//!
//! If its changes are no longer kept, it begins again at a position that no earlier report exceeds
//! ([`Follower::fell_behind`]): a member that is far behind, or has just restarted with nothing, would show an older
//! state. If the cluster continues in another history, earlier positions mean nothing ([`Follower::restart`]).

mod copy;

use bytes::Bytes;

pub use self::copy::{Copy, CopyChange, CopyEdit, CopyEntry, CopyFeed};
use crate::{
    ReadMode, Sequence, Version,
    api::{Query, Reply, ScanQuery, ScanReply, Snapshot, WatchQuery, WatchReply},
    guards::Guards,
    store::ScanRecord,
};

/// The number of keys that a page requests.
const PAGE: u32 = 1024;

/// A read that a follower needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FollowerQuery {
    pub query: Query,
    /// Only a member whose watermark has reached this sequence may answer. Once it has, it answers a query for changes at
    /// once, also without a change, and states its position.
    pub floor: Option<Sequence>,
}

impl FollowerQuery {
    /// The mode of the read.
    pub fn mode(&self) -> ReadMode {
        if let Query::Changes(watch) = &self.query { watch.mode() } else { ReadMode::Eventual }
    }
}

/// What a follower reports, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Followed {
    /// It reads all keys again. What it reported before is out of date from the next [`Level`](Self::Level) on.
    Restarted,
    /// Some of the keys that exist.
    Page(Vec<ScanRecord>),
    /// The changes that one update made to keys below the prefix. They take effect together.
    Update { version: Version, changes: Vec<ScanRecord> },
    /// All keys show this point of the history.
    Level(Sequence),
}

/// Follows one chain.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Follower {
    prefix: Bytes,
    state: FollowerState,
    /// The newest point of the history that it has reported.
    reached: Option<Sequence>,
    guards: Guards,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum FollowerState {
    /// It has no position. `late` holds the pages of a mutant that reads them first.
    New {
        late: Option<Pages>,
    },
    Reading {
        position: Sequence,
        after: Option<Bytes>,
        pages: Pages,
    },
    Following {
        position: Sequence,
        /// The number of changes of the next update that were received.
        shown: u32,
        /// These changes.
        part: Vec<ScanRecord>,
        pages: Pages,
    },
}

/// The ranges of keys that were read, each up to its last key, and the sequences as of which they were read.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Pages(Vec<(Option<Bytes>, Sequence)>);

impl Pages {
    fn push(&mut self, upto: Option<Bytes>, as_of: Sequence) {
        match self.0.last_mut() {
            Some((last, same)) if *same == as_of => *last = upto,
            _ => self.0.push((upto, as_of)),
        }
    }

    fn newest(&self) -> Sequence {
        self.0.iter().map(|(_, as_of)| *as_of).max().unwrap_or_default()
    }

    /// The sequence as of which this key was read.
    fn of(&self, key: &[u8]) -> Sequence {
        let at = self.0.partition_point(|(upto, _)| upto.as_deref().is_some_and(|upto| upto < key));
        self.0.get(at).map_or(Sequence::ZERO, |(_, as_of)| *as_of)
    }
}

impl Follower {
    /// A follower of the keys with this prefix.
    pub fn new(prefix: Bytes, guards: Guards) -> Self {
        Self { prefix, state: FollowerState::New { late: None }, reached: None, guards }
    }

    /// The next read. It must be answered, or repeated at another member, or abandoned by
    /// [`fell_behind`](Self::fell_behind) or [`restart`](Self::restart).
    pub fn next(&self) -> FollowerQuery {
        let watch = |after, shown| Query::Changes(WatchQuery { prefix: self.prefix.clone(), after, shown });
        let scan = |after: &Option<Bytes>| {
            let (prefix, after) = (self.prefix.clone(), after.clone());
            Query::Scan(ScanQuery { prefix, after, limit: PAGE, snapshot: Snapshot::No })
        };
        match &self.state {
            FollowerState::New { late: None } if allows!(self.guards, PositionLate) => {
                FollowerQuery { query: scan(&None), floor: None }
            }
            FollowerState::New { .. } => FollowerQuery { query: watch(None, 0), floor: self.reached },
            FollowerState::Reading { position, after, .. } => {
                let floor = Some(*position).filter(|_| !allows!(self.guards, ReadPagesBehind));
                FollowerQuery { query: scan(after), floor }
            }
            FollowerState::Following { position, shown, pages, .. } => {
                // Without this floor, a member answers only once a key below the prefix changes.
                let floor = Some(pages.newest()).filter(|newest| position < newest);
                FollowerQuery { query: watch(Some(*position), *shown), floor }
            }
        }
    }

    /// The answer to [`next`](Self::next). A refusal changes nothing.
    pub fn answer(&mut self, reply: Reply, out: &mut Vec<Followed>) {
        match reply {
            Reply::Page(page) => self.read(page, out),
            Reply::Changes(changes) => self.changed(changes, out),
            _ => {}
        }
    }

    /// Begins again in the same history: the changes after its position are no longer kept.
    pub fn fell_behind(&mut self) {
        self.state = FollowerState::New { late: None };
    }

    /// Begins again in another history, which may be shorter.
    pub fn restart(&mut self) {
        self.fell_behind();
        self.reached = None;
    }

    /// Whether all that it reported shows one point of the history, and which.
    pub fn level(&self) -> Option<Sequence> {
        match &self.state {
            FollowerState::Following { position, pages, .. } => (*position >= pages.newest()).then_some(*position),
            FollowerState::New { .. } | FollowerState::Reading { .. } => None,
        }
    }

    fn read(&mut self, page: ScanReply, out: &mut Vec<Followed>) {
        if let FollowerState::New { late: None } = self.state
            && allows!(self.guards, PositionLate)
        {
            out.push(Followed::Restarted);
            self.state = FollowerState::Reading { position: Sequence::ZERO, after: None, pages: Pages::default() };
        }
        let FollowerState::Reading { position, after, pages } = &mut self.state else { return };
        if page.as_of < *position && !allows!(self.guards, ReadPagesBehind) {
            return;
        }
        pages.push(page.next.clone(), page.as_of);
        out.push(Followed::Page(page.records));
        *after = page.next;
        if after.is_some() {
            return;
        }
        let (position, pages) = (*position, std::mem::take(pages));
        if allows!(self.guards, PositionLate) {
            self.state = FollowerState::New { late: Some(pages) };
            return;
        }
        self.state = FollowerState::Following { position, shown: 0, part: Vec::new(), pages };
        self.report_level(out);
    }

    fn changed(&mut self, changes: WatchReply, out: &mut Vec<Followed>) {
        let WatchReply { mut records, upto, shown: shown_now } = changes;
        match &mut self.state {
            FollowerState::New { .. } if self.reached.is_some_and(|reached| upto < reached) => return,
            FollowerState::New { late } => {
                self.state = match late.take() {
                    Some(pages) => FollowerState::Following {
                        position: upto.max(pages.newest()),
                        shown: 0,
                        part: Vec::new(),
                        pages,
                    },
                    None => {
                        out.push(Followed::Restarted);
                        FollowerState::Reading { position: upto, after: None, pages: Pages::default() }
                    }
                };
            }
            FollowerState::Following { position, shown, part, pages } if upto >= *position => {
                part.append(&mut records);
                let rest = part.partition_point(|record| record.held.version.sequence <= upto);
                let whole: Vec<_> = part.drain(..rest).collect();
                (*position, *shown) = (upto, shown_now);
                for changes in whole.chunk_by(|one, next| one.held.version == next.held.version) {
                    let version = changes[0].held.version;
                    let is_new = |record: &&ScanRecord| {
                        pages.of(&record.key) < version.sequence || allows!(self.guards, RepeatChange)
                    };
                    let changes: Vec<_> = changes.iter().filter(is_new).cloned().collect();
                    if !changes.is_empty() {
                        out.push(Followed::Update { version, changes });
                    }
                }
            }
            FollowerState::Reading { .. } | FollowerState::Following { .. } => return,
        }
        self.report_level(out);
    }

    fn report_level(&mut self, out: &mut Vec<Followed>) {
        let Some(level) = self.level() else { return };
        if let FollowerState::Following { pages, .. } = &mut self.state {
            *pages = Pages::default();
        }
        self.reached = Some(level);
        out.push(Followed::Level(level));
    }
}

#[cfg(test)]
mod tests;
