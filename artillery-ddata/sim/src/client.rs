//! Clients: what they ask, where they turn to, and what they make of the answers.

use std::collections::VecDeque;

use artillery_ddata::{
    MemberId, Timestamp, Version,
    replica::{ReadMode, Refusal, Reply, Write},
    store::Held,
};
use bytes::{BufMut, Bytes, BytesMut};

use crate::{
    history::{Answer, Call, Value},
    oracle::{Failure, Oracle},
    rng::{Concern, Rng},
};

/// How often clients ask for what, in parts of a thousand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// Writes among all operations.
    pub writes: u32,
    /// Deletes among writes.
    pub deletes: u32,
    /// Compare-and-swaps among writes.
    pub swaps: u32,
    /// Reads that may show uncommitted versions, among reads.
    pub eventual: u32,
    /// Reads behind a barrier, among reads.
    pub through_chain: u32,
    /// So many clients write and do little else, the others read; 0: all do both.
    pub writers: usize,
}

impl Mix {
    /// A workload for a seed.
    pub fn draw(rng: &mut Rng) -> Self {
        Self {
            writes: rng.between(150, 700) as u32,
            deletes: rng.between(50, 250) as u32,
            swaps: rng.between(50, 400) as u32,
            eventual: rng.between(50, 250) as u32,
            through_chain: rng.between(30, 200) as u32,
            writers: 0,
        }
    }
}

/// What an operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// A write, by its call in the history.
    Write(Call),
    /// A read.
    Read(ReadMode),
}

/// What a node is asked to do.
#[derive(Clone, Debug)]
pub enum Request {
    /// A write.
    Write(Write),
    /// A read.
    Read(Bytes, ReadMode),
}

/// The operation that a client is at.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Its number at this client.
    pub number: u64,
    /// What.
    pub ask: Ask,
    /// On which key.
    pub key: u32,
    /// What is sent.
    pub request: Request,
    /// When the client asked first, on the history's clock.
    pub called: u64,
    /// When it asked first, in virtual time.
    pub since: u64,
    /// When it gives up.
    pub until: u64,
    /// Attempts made so far.
    pub attempts: u32,
    /// The node asked last.
    pub node: usize,
    /// Whether the last attempt is unanswered, so that it may have been, or still be, taken in.
    pub unanswered: bool,
}

/// What a client does about an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// The operation is over with this answer, which belongs into the history.
    Done(Answer),
    /// A read that may show uncommitted versions is over.
    Seen {
        /// What was found.
        held: Option<Held>,
        /// Whether that was called committed.
        clean: bool,
    },
    /// The read is over without an answer: it tells nothing.
    Dropped,
    /// Ask this node again, after this many nanoseconds.
    Again(usize, u64),
}

/// A client.
#[derive(Debug)]
pub struct Client {
    /// Its randomness.
    pub rng: Rng,
    /// What it is at.
    pub pending: Option<Pending>,
    /// Reads that it is to make next, whatever else it had in mind: node, key and mode.
    pub script: VecDeque<(usize, u32, ReadMode)>,
    /// Operations begun.
    pub begun: u64,
    writer: bool,
    known: Vec<Version>,
    heads: Vec<usize>,
}

/// Fewest and most attempts that are answered with a refusal before a client gives up.
const ATTEMPTS: (u64, u64) = (4, 16);

impl Client {
    /// The client with this index, which knows `keys` keys on `chains` chains and `nodes` nodes.
    pub fn new(seed: u64, index: usize, keys: u32, chains: usize, nodes: usize, writers: usize) -> Self {
        let mut rng = Rng::new(seed, Concern::Client(index));
        let heads = (0..chains).map(|_| rng.index(nodes)).collect();
        Self {
            rng,
            pending: None,
            script: VecDeque::new(),
            begun: 0,
            writer: writers == 0 || index < writers,
            known: vec![Version::NONE; keys as usize],
            heads,
        }
    }

    /// Chooses what to do next: the operation, its key, and the node to ask. `value` is for a write, if it becomes one.
    pub fn choose(&mut self, mix: &Mix, nodes: usize, value: Value) -> (Ask, u32, usize) {
        let key = self.rng.index(self.known.len()) as u32;
        let read_at = self.rng.index(nodes);
        let (write, kind, way) =
            (self.rng.chance(mix.writes), self.rng.below(1000) as u32, self.rng.below(1000) as u32);
        let write = self.writer && (write || mix.writers > 0 && !self.rng.chance(150));
        if !write {
            let mode = match way {
                way if way < mix.eventual => ReadMode::Eventual,
                way if way < mix.eventual + mix.through_chain => ReadMode::ThroughChain,
                _ => ReadMode::Strong,
            };
            return (Ask::Read(mode), key, read_at);
        }
        let call = match kind {
            kind if kind < mix.deletes => Call::Delete,
            kind if kind < mix.deletes + mix.swaps => {
                Call::CompareAndSwap { expected: self.known[key as usize], value }
            }
            _ => Call::Put(value),
        };
        (Ask::Write(call), key, self.head(key))
    }

    fn chain(&self, key: u32) -> usize {
        key as usize % self.heads.len()
    }

    fn head(&self, key: u32) -> usize {
        self.heads[self.chain(key)]
    }

    /// Takes in the reply to the last attempt of the pending operation; `ids` are the nodes by index.
    ///
    /// # Errors
    /// [`Oracle::Answers`] if such a reply makes no sense, [`Oracle::Claims`] if a value is none that anybody wrote.
    pub fn reply(&mut self, reply: Reply, ids: &[MemberId]) -> Result<Next, Failure> {
        let Some(pending) = &mut self.pending else { return Ok(Next::Dropped) };
        pending.unanswered = false;
        let (ask, key) = (pending.ask, pending.key);
        match (ask, reply) {
            (Ask::Write(call), Reply::Committed(committed)) => {
                self.known[key as usize] = if call == Call::Delete { Version::NONE } else { committed.version };
                Ok(Next::Done(Answer::Written(committed.version)))
            }
            (Ask::Write(Call::CompareAndSwap { .. }), Reply::Conflict { version, value, .. }) => {
                let current = self.found(key, value.map(|value| Held { version, value: Some(value) }))?;
                Ok(Next::Done(Answer::Conflict(current)))
            }
            (Ask::Write(_), Reply::Expired) => Ok(Next::Done(Answer::Unknown)),
            (Ask::Read(ReadMode::Eventual), Reply::Read(read)) => Ok(Next::Seen { held: read.held, clean: read.clean }),
            (Ask::Read(_), Reply::Read(read)) => {
                let found = self.found(key, read.held)?;
                Ok(Next::Done(Answer::Found(found)))
            }
            (Ask::Read(_), Reply::Expired) => Ok(Next::Dropped),
            (_, Reply::Refused(refusal)) => Ok(self.refused(refusal, ids)),
            (ask, reply) => Err(Failure::new(Oracle::Answers, format!("{ask:?} was answered with {reply:?}"))),
        }
    }

    fn found(&mut self, key: u32, held: Option<Held>) -> Result<Option<(Version, Value)>, Failure> {
        let Some(Held { version, value: Some(value) }) = held else {
            self.known[key as usize] = Version::NONE;
            return Ok(None);
        };
        self.known[key as usize] = version;
        let value = decode(key, &value)
            .ok_or_else(|| Failure::new(Oracle::Claims, format!("{value:?} was never written to key {key}")))?;
        Ok(Some((version, value)))
    }

    fn refused(&mut self, refusal: Refusal, ids: &[MemberId]) -> Next {
        let chain = self.pending.as_ref().map_or(0, |pending| self.chain(pending.key));
        let Some(pending) = &mut self.pending else { return Next::Dropped };
        let pause = self.rng.between(1_000_000, 40_000_000);
        let most = self.rng.between(ATTEMPTS.0, ATTEMPTS.1);
        if u64::from(pending.attempts) >= most {
            return self.give_up();
        }
        let at = |member: MemberId| ids.iter().position(|&id| id == member);
        match refusal {
            Refusal::NotHead(Some(member)) | Refusal::NotTail(Some(member)) => match at(member) {
                Some(node) => {
                    if matches!(refusal, Refusal::NotHead(_)) {
                        self.heads[chain] = node;
                    }
                    Next::Again(node, 0)
                }
                None => self.give_up(),
            },
            Refusal::NotHead(None) | Refusal::NotTail(None) | Refusal::NoChain => {
                Next::Again(self.rng.index(ids.len()), pause)
            }
            Refusal::NoLease if matches!(pending.ask, Ask::Read(_)) => Next::Again(self.rng.index(ids.len()), pause),
            Refusal::Busy | Refusal::NoLease | Refusal::TooFewMembers { .. } => Next::Again(pending.node, pause),
            _ => self.give_up(),
        }
    }

    /// What an operation comes to when its client stops waiting.
    pub fn give_up(&self) -> Next {
        match &self.pending {
            Some(Pending { ask: Ask::Write(_), unanswered: true, .. }) => Next::Done(Answer::Unknown),
            Some(Pending { ask: Ask::Write(_), .. }) => Next::Done(Answer::Refused),
            _ => Next::Dropped,
        }
    }
}

/// The bytes of a key.
pub fn key_bytes(key: u32) -> Bytes {
    Bytes::from(format!("key-{key:02}"))
}

/// The request that asks for `ask` on `key`; a value gets `padding` bytes more than it needs.
pub fn request(ask: Ask, key: u32, padding: usize) -> Request {
    let bytes = key_bytes(key);
    match ask {
        Ask::Write(Call::Put(value)) => Request::Write(Write::Put { key: bytes, value: encode(key, value, padding) }),
        Ask::Write(Call::Delete | Call::Read) => Request::Write(Write::Delete { key: bytes }),
        Ask::Write(Call::CompareAndSwap { expected, value }) => {
            Request::Write(Write::CompareAndSwap { key: bytes, expected, value: Some(encode(key, value, padding)) })
        }
        Ask::Read(mode) => Request::Read(bytes, mode),
    }
}

/// A value says which it is and to which key it belongs; its padding too can be told from any other.
pub fn encode(key: u32, value: Value, padding: usize) -> Bytes {
    let mut bytes = BytesMut::with_capacity(12 + padding);
    bytes.put_u64_le(value.0);
    bytes.put_u32_le(key);
    bytes.put_bytes(fill(value), padding);
    bytes.freeze()
}

/// The value that `bytes` of `key` stand for, if they are whole and belong to it.
pub fn decode(key: u32, bytes: &[u8]) -> Option<Value> {
    let (value, rest) = bytes.split_first_chunk::<8>()?;
    let (owner, padding) = rest.split_first_chunk::<4>()?;
    let value = Value(u64::from_le_bytes(*value));
    (u32::from_le_bytes(*owner) == key && padding.iter().all(|&byte| byte == fill(value))).then_some(value)
}

fn fill(value: Value) -> u8 {
    (value.0 % 251) as u8
}

/// How long a node may take over a request whose client waits until `until`, from `now` on, on the node's own clock.
pub fn deadline(local: Timestamp, now: u64, until: u64) -> Timestamp {
    local + std::time::Duration::from_nanos(until.saturating_sub(now))
}

#[cfg(test)]
mod tests {
    use artillery_ddata::{Incarnation, NodeId};

    use super::*;

    fn ids() -> Vec<MemberId> {
        (0..3)
            .map(|n| MemberId { node: NodeId::from_bytes([n; 16]), incarnation: Incarnation { store: 1, starts: 1 } })
            .collect()
    }

    fn client(ask: Ask) -> Client {
        let mut client = Client::new(1, 0, 2, 1, 3, 0);
        let request = request(ask, 1, 0);
        client.pending = Some(Pending {
            number: 1,
            ask,
            key: 1,
            request,
            called: 1,
            since: 1,
            until: 100,
            attempts: 1,
            node: 2,
            unanswered: true,
        });
        client
    }

    #[test]
    fn a_value_belongs_to_its_key_and_is_whole() {
        let bytes = encode(3, Value(77), 5);
        assert_eq!(decode(3, &bytes), Some(Value(77)));
        assert_eq!(decode(4, &bytes), None);
        let mut torn = bytes.to_vec();
        *torn.last_mut().unwrap() ^= 1;
        assert_eq!(decode(3, &torn), None);
        assert_eq!(decode(3, &bytes[..10]), None);
    }

    #[test]
    fn an_unanswered_write_is_unknown_a_refused_one_is_not() {
        let write = Ask::Write(Call::Put(Value(1)));
        assert_eq!(client(write).give_up(), Next::Done(Answer::Unknown));
        assert_eq!(client(write).reply(Reply::Expired, &ids()), Ok(Next::Done(Answer::Unknown)));
        let mut refused = client(write);
        assert_eq!(refused.reply(Reply::Refused(Refusal::NotHead(Some(ids()[1]))), &ids()), Ok(Next::Again(1, 0)));
        assert_eq!(refused.give_up(), Next::Done(Answer::Refused));
        assert_eq!(client(Ask::Read(ReadMode::Strong)).give_up(), Next::Dropped);
    }

    #[test]
    fn nonsense_is_noticed() {
        let held = Held { version: Version::new(1, 1), value: Some(encode(0, Value(1), 0)) };
        let read = artillery_ddata::replica::Read {
            held: Some(held),
            clean: true,
            way: artillery_ddata::replica::Way::Local,
            as_of: artillery_ddata::Sequence(1),
        };
        let failure = client(Ask::Read(ReadMode::Strong)).reply(Reply::Read(read.clone()), &ids()).unwrap_err();
        assert_eq!(failure.oracle, Oracle::Claims, "a value of another key");
        let failure = client(Ask::Write(Call::Delete)).reply(Reply::Read(read), &ids()).unwrap_err();
        assert_eq!(failure.oracle, Oracle::Answers, "a read answers no write");
    }
}
