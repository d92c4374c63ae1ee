//! Commands of a pipeline that are made together: reads overlap each other, writes become one update. Never both at once,
//! so that they take effect in their order.

use std::{future::poll_fn, pin::Pin, task::Poll};

use artillery_ddata::update::MAX_KEY;

use super::{Client, Reply};
use crate::node::resp::{
    Shared,
    read::Read,
    script,
    together::Together,
    write::{MOST_BYTES, MOST_STEPS, Write},
};

/// Commands that aren't answered yet, in their order.
#[derive(Debug, Default)]
pub(super) struct Pending {
    slots: Vec<Slot>,
    reads: usize,
    writes: usize,
    /// Of the writes.
    bytes: usize,
    steps: usize,
}

#[derive(Debug)]
enum Slot {
    /// Answered, behind one that isn't.
    Said(Reply),
    Read(Read),
    Write(Write),
}

impl Pending {
    /// Keeps an answer until those before it are there; gives it back if there are none.
    pub(super) fn behind(&mut self, reply: Reply) -> Option<Reply> {
        if self.slots.is_empty() {
            return Some(reply);
        }
        self.slots.push(Slot::Said(reply));
        None
    }

    /// Whether this many more bytes and steps are too many for one update.
    fn is_full(&self, (bytes, steps): (usize, usize)) -> bool {
        self.slots.len() >= MOST_STEPS || self.bytes + bytes > MOST_BYTES || self.steps + steps > MOST_STEPS
    }

    async fn answers(mut self, shared: &Shared) -> Vec<Reply> {
        if self.slots.len() == 1
            && let Some(slot) = self.slots.pop()
        {
            // Whoever doesn't pipeline has no more than this.
            return match slot {
                Slot::Said(reply) => vec![reply],
                Slot::Read(read) => vec![read.ask(&shared.kv).await],
                Slot::Write(write) => made(shared, vec![write]).await,
            };
        }
        let (mut reads, mut writes, mut said) = (Vec::new(), Vec::new(), Vec::new());
        for (at, slot) in self.slots.into_iter().enumerate() {
            match slot {
                Slot::Said(reply) => said.push((at, reply)),
                Slot::Read(read) => reads.push((at, read)),
                Slot::Write(write) => writes.push((at, write)),
            }
        }
        let read = all(reads.iter().map(|(_, read)| Box::pin(read.ask(&shared.kv))).collect()).await;
        said.extend(reads.iter().map(|(at, _)| *at).zip(read));
        let (places, writes): (Vec<_>, Vec<_>) = writes.into_iter().unzip();
        said.extend(places.into_iter().zip(made(shared, writes).await));
        said.sort_unstable_by_key(|(at, _)| *at);
        said.into_iter().map(|(_, reply)| reply).collect()
    }
}

async fn made(shared: &Shared, mut writes: Vec<Write>) -> Vec<Reply> {
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

/// Waits for all of these, in one task.
async fn all<F: Future>(futures: Vec<Pin<Box<F>>>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Some(future), None)).collect();
    poll_fn(|context| {
        let mut ready = true;
        for (future, output) in &mut futures {
            let Some(waiting) = future else { continue };
            match waiting.as_mut().poll(context) {
                Poll::Ready(done) => (*future, *output) = (None, Some(done)),
                Poll::Pending => ready = false,
            }
        }
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}

impl Client {
    /// Answers from this node's own state, or asks together with other reads.
    pub(super) async fn read(&mut self, read: Read) {
        if self.pending.writes > 0 || self.pending.is_full((0, 0)) {
            self.flush().await;
        }
        if let Some(reply) = read.here(&self.shared.kv) {
            return self.say(reply);
        }
        self.pending.reads += 1;
        self.pending.slots.push(Slot::Read(read));
    }

    /// Writes together with other writes, or alone what would make their update fail or travel slowly.
    pub(super) async fn write(&mut self, write: Write) {
        let ((bytes, steps), (key, value)) = (write.size(), write.longest());
        if self.pending.reads > 0 || self.pending.is_full((bytes, steps)) {
            self.flush().await;
        }
        if key > MAX_KEY || value > self.shared.limits.value_bytes || self.pending.is_full((bytes, steps)) {
            self.flush().await;
            let reply = write.make(&self.shared.kv).await;
            return self.say(reply);
        }
        self.pending.writes += 1;
        self.pending.bytes += bytes;
        self.pending.steps += steps;
        self.pending.slots.push(Slot::Write(write));
    }

    /// Makes what is pending, and answers.
    pub(in crate::node::resp) async fn flush(&mut self) {
        if self.pending.slots.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        for reply in pending.answers(&self.shared).await {
            reply.encode(&mut self.output, self.protocol);
        }
    }
}
