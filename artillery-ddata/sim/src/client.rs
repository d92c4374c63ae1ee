//! Clients: what they ask, where they turn to, and what they make of the answers.

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
        retry::{Ending, Repeat, Tries, Verdict},
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

/// The operation that a client is at.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Its number at this client.
    pub number: u64,
    /// What.
    pub asked: Arc<Asked>,
    /// When the client asked first, on the history's clock.
    pub called: u64,
    /// When it asked first, in virtual time.
    pub since: u64,
    /// When it gives up.
    pub until: u64,
    /// Attempts made so far.
    pub attempts: u32,
    /// How often one was not answered and followed by another.
    pub retries: u32,
    /// What came of them.
    pub tries: Tries,
    /// The node asked first.
    pub first: usize,
    /// The node asked last.
    pub node: usize,
    /// Whether no other node will do.
    pub pinned: bool,
    /// Whether the last attempt is under way.
    pub waits: bool,
    /// Whether it is to be settled now, rather than done.
    pub settles: bool,
}

/// What a client does about an answer, or about none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// The operation is over, and this is its answer.
    Done(Box<Told>, Box<Reply>),
    /// The operation is over without an outcome.
    Over(Ending),
    /// Ask this node, after this many nanoseconds.
    Again(usize, u64),
}

/// A scan that a client is at.
#[derive(Clone, Debug)]
pub struct Scanning {
    /// Of which chain.
    pub chain: usize,
    /// Behind which key it goes on.
    pub after: Option<u32>,
    /// Entries of a page.
    pub limit: u32,
    /// How it reads.
    pub mode: ReadMode,
    /// The snapshot, and who keeps it.
    pub snapshot: Option<u64>,
    /// The node that was asked first.
    pub node: usize,
    /// When the first page was asked for, and when it came: all pages of a snapshot are of a moment between.
    pub first: (u64, u64),
    /// What the pages of the snapshot showed.
    pub seen: Vec<(u32, Option<Version>)>,
}

/// A walk through all keys of a chain in hash order that a client is at.
#[derive(Clone, Debug)]
pub struct Walking {
    /// Of which chain.
    pub chain: usize,
    /// The position at which it goes on.
    pub from: u64,
    /// Keys of a page.
    pub limit: u32,
    /// How it reads.
    pub mode: ReadMode,
    /// What had been committed when it began.
    pub since: Sequence,
    /// What it has met.
    pub met: BTreeSet<u32>,
}

/// A client.
#[derive(Debug)]
pub struct Client {
    /// Its randomness.
    pub rng: Rng,
    /// What it is at.
    pub pending: Option<Pending>,
    /// What it does next, whatever else it had in mind.
    pub next: Option<Choice>,
    /// The scan that it goes on with next.
    pub scan: Option<Scanning>,
    /// The walk that it goes on with next.
    pub walk: Option<Walking>,
    /// Reads that it is to make next, whatever else it had in mind: node, key and mode.
    pub script: VecDeque<(usize, u32, ReadMode)>,
    /// Operations begun.
    pub begun: u64,
    /// Whether what it begins carries a request id.
    pub numbers: bool,
    writer: bool,
    known: Vec<Version>,
    heads: Vec<usize>,
}

/// Fewest and most attempts that are answered with a refusal before a client gives up.
const ATTEMPTS: (u64, u64) = (4, 16);

impl Client {
    /// The client with this index, which knows these keys and so many nodes.
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

    /// The node that is believed to be the head of a chain.
    pub fn head(&self, chain: usize) -> usize {
        self.heads[chain]
    }

    /// Takes in the reply to the last attempt of the pending operation; `ids` are the nodes by index.
    ///
    /// # Errors
    /// See [`told`].
    pub fn reply(&mut self, reply: Reply, keys: &Keys, ids: &[MemberId]) -> Result<Option<Next>, Failure> {
        let Some(pending) = &mut self.pending else { return Ok(None) };
        pending.waits = false;
        Ok(Some(match pending.tries.replied(&reply) {
            Verdict::Done => {
                let told = told(&pending.asked, &reply, keys)?;
                self.learn(&told);
                Next::Done(Box::new(told), Box::new(reply))
            }
            Verdict::Over(ending) => Next::Over(ending),
            Verdict::Again => match reply {
                Reply::Refused(refusal) => self.refused(refusal, ids),
                _ => self.elsewhere(ids.len()),
            },
        }))
    }

    /// Nobody answered the last attempt for too long.
    pub fn unanswered(&mut self, nodes: usize, settled: u32) -> Option<Next> {
        let pending = self.pending.as_mut()?;
        pending.waits = false;
        Some(match pending.tries.unanswered() {
            Verdict::Over(ending) => Next::Over(ending),
            Verdict::Done | Verdict::Again => {
                pending.retries += 1;
                pending.settles |= pending.asked.id.is_some() && self.rng.chance(settled);
                self.elsewhere(nodes)
            }
        })
    }

    /// What the versions of keys were last.
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

    /// What an operation comes to when its client stops waiting.
    pub fn give_up(&mut self) -> Option<Next> {
        let pending = self.pending.as_mut()?;
        if pending.waits {
            pending.waits = false;
            if let Verdict::Over(ending) = pending.tries.unanswered() {
                return Some(Next::Over(ending));
            }
        }
        Some(Next::Over(pending.tries.give_up()))
    }
}

impl Pending {
    /// What is sent with the next attempt.
    pub fn request(&self) -> Request {
        if self.settles { Request::Write(Write::Resolve) } else { self.asked.request.clone() }
    }

    /// Whether an attempt that isn't answered is followed by another.
    pub fn is_repeated(&self) -> bool {
        self.asked.repeat() != Repeat::Twice
    }
}

/// How long a node may take over a request whose client waits until `until`, from `now` on, on the node's own clock.
pub fn deadline(local: Timestamp, now: u64, until: u64) -> Timestamp {
    local + std::time::Duration::from_nanos(until.saturating_sub(now))
}

#[cfg(test)]
mod tests;
