//! The queue of a lock or an election: one sequential key for each contender, and the lowest one holds.
//!
//! A contender puts its key, then looks for its predecessor: the greatest lower key. No lower key can appear later,
//! since versions only increase. It watches that one key from the position of its look on, and looks again once the key
//! was deleted: the predecessor may have been another contender that died while it waited. It holds once no lower key
//! exists, if its own lease shows that its own key still does.

use bytes::Bytes;

use super::{KeyLease, name::version_of, renewal::Renewal};
use crate::{
    Sequence, Timestamp, Version,
    api::{
        Query, ReadMode, ScanQuery, ScanReply, Snapshot, Ttl, WatchQuery, WatchReply, Write, millis, sequential_key,
    },
    guards::Guards,
};

/// The number of keys that one look requests.
const PAGE: u32 = 256;

/// The next action of a contender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QueueStep {
    /// Make this write, whose outcome must become certain, and report the version ([`Contender::placed`]).
    Place(Write),
    /// Read in this mode, and report the answer ([`Contender::looked`], [`Contender::changed`] or
    /// [`Contender::look_again`]).
    Ask(Query, ReadMode),
    /// Wait for the answer to a renewal: the lease has ended, but the key may still exist.
    Confirm,
    /// It holds.
    Hold(Version),
    /// It held, and its lease has ended or its key is gone.
    Lost,
}

/// One contender for a lock or an election.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Contender {
    prefix: Bytes,
    value: Bytes,
    lease: KeyLease,
    state: QueueState,
    guards: Guards,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum QueueState {
    /// It has no key.
    Out,
    Looking {
        version: Version,
        after: Option<Bytes>,
        /// The greatest lower key on the pages so far.
        ahead: Option<Version>,
        /// The position of the first page.
        from: Option<Sequence>,
    },
    Behind {
        version: Version,
        ahead: Version,
        /// The position of the watch; `None` only in a mutant: the watch begins with the next change.
        after: Option<Sequence>,
        shown: u32,
    },
    /// No lower key exists.
    First {
        version: Version,
    },
    Holding {
        version: Version,
    },
    Lost {
        version: Version,
    },
}

impl Contender {
    /// A contender for the lock with these keys, whose own key will hold `value`.
    pub fn new(prefix: Bytes, value: Bytes, lease: KeyLease, guards: Guards) -> Self {
        Self { prefix, value, lease, state: QueueState::Out, guards }
    }

    /// What to do now.
    pub fn next(&mut self, now: Timestamp) -> QueueStep {
        match &self.state {
            QueueState::Out => QueueStep::Place(Write::PutSequential {
                prefix: self.prefix.clone(),
                value: self.value.clone(),
                ttl: Ttl::Set(millis(self.lease.ttl())),
            }),
            QueueState::Looking { after, .. } => {
                let (prefix, after) = (self.prefix.clone(), after.clone());
                let query = ScanQuery { prefix, after, limit: PAGE, snapshot: Snapshot::No };
                QueueStep::Ask(Query::Scan(query), ReadMode::Strong)
            }
            QueueState::Behind { ahead, after, shown, .. } => {
                let prefix = sequential_key(&self.prefix, *ahead);
                QueueStep::Ask(Query::Changes(WatchQuery { prefix, after: *after, shown: *shown }), ReadMode::Eventual)
            }
            QueueState::First { version } => {
                let version = *version;
                if allows!(self.guards, TrustWakeUp) && !self.lease.is_held(now) {
                    self.lease.acknowledge(now, now);
                }
                if !self.lease.is_held(now) {
                    return QueueStep::Confirm;
                }
                self.state = QueueState::Holding { version };
                QueueStep::Hold(version)
            }
            QueueState::Holding { version } => {
                let version = *version;
                if self.lease.is_held(now) {
                    return QueueStep::Hold(version);
                }
                self.state = QueueState::Lost { version };
                QueueStep::Lost
            }
            QueueState::Lost { .. } => QueueStep::Lost,
        }
    }

    /// The key was put, by a request sent at `sent`. `version` is its version.
    pub fn placed(&mut self, version: Version, sent: Timestamp, now: Timestamp) {
        self.lease.acknowledge(sent, now);
        self.look(version);
    }

    fn look(&mut self, version: Version) {
        self.state = QueueState::Looking { version, after: None, ahead: None, from: None };
    }

    /// A page of the look.
    pub fn looked(&mut self, page: &ScanReply) {
        let QueueState::Looking { version, after, ahead, from } = &mut self.state else { return };
        from.get_or_insert(page.as_of);
        let own = *version;
        for record in &page.records {
            match version_of(&self.prefix, &record.key) {
                Some(other) if other < own => *ahead = Some(other),
                Some(other) if other == own => {
                    let after = from.filter(|_| !allows!(self.guards, WatchFromNow));
                    self.state = match *ahead {
                        Some(ahead) => QueueState::Behind { version: own, ahead, after, shown: 0 },
                        None => QueueState::First { version: own },
                    };
                    return;
                }
                // Its own key would precede this one: it has expired.
                Some(_) => return self.state = QueueState::Out,
                None => {}
            }
        }
        *after = page.next.clone();
        if after.is_none() {
            self.state = QueueState::Out;
        }
    }

    /// An answer to the watch of the predecessor's key.
    pub fn changed(&mut self, changes: &WatchReply) {
        let QueueState::Behind { version, ahead, after, shown } = &mut self.state else { return };
        let (version, key) = (*version, sequential_key(&self.prefix, *ahead));
        (*after, *shown) = (Some(changes.upto), changes.shown);
        if !changes.records.iter().any(|record| record.key == key && record.held.value.is_none()) {
            return;
        }
        if allows!(self.guards, PassDeadWaiter) {
            self.state = QueueState::First { version };
        } else {
            self.look(version);
        }
    }

    /// The watch can't continue: its changes are no longer kept, or its position belongs to another history.
    pub fn look_again(&mut self) {
        if let Some(version) = self.version()
            && let QueueState::Behind { .. } | QueueState::Looking { .. } = self.state
        {
            self.look(version);
        }
    }

    /// A renewal of the key that `version` put, sent at `sent`, has ended.
    pub fn renewed(&mut self, version: Version, outcome: Renewal, sent: Timestamp, now: Timestamp) {
        if self.version() != Some(version) {
            return;
        }
        let outcome = match outcome {
            Renewal::Unknown if allows!(self.guards, TrustUnknownRenewal) => Renewal::Renewed,
            outcome => outcome,
        };
        match (outcome, &self.state) {
            // The holder may have stopped its work already.
            (_, QueueState::Holding { .. }) if !self.lease.is_held(now) => self.state = QueueState::Lost { version },
            (Renewal::Unknown, _) | (_, QueueState::Out | QueueState::Lost { .. }) => {}
            (Renewal::Renewed, _) => self.lease.acknowledge(sent, now),
            (Renewal::Gone | Renewal::Replaced, QueueState::Holding { .. }) => {
                self.state = QueueState::Lost { version }
            }
            (Renewal::Gone | Renewal::Replaced, _) => self.state = QueueState::Out,
        }
    }

    /// The prefix of the keys of the queue.
    pub fn prefix(&self) -> Bytes {
        self.prefix.clone()
    }

    /// The lease of its key.
    pub fn lease(&self) -> &KeyLease {
        &self.lease
    }

    /// The version of the write that put its key, while it has one.
    pub fn version(&self) -> Option<Version> {
        match &self.state {
            QueueState::Out => None,
            QueueState::Looking { version, .. }
            | QueueState::Behind { version, .. }
            | QueueState::First { version }
            | QueueState::Holding { version }
            | QueueState::Lost { version } => Some(*version),
        }
    }

    /// Its key, while it has one.
    pub fn key(&self) -> Option<Bytes> {
        self.version().map(|version| sequential_key(&self.prefix, version))
    }

    /// Whether another contender's key precedes its own.
    pub fn is_behind(&self) -> bool {
        matches!(self.state, QueueState::Behind { .. })
    }

    /// Ends its hold if its lease has ended.
    pub fn lapse(&mut self, now: Timestamp) {
        if let QueueState::Holding { version } = self.state
            && !self.lease.is_held(now)
        {
            self.state = QueueState::Lost { version };
        }
    }

    /// Whether it held, and no longer does.
    pub fn is_lost(&self) -> bool {
        matches!(self.state, QueueState::Lost { .. })
    }

    /// Whether it certainly holds.
    pub fn is_held(&self, now: Timestamp) -> bool {
        matches!(self.state, QueueState::Holding { .. }) && self.lease.is_held(now)
    }
}

#[cfg(test)]
mod tests;
