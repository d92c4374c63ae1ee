//! Clients: their requests, the nodes to which they send these, and the interpretation of the replies.

mod ask;
mod choice;
mod contender;
mod keys;
mod mix;
mod session;
mod timed;
mod told;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use artillery_proto::{
    MemberId, Sequence, Timestamp, Version,
    api::{
        ReadMode, Refusal, Reply, Write,
        retry::{Ending, NextAttempt, Repeat, RetryState},
    },
};

pub use ask::{Ask, Asked, Part, PartCall, Request, request};
pub use choice::Choice;
pub use contender::{Act, Process, ProcessClock};
pub use keys::{KeyKind, Keys, key_bytes, key_of, place};
pub use mix::Mix;
pub use session::{Session, Standing};
pub use timed::{TimedCall, TimedKey, TimedName};
pub use told::{Told, ended, told};

use crate::{
    history::{Answer, SeriesAnswer},
    oracle::Failure,
    rng::{Concern, Rng},
};

/// The operation that a client has in progress.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Its number, unique within this client.
    pub number: u64,
    /// The operation, its request, and the ids that it carries.
    pub asked: Arc<Asked>,
    /// Time of the first attempt on the history's clock.
    pub called: u64,
    /// Virtual time of the first attempt.
    pub since: u64,
    /// When the client abandons the operation.
    pub until: u64,
    /// Number of attempts made.
    pub attempts: u32,
    /// Number of attempts that followed an unanswered one.
    pub retries: u32,
    /// The combined outcome of the attempts made.
    pub tries: RetryState,
    /// The node that got the first attempt.
    pub first: usize,
    /// The node that got the last attempt.
    pub node: usize,
    /// Whether an unanswered attempt is retried at the same node.
    pub pinned: bool,
    /// Whether the client still waits for the reply to the last attempt.
    pub waits: bool,
    /// Whether the next attempt asks for the outcome (`Write::Resolve`) instead of repeating the write.
    pub settles: bool,
}

/// The next step of a client after a reply or a timeout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// The operation is complete, with this answer.
    Done(Box<Told>, Box<Reply>),
    /// The operation has ended without an answer.
    Over(Ending),
    /// Send the next attempt to this node, after this many nanoseconds.
    Again(usize, u64),
}

/// A scan in progress.
#[derive(Clone, Debug)]
pub struct Scanning {
    /// The index of the scanned chain.
    pub chain: usize,
    /// The last key of the previous page.
    pub after: Option<u32>,
    /// Maximum number of entries per page.
    pub limit: u32,
    /// The mode of its reads.
    pub mode: ReadMode,
    /// The snapshot that a node holds for this scan.
    pub snapshot: Option<u64>,
    /// The node that got the first request.
    pub node: usize,
    /// When the first page was requested and received. All pages of a snapshot show one moment in between.
    pub first: (u64, u64),
    /// The keys that the pages of the snapshot have shown.
    pub seen: Vec<(u32, Option<Version>)>,
}

/// A walk in progress through all keys of a chain in hash order.
#[derive(Clone, Debug)]
pub struct Walking {
    /// The index of the walked chain.
    pub chain: usize,
    /// The hash position at which the next page begins.
    pub from: u64,
    /// Maximum number of keys per page.
    pub limit: u32,
    /// The mode of its reads.
    pub mode: ReadMode,
    /// The committed sequence when the walk began.
    pub since: Sequence,
    /// The keys that the pages have shown.
    pub met: BTreeSet<u32>,
}

/// A client, with at most one operation in progress.
#[derive(Debug)]
pub struct Client {
    /// Its stream of random numbers.
    pub rng: Rng,
    /// The operation in progress.
    pub pending: Option<Pending>,
    /// The next operation, if it is already decided.
    pub next: Option<Choice>,
    /// The scan to continue next.
    pub scan: Option<Scanning>,
    /// The walk to continue next.
    pub walk: Option<Walking>,
    /// Reads to make before any other operation: node, key and mode.
    pub script: VecDeque<(usize, u32, ReadMode)>,
    /// Number of operations begun.
    pub begun: u64,
    /// Its own key with a time to live.
    pub timed: TimedKey,
    /// Whether new operations carry a request id.
    pub numbers: bool,
    writer: bool,
    known: Vec<Version>,
    heads: Vec<usize>,
}

/// Bounds on the number of attempts after which a refused operation is abandoned.
const ATTEMPTS: (u64, u64) = (4, 16);

impl Client {
    /// The client with this index. Initially it considers a random node to be the head of each chain.
    pub fn new(seed: u64, index: usize, keys: &Keys, nodes: usize, writers: usize) -> Self {
        let mut rng = Rng::new(seed, Concern::Client(index));
        let heads = (0..keys.chains).map(|_| rng.index(nodes)).collect();
        Self {
            rng,
            pending: None,
            next: None,
            scan: None,
            walk: None,
            script: VecDeque::new(),
            begun: 0,
            timed: TimedKey::default(),
            numbers: false,
            writer: writers == 0 || index < writers,
            known: vec![Version::NONE; keys.len()],
            heads,
        }
    }

    /// The node that this client believes to be the head of a chain.
    pub fn head(&self, chain: usize) -> usize {
        self.heads[chain]
    }

    /// Handles the reply to the last attempt of the pending operation. `ids` are the nodes by index. `None`: no
    /// operation is pending.
    pub fn reply(&mut self, reply: Reply, keys: &Keys, ids: &[MemberId]) -> Result<Option<Next>, Failure> {
        let Some(pending) = &mut self.pending else { return Ok(None) };
        pending.waits = false;
        Ok(Some(match pending.tries.replied(&reply) {
            NextAttempt::Done => {
                let told = told(&pending.asked, &reply, keys)?;
                self.learn(&told);
                Next::Done(Box::new(told), Box::new(reply))
            }
            NextAttempt::Over(ending) => Next::Over(ending),
            NextAttempt::Again => match reply {
                Reply::Refused(refusal) => self.refused(refusal, ids),
                _ => self.elsewhere(ids.len()),
            },
        }))
    }

    /// Handles the timeout of an attempt. If the operation has a request id, then in `settled` of a thousand cases
    /// later attempts only ask for the outcome. `None`: no operation is pending.
    pub fn unanswered(&mut self, nodes: usize, settled: u32) -> Option<Next> {
        let pending = self.pending.as_mut()?;
        pending.waits = false;
        Some(match pending.tries.unanswered() {
            NextAttempt::Over(ending) => Next::Over(ending),
            NextAttempt::Done | NextAttempt::Again => {
                pending.retries += 1;
                pending.settles |= pending.asked.id.is_some() && self.rng.chance(settled);
                self.elsewhere(nodes)
            }
        })
    }

    fn learn(&mut self, told: &Told) {
        for (key, _, answer) in &told.operations {
            let version = match *answer {
                Answer::Written(version) | Answer::Failed(version) => version,
                Answer::Found(found) | Answer::Conflict(found) => found.map_or(Version::NONE, |(version, _)| version),
                Answer::Took { .. } => Version::NONE,
                Answer::Refused | Answer::Unknown => continue,
            };
            self.known[*key as usize] = version;
        }
        for (key, _, answer) in &told.series {
            if let SeriesAnswer::Counted { version, .. } = answer {
                self.known[*key as usize] = *version;
            }
        }
    }

    fn elsewhere(&mut self, nodes: usize) -> Next {
        let (any, pause) = (self.rng.index(nodes), self.rng.between(0, 5_000_000));
        match &self.pending {
            Some(pending) if pending.pinned => Next::Again(pending.node, pause),
            _ => Next::Again(any, pause),
        }
    }

    fn refused(&mut self, refusal: Refusal, ids: &[MemberId]) -> Next {
        let pause = self.rng.between(1_000_000, 40_000_000);
        let most = self.rng.between(ATTEMPTS.0, ATTEMPTS.1);
        let any = self.rng.index(ids.len());
        let Some(pending) = &self.pending else { return Next::Over(Ending::NotApplied(None)) };
        if u64::from(pending.attempts) >= most {
            return Next::Over(pending.tries.give_up());
        }
        let at = |member: MemberId| ids.iter().position(|&id| id == member);
        match refusal {
            Refusal::NotHead(Some(member)) | Refusal::NotTail(Some(member)) => match at(member) {
                Some(node) => {
                    if matches!(refusal, Refusal::NotHead(_)) {
                        self.heads[pending.asked.chain] = node;
                    }
                    Next::Again(node, 0)
                }
                None => Next::Over(pending.tries.give_up()),
            },
            Refusal::NotHead(None) | Refusal::NotTail(None) | Refusal::NoChain => Next::Again(any, pause),
            Refusal::NoLease if !pending.asked.is_write() => Next::Again(any, pause),
            _ => Next::Again(pending.node, pause),
        }
    }

    /// Ends an operation that its client abandons. `None`: no operation is pending.
    pub fn give_up(&mut self) -> Option<Next> {
        let pending = self.pending.as_mut()?;
        if pending.waits {
            pending.waits = false;
            if let NextAttempt::Over(ending) = pending.tries.unanswered() {
                return Some(Next::Over(ending));
            }
        }
        Some(Next::Over(pending.tries.give_up()))
    }
}

impl Pending {
    /// The request to send with the next attempt.
    pub fn request(&self) -> Request {
        if self.settles { Request::Write(Write::Resolve) } else { self.asked.request.clone() }
    }

    /// Whether an unanswered attempt may be retried.
    pub fn is_repeated(&self) -> bool {
        self.asked.repeat() != Repeat::Twice
    }
}

/// The deadline for a request that arrives at `now`, where `local` is the clock of its node and `until` the client's
/// limit.
pub fn deadline(local: Timestamp, now: u64, until: u64) -> Timestamp {
    local + std::time::Duration::from_nanos(until.saturating_sub(now))
}

#[cfg(test)]
mod tests;
