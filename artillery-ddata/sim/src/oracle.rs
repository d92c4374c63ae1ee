//! Rules that must hold after every step and at the end. The cost of a check grows only with the changes of the step.
//!
//! `history(successor) ⊑ history(predecessor)` (van Renesse & Schneider 2004) is checked against one log per chain: the
//! head extends it, and each other member must apply its entries, no sooner than its predecessor. For `history(i) =
//! history(i+1) ⊕ sent(i)` it remains to check that `sent(i)` is kept.

mod claims;
mod copies;
mod locks;
mod moving;
mod once;

use std::{collections::BTreeMap, fmt};

use artillery_proto::{
    Expiry, Sequence, Version,
    replica::{Halt, Status},
    store::ScanRecord,
    types::update::Update,
};
use bytes::Bytes;

use crate::history::History;

pub use copies::CopyOracle;
pub use locks::{LockHolder, LockOracle};
pub use once::Requests;

/// A rule that can be broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Oracle {
    /// The history that clients saw is not linearizable.
    History,
    /// `history(successor) ⊑ history(predecessor)`.
    Prefix,
    /// `history(i) = history(i+1) ⊕ sent(i)`: every update that is missing at the successor is kept for sending.
    Sent,
    /// Sequences are contiguous, versions and chain time increase, and no applied update is lost.
    Contiguity,
    /// A watermark decreased, or is above the tail's or above its member's newest version.
    Watermark,
    /// An answer reports an uncommitted version as committed, or returns a value that was never written.
    Claims,
    /// One request was applied twice, or has two outcomes.
    Once,
    /// A table or queue exceeds its bound.
    Bounds,
    /// A request was answered twice or never.
    Answers,
    /// A cluster was formed by too few nodes, in two different ways, or although most founders of another one survive.
    Formation,
    /// A frame can't be encoded, or differs after decoding.
    Wire,
    /// A committed update is not on the disk of a member that serves.
    Durable,
    /// A directory is damaged although no damage was injected.
    Disk,
    /// Stores reopened a chain although they must not, or although updates are missing.
    Reopened,
    /// A member halted and no longer serves.
    Halted,
    /// Members differ after healing.
    Convergence,
    /// A chain did not regain its members in time after healing, or a node did not serve.
    Liveness,
    /// Too little was served after healing, or virtual time did not advance.
    Progress,
    /// Client writes stopped for too long while a live member held up its chain.
    Stalled,
    /// A client got an unknown outcome although nothing failed.
    Unknown,
    /// A node that was asked to stop took the last copy or the log's quorum with it, or a cluster with data gave way.
    Lost,
    /// All nodes were asked to stop, but some waited too long for others.
    Stops,
    /// A node was reported ready although another one could not be stopped.
    Ready,
    /// Nothing was served although all prerequisites had been met for a long time.
    Service,
    /// Chain time rose faster than the clocks.
    ChainTime,
    /// A key with a time to live was removed too early, returned, or stayed.
    Expiry,
    /// A lock had two holders at once, or holders out of the order of their keys, or its resource refused a holder.
    Locks,
    /// A copy of keys showed a state that was never committed, or reported a change twice.
    Copies,
    /// The code under test panicked.
    Panic,
}

impl Oracle {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::History => "client history",
            Self::Prefix => "invariant: history(successor) is a prefix of history(predecessor)",
            Self::Sent => "invariant: history(i) = history(i+1) + sent(i)",
            Self::Contiguity => "invariant: versions are contiguous and permanent",
            Self::Watermark => "invariant: no watermark above what the tail committed",
            Self::Claims => "invariant: versions reported as committed are committed",
            Self::Once => "invariant: each request takes effect once",
            Self::Bounds => "invariant: tables and queues stay within their bounds",
            Self::Answers => "every request gets one answer",
            Self::Formation => "one cluster is formed",
            Self::Wire => "frames survive the wire",
            Self::Durable => "invariant: committed updates are on the disk of every serving member",
            Self::Reopened => "stores reopen a chain with all acknowledged updates",
            Self::Disk => "a directory without injected damage is intact",
            Self::Halted => "no member halts",
            Self::Convergence => "members converge",
            Self::Liveness => "liveness: complete and serving soon after healing",
            Self::Progress => "progress after healing",
            Self::Stalled => "clients: writes recover soon",
            Self::Unknown => "clients: no unknown outcome where nothing fails",
            Self::Lost => "data survives: no node stops with the last copy, and no cluster with data gives way",
            Self::Stops => "nodes that are all asked to stop end",
            Self::Ready => "ready: any other node may be stopped",
            Self::Service => "service comes back in time",
            Self::ChainTime => "chain time: it never runs ahead of the clocks",
            Self::Expiry => "expiry: no key is removed early, returns or stays",
            Self::Locks => "locks: one holder at a time, in the order of the queue, with rising tokens",
            Self::Copies => "copies: only committed states, each change once",
            Self::Panic => "panic",
        }
    }

    /// Whether a failure convicts a mutant: it concerns the clients' observations, an invariant of a chain or its
    /// disks, or a promise to clients and operators.
    pub const fn convicts(self) -> bool {
        match self {
            Self::History | Self::Prefix | Self::Sent | Self::Contiguity => true,
            Self::Watermark | Self::Claims | Self::Once | Self::Bounds | Self::Durable | Self::Disk => true,
            Self::Reopened | Self::ChainTime | Self::Expiry | Self::Locks | Self::Copies => true,
            Self::Stalled | Self::Unknown | Self::Lost | Self::Stops | Self::Ready | Self::Service => true,
            Self::Answers | Self::Formation | Self::Wire | Self::Halted => false,
            Self::Convergence | Self::Liveness | Self::Progress | Self::Panic => false,
        }
    }
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A broken rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The rule.
    pub oracle: Oracle,
    /// The evidence.
    pub what: String,
    /// The shortest history that shows the failure, if clients observed it.
    pub history: Option<Box<History>>,
}

impl Failure {
    /// A failure that no client history shows.
    pub fn new(oracle: Oracle, what: impl Into<String>) -> Self {
        Self { oracle, what: what.into(), history: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.oracle, self.what)
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Progress {
    last: Version,
    watermark: Sequence,
}

/// Checks one chain, whose members may be fixed or change. Places count from the head (0) to the tail.
#[derive(Debug)]
pub struct ChainOracle {
    log: Vec<Update>,
    /// The indices in the log of the changes of each key.
    by_key: BTreeMap<Bytes, Vec<usize>>,
    requests: Requests,
    /// The first request that was applied twice. Kept until the end, so that clients may observe it too.
    twice: Option<Failure>,
    members: Vec<Progress>,
    /// Set for a chain whose members change. Then the log holds only committed updates.
    moving: Option<moving::Moving>,
}

impl ChainOracle {
    /// An oracle for an empty chain of `members` places.
    pub fn new(members: usize) -> Self {
        let members = vec![Progress::default(); members];
        Self {
            log: Vec::new(),
            by_key: BTreeMap::new(),
            requests: Requests::default(),
            twice: None,
            members,
            moving: None,
        }
    }

    /// Checks the member in `place` after a step. `Err` has the rule that its current state breaks.
    pub fn observe<'a>(
        &mut self,
        place: usize,
        status: &Status,
        history: impl ExactSizeIterator<Item = &'a Update>,
    ) -> Result<(), Failure> {
        if let Some(halt) = &status.halted {
            return Err(Failure::new(Oracle::Halted, format!("member {place} halted: {}", HaltText(halt))));
        }
        let before = self.members[place];
        let kept = history.len() as u64;
        if status.last != before.last {
            self.applied(place, before.last, status.last, history)?;
        }
        if status.watermark != before.watermark {
            self.committed(place, status)?;
        }
        self.keeps_what_is_lacked(place, status, kept)?;
        self.members[place] = Progress { last: status.last, watermark: status.watermark };
        Ok(())
    }

    fn applied<'a>(
        &mut self,
        place: usize,
        from: Version,
        to: Version,
        history: impl ExactSizeIterator<Item = &'a Update>,
    ) -> Result<(), Failure> {
        if to <= from {
            return Err(Failure::new(Oracle::Contiguity, format!("member {place} dropped from {from} to {to}")));
        }
        if place > 0 && to.sequence > self.members[place - 1].last.sequence {
            let ahead = self.members[place - 1].last;
            return Err(Failure::new(
                Oracle::Prefix,
                format!("member {place} holds up to {to}, its predecessor only up to {ahead}"),
            ));
        }
        let fresh = (to.sequence.0 - from.sequence.0) as usize;
        let skip = history.len().saturating_sub(fresh);
        let mut newest = None;
        for update in history.skip(skip) {
            self.entry(place, update)?;
            newest = Some(update.version);
        }
        if newest.is_some_and(|newest| newest != to) {
            return Err(Failure::new(
                Oracle::Contiguity,
                format!("the history of member {place} ends at {newest:?}, but it reports {to}"),
            ));
        }
        Ok(())
    }

    /// Checks that every update missing at the successor can still be sent to it.
    fn keeps_what_is_lacked(&self, place: usize, status: &Status, kept: u64) -> Result<(), Failure> {
        let Some(successor) = self.members.get(place + 1) else { return Ok(()) };
        let missing = status.last.sequence.0.saturating_sub(successor.last.sequence.0);
        if kept >= missing {
            return Ok(());
        }
        let what = format!("member {place} keeps {kept} updates, but its successor is missing {missing}");
        Err(Failure::new(Oracle::Sent, what))
    }

    fn entry(&mut self, place: usize, update: &Update) -> Result<(), Failure> {
        let sequence = update.version.sequence.0;
        match self.log.get((sequence.max(1) - 1) as usize) {
            Some(known) if known == update => Ok(()),
            Some(known) => Err(Failure::new(
                Oracle::Prefix,
                format!("member {place} has {update:?} where the head ordered {known:?}"),
            )),
            None if place == 0 => self.extend(update),
            None => Err(Failure::new(Oracle::Prefix, format!("member {place} has {update:?}, never ordered"))),
        }
    }

    fn extend(&mut self, update: &Update) -> Result<(), Failure> {
        let expected = self.log.len() as u64 + 1;
        let last = self.log.last();
        if update.version.sequence.0 != expected {
            let what = format!("the head ordered {} where sequence {expected} was next", update.version);
            return Err(Failure::new(Oracle::Contiguity, what));
        }
        if last.is_some_and(|last| last.version.epoch > update.version.epoch || last.chain_time > update.chain_time) {
            let what = format!("epoch or chain time of {update:?} is below that of {last:?}");
            return Err(Failure::new(Oracle::Contiguity, what));
        }
        self.check_chain_time(update)?;
        for change in &update.changes {
            self.by_key.entry(change.key.clone()).or_default().push(self.log.len());
        }
        let once = self.requests.take_in(update);
        self.twice = self.twice.take().or(once.err());
        self.log.push(update.clone());
        Ok(())
    }

    fn committed(&mut self, place: usize, status: &Status) -> Result<(), Failure> {
        let watermark = status.watermark;
        let fail = |what: String| Err(Failure::new(Oracle::Watermark, format!("member {place}: {what}")));
        if watermark < self.members[place].watermark {
            return fail(format!("watermark {watermark} decreased from {}", self.members[place].watermark));
        }
        if watermark > status.last.sequence {
            return fail(format!("watermark {watermark} is above its own newest version {}", status.last));
        }
        let tail = self.members.len() - 1;
        if place != tail && watermark > self.members[tail].watermark {
            return fail(format!("watermark {watermark} is above the tail's {}", self.members[tail].watermark));
        }
        Ok(())
    }

    /// Removes and returns the first request that was applied twice.
    pub fn take_twice(&mut self) -> Option<Failure> {
        self.twice.take()
    }

    /// Number of sessions that are open at the end of the log.
    pub fn sessions(&self) -> usize {
        self.requests.open()
    }

    /// The highest committed sequence.
    pub fn committed_up_to(&self) -> Sequence {
        if self.moving.is_some() {
            return Sequence(self.log.len() as u64);
        }
        self.members.last().map_or(Sequence::ZERO, |tail| tail.watermark)
    }

    /// The newest version of the member in `place`.
    pub fn last(&self, place: usize) -> Version {
        self.members[place].last
    }

    /// Every update that the head ever ordered; for a chain with changing members, every committed update.
    pub fn log(&self) -> &[Update] {
        &self.log
    }

    /// The update that made `version`.
    pub fn update(&self, version: Version) -> Option<&Update> {
        if self.moving.is_some() {
            return self.ever(version);
        }
        let index = version.sequence.0.checked_sub(1)?;
        self.log.get(index as usize).filter(|update| update.version == version)
    }

    /// The content of a store that has applied all updates up to `last`, without tombstones.
    pub fn content(&self, last: Sequence) -> Content {
        let mut content = Content::new();
        for update in self.log.iter().take_while(|update| update.version.sequence <= last) {
            for change in &update.changes {
                let expires = change.expires;
                match &change.value {
                    Some(value) => {
                        content.insert(change.key.clone(), (update.version, value.clone(), expires));
                    }
                    None if change.renews => {
                        content
                            .entry(change.key.clone())
                            .and_modify(|held| (held.0, held.2) = (update.version, expires));
                    }
                    None => drop(content.remove(&change.key)),
                }
            }
        }
        content
    }
}

/// The content of a store: each key with its version, value and expiry.
pub type Content = BTreeMap<Bytes, (Version, Bytes, Option<Expiry>)>;

struct HaltText<'a>(&'a Halt);

impl fmt::Display for HaltText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.0, self.0)
    }
}

/// Compares the whole content of a member with the expected one. Returns [`Oracle::Convergence`] for the first
/// difference.
pub fn check_content(member: &str, expected: &Content, found: impl Iterator<Item = ScanRecord>) -> Result<(), Failure> {
    let fail = |what: String| Err(Failure::new(Oracle::Convergence, format!("{member}: {what}")));
    let mut expected = expected.iter();
    for record in found {
        let Some(value) = record.held.value else { continue };
        match expected.next() {
            Some((key, (version, wanted, expires)))
                if *key == record.key
                    && (*version, *expires) == (record.held.version, record.held.expires)
                    && *wanted == value => {}
            Some((key, (version, ..))) => {
                return fail(format!("found {:?} {}, expected {key:?} {version}", record.key, record.held.version));
            }
            None => return fail(format!("found {:?} {}, expected nothing more", record.key, record.held.version)),
        }
    }
    match expected.next() {
        Some((key, (version, ..))) => fail(format!("{key:?} {version} is missing")),
        None => Ok(()),
    }
}
