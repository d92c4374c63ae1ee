//! Clients: their requests, the nodes that they ask, and how they interpret the answers.

mod ask;
mod choice;
mod keys;
mod mix;
mod session;
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
pub use keys::{KeyKind, Keys, key_bytes, key_of, place};
pub use mix::Mix;
pub use session::{Session, Standing};
pub use told::{Told, ended, told};

use crate::{
    history::{Answer, SeriesAnswer},
    oracle::Failure,
    rng::{Concern, Rng},
};

/// The operation that a client has under way.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Its number at this client.
    pub number: u64,
    /// The operation itself.
    pub asked: Arc<Asked>,
    /// When the client asked first, on the history's clock.
    pub called: u64,
    /// When it asked first, in virtual time.
    pub since: u64,
    /// When the client gives up.
    pub until: u64,
    /// Attempts made so far.
    pub attempts: u32,
    /// How often an unanswered attempt was followed by another one.
    pub retries: u32,
    /// The outcome of the attempts so far.
    pub tries: RetryState,
    /// The node asked first.
    pub first: usize,
    /// The node asked last.
    pub node: usize,
    /// Whether only this node may be asked.
    pub pinned: bool,
    /// Whether the last attempt is under way.
    pub waits: bool,
    /// Whether the next attempt asks for the outcome (`Write::Resolve`) instead of repeating the write.
    pub settles: bool,
}

/// What a client does after an answer, or when none comes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// The operation is over, and this is its answer.
    Done(Box<Told>, Box<Reply>),
    /// The operation is over without an outcome.
    Over(Ending),
    /// Ask this node, after this many nanoseconds.
    Again(usize, u64),
}

/// A scan that a client has begun.
#[derive(Clone, Debug)]
pub struct Scanning {
    /// The chain.
    pub chain: usize,
    /// The key behind which the next page begins.
    pub after: Option<u32>,
    /// Entries of a page.
    pub limit: u32,
    /// The mode of its reads.
    pub mode: ReadMode,
    /// The snapshot that a node keeps for this scan.
    pub snapshot: Option<u64>,
    /// The node that was asked first.
    pub node: usize,
    /// When the first page was asked for, and when it came. All pages of a snapshot show one moment between the two.
    pub first: (u64, u64),
    /// The keys that the pages of the snapshot have shown.
    pub seen: Vec<(u32, Option<Version>)>,
}

/// A walk through all keys of a chain in hash order that a client has begun.
#[derive(Clone, Debug)]
pub struct Walking {
    /// The chain.
    pub chain: usize,
    /// The position at which the next page begins.
    pub from: u64,
    /// Keys of a page.
    pub limit: u32,
    /// The mode of its reads.
    pub mode: ReadMode,
    /// The committed sequence when the walk began.
    pub since: Sequence,
    /// The keys that it has met.
    pub met: BTreeSet<u32>,
}

/// A client.
#[derive(Debug)]
pub struct Client {
    /// Its stream of random numbers.
    pub rng: Rng,
    /// The operation under way.
    pub pending: Option<Pending>,
    /// The operation to do next, before any other choice.
    pub next: Option<Choice>,
    /// The scan to continue next.
    pub scan: Option<Scanning>,
    /// The walk to continue next.
    pub walk: Option<Walking>,
    /// Reads to make next, before any other choice: node, key and mode.
    pub script: VecDeque<(usize, u32, ReadMode)>,
    /// Operations begun.
    pub begun: u64,
    /// Whether new operations carry a request id.
    pub numbers: bool,
    writer: bool,
    known: Vec<Version>,
    heads: Vec<usize>,
}

/// Fewest and most refusals after which a client gives up.
const ATTEMPTS: (u64, u64) = (4, 16);

impl Client {
    /// The client with this index, which knows `keys` and the number of nodes.
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
            numbers: false,
            writer: writers == 0 || index < writers,
            known: vec![Version::NONE; keys.len()],
            heads,
        }
    }

    /// The node that this client takes for the head of a chain.
    pub fn head(&self, chain: usize) -> usize {
        self.heads[chain]
    }

    /// Handles the reply to the last attempt of the pending operation. `ids` are the nodes by index.
    ///
    /// # Errors
    /// See [`told`].
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

    /// The last attempt got no answer in time.
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

    /// Remembers the last known versions of keys.
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

    /// Another attempt, perhaps at another node.
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

    /// The end of an operation when its client stops waiting.
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
    /// The request of the next attempt.
    pub fn request(&self) -> Request {
        if self.settles { Request::Write(Write::Resolve) } else { self.asked.request.clone() }
    }

    /// Whether an unanswered attempt is followed by another one.
    pub fn is_repeated(&self) -> bool {
        self.asked.repeat() != Repeat::Twice
    }
}

/// The deadline, on the clock of the node, of a request that arrives `now` and whose client waits until `until`.
pub fn deadline(local: Timestamp, now: u64, until: u64) -> Timestamp {
    local + std::time::Duration::from_nanos(until.saturating_sub(now))
}

#[cfg(test)]
mod tests;
