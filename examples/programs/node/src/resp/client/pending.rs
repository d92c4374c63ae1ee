//! Combines the commands of a pipeline: consecutive reads become one read of a single snapshot, consecutive writes one
//! update. Reads and writes are never pending at the same time, so that they take effect in their order.

use artillery_ddata::{Error, kv::MAX_KEY};
use bytes::Bytes;

use super::{Client, Reply};
use crate::resp::{
    PortShared,
    connection::FREE,
    expiry::Expires,
    failure::is_about_content,
    frame::SHORT,
    plain::Plain,
    read::Read,
    script,
    together::Together,
    write::{MOST_BYTES, MOST_STEPS, SetAnswer, When, Write},
};

/// Maximum number of attempts to read a value that grows while its reader waits for permits.
const READS: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Pending {
    slots: Vec<Slot>,
    reads: usize,
    writes: usize,
    /// Total bytes of the writes.
    bytes: usize,
    steps: usize,
}

#[derive(Debug)]
enum Slot {
    /// An answer that is known, but must wait for those of earlier commands.
    Said(Reply),
    Read(Read),
    Write(Write),
}

impl Pending {
    /// Keeps an answer until all earlier commands are answered; returns it if none is pending.
    pub(super) fn behind(&mut self, reply: Reply) -> Option<Reply> {
        if self.slots.is_empty() {
            return Some(reply);
        }
        self.slots.push(Slot::Said(reply));
        None
    }

    /// Whether one update can't hold this many more bytes and steps.
    fn is_full(&self, (bytes, steps): (usize, usize)) -> bool {
        self.slots.len() >= MOST_STEPS || self.bytes + bytes > MOST_BYTES || self.steps + steps > MOST_STEPS
    }

    fn push(&mut self, write: Write, (bytes, steps): (usize, usize)) {
        self.writes += 1;
        self.bytes += bytes;
        self.steps += steps;
        self.slots.push(Slot::Write(write));
    }

    /// Executes writes that fit into one update, and returns the answers.
    async fn made(mut self, shared: &PortShared) -> Vec<Reply> {
        if matches!(*self.slots, [Slot::Write(_)])
            && let Some(Slot::Write(write)) = self.slots.pop()
        {
            // A client that doesn't pipeline has a single write.
            return made(shared, vec![write]).await;
        }
        let (mut writes, mut said) = (Vec::new(), Vec::new());
        for (at, slot) in self.slots.into_iter().enumerate() {
            match slot {
                Slot::Write(write) => writes.push((at, write)),
                Slot::Said(reply) => said.push((at, reply)),
                Slot::Read(_) => {}
            }
        }
        let (places, writes): (Vec<_>, Vec<_>) = writes.into_iter().unzip();
        said.extend(places.into_iter().zip(made(shared, writes).await));
        said.sort_unstable_by_key(|(at, _)| *at);
        said.into_iter().map(|(_, reply)| reply).collect()
    }
}

async fn made(shared: &PortShared, mut writes: Vec<Write>) -> Vec<Reply> {
    let (kv, number) = (&shared.kv, writes.len());
    match number {
        0 => Vec::new(),
        _ if Together::takes(&writes) => vec![shared.together.make(writes).await; number],
        1 => match writes.pop() {
            Some(write) => vec![write.make(kv).await],
            None => Vec::new(),
        },
        _ => script::make(kv, &writes).await,
    }
}

/// Executes the single-key reads as one snapshot. Returns no answers if they must be executed separately: there are
/// fewer than two, or the combined request is refused because of its content.
async fn together(shared: &PortShared, slots: &[Slot]) -> Result<Vec<Reply>, Error> {
    let reads = slots.iter().filter_map(|slot| match slot {
        Slot::Read(read) if read.is_plain() => Some(read),
        _ => None,
    });
    let reads: Vec<_> = reads.collect();
    if reads.len() < 2 {
        return Ok(Vec::new());
    }
    let keys = reads.iter().flat_map(|read| read.keys.clone());
    match shared.kv.get_many(keys).await {
        Ok(cut) => Ok(reads.iter().zip(cut.entries).map(|(read, found)| read.answer(&[found], false)).collect()),
        Err(error) if is_about_content(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

impl Client {
    /// Answers a read at once if this node may serve it, or adds it to the pending reads.
    pub(super) async fn read(&mut self, read: Read) {
        if self.pending.writes > 0 || self.pending.is_full((0, 0)) {
            self.flush().await;
        }
        if let Some(reply) = read.here(&self.shared.kv) {
            if reply.bytes() <= FREE {
                return self.say(reply);
            }
            drop(reply);
            self.flush().await;
            if let Err(error) = self.read_alone(&read).await {
                self.say(read.told(&self.shared.kv, &error));
            }
            return;
        }
        self.pending.reads += 1;
        self.pending.slots.push(Slot::Read(read));
    }

    /// Adds a write to the pending ones, or executes it alone if its key or value is too long, or if it doesn't fit into
    /// a shared update.
    pub(super) async fn write(&mut self, write: Write) {
        let ((bytes, steps), (key, value)) = (write.size(), write.longest());
        if self.pending.reads > 0 || self.pending.is_full((bytes, steps)) {
            self.flush().await;
        }
        if key > MAX_KEY || value > self.shared.limits.value_bytes || self.pending.is_full((bytes, steps)) {
            self.flush().await;
            let reply = write.make(&self.shared.kv).await;
            return self.tell(reply, true).await;
        }
        self.pending.push(write, (bytes, steps));
    }

    /// Runs a plain command if that needs no waiting, with the same effect and answer as `execute`: a read that this
    /// node may serve at once, or a write that fits among the pending ones. Returns whether it ran; otherwise nothing
    /// has changed.
    pub(in crate::resp) fn try_plain(&mut self, plain: Plain<'_>) -> bool {
        if !self.trusted || self.transaction.is_some() || self.pending.is_full((0, 0)) || self.output.is_much() {
            return false;
        }
        match plain {
            Plain::Get { key } => self.try_get(key),
            Plain::Set { key, value } => self.try_set(key, value),
        }
    }

    fn try_get(&mut self, key: &[u8]) -> bool {
        // A read must see earlier writes, which are still pending.
        if self.pending.writes > 0 {
            return false;
        }
        let Ok(found) = self.shared.kv.get_local(key) else { return false };
        let reply = Reply::found(found.map(|found| found.value));
        let is_small = reply.bytes() <= FREE;
        if is_small {
            self.say(reply);
        }
        is_small
    }

    fn try_set(&mut self, key: &[u8], value: &[u8]) -> bool {
        // A write must not overtake an earlier read. Longer words are left to `write`.
        if self.pending.reads > 0 || key.len() > MAX_KEY || value.len() > SHORT.min(self.shared.limits.value_bytes) {
            return false;
        }
        let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        let (when, answer, expires) = (When::Always, SetAnswer::Word, Expires::Never);
        let write = Write::Set { key, value, when, answer, expires };
        let size = write.size();
        let fits = !self.pending.is_full(size);
        if fits {
            self.pending.push(write, size);
        }
        fits
    }

    pub(in crate::resp) async fn flush(&mut self) {
        if self.pending.slots.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        if pending.reads > 0 {
            return self.read_all(pending.slots).await;
        }
        let replies = pending.made(&self.shared).await;
        self.output.tell(replies, self.protocol, true).await;
    }

    /// Answers a single read. A value for which there are no permits isn't kept, but read again once permits are
    /// available; after [`READS`] attempts, or without permits in time, the answer is an error. Fails if no member
    /// serves the read.
    async fn read_alone(&mut self, read: &Read) -> Result<(), Error> {
        let mut room = None;
        for _ in 0..READS {
            let kv = &self.shared.kv;
            let reply = match read.here(kv) {
                Some(reply) => reply,
                None => read.ask(kv).await?,
            };
            let Err(lacking) = self.output.tell_now(room, reply, self.protocol).await else { return Ok(()) };
            room = self.output.wait(lacking).await;
            if room.is_none() {
                break;
            }
        }
        self.output.say(&Reply::no_room(), self.protocol);
        Ok(())
    }

    /// Answers reads. Large values are read one at a time: the next one only after the previous one is answered.
    async fn read_all(&mut self, slots: Vec<Slot>) {
        let shared = self.shared.clone();
        // A read that no member served has used up its deadline: the next one gets the same error without waiting.
        let (mut found, mut unserved) = match together(&shared, &slots).await {
            Ok(found) => (found, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let room = self.output.try_room(&found);
        if room.is_none() {
            // There aren't enough permits for all values: drop the values, and read the keys one by one.
            found.clear();
        }
        let mut found = found.into_iter();
        for slot in slots {
            if self.output.is_broken() {
                // The client is gone.
                break;
            }
            let read = match slot {
                Slot::Read(read) => read,
                Slot::Said(reply) => {
                    self.output.say(&reply, self.protocol);
                    continue;
                }
                Slot::Write(_) => continue,
            };
            if let Some(room) = &room
                && read.is_plain()
                && let Some(reply) = found.next()
            {
                self.output.tell_one(room, reply, self.protocol).await;
                continue;
            }
            let failed = match unserved.take() {
                None => self.read_alone(&read).await.err(),
                error => error,
            };
            if let Some(error) = failed {
                self.output.say(&read.told(&shared.kv, &error), self.protocol);
                unserved = Some(error).filter(|error| !is_about_content(error));
            }
        }
        if let Some(room) = room {
            self.output.give_back(room).await;
        }
    }
}
