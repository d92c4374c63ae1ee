//! A client: runs one operation after the other, until the book is closed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use artillery_ddata::Version;
use artillery_programs::chance::Dice;
use tokio::time::sleep;

use super::{
    book::{Book, Family, Key},
    door::{Ask, Door, Reply},
};

/// The longest pause between two operations of a client, in milliseconds. It keeps the history of a key short enough
/// for the checker, and leaves the CPU to the nodes.
const PAUSE_MS: u64 = 24;

pub(super) struct Worker<D> {
    client: u32,
    door: D,
    book: Arc<Book>,
    dice: Dice,
    /// The most recently seen versions of this generation's keys.
    seen: BTreeMap<Key, Version>,
}

impl<D: Door> Worker<D> {
    pub(super) fn new(door: D, book: Arc<Book>, seed: u64) -> Self {
        let client = book.client();
        let dice = Dice::new(seed.wrapping_mul(1000).wrapping_add(client.into()));
        Self { client, door, book, dice, seen: BTreeMap::new() }
    }

    pub(super) async fn run(mut self) {
        while !self.book.is_over() {
            let key = self.book.any_key(&mut self.dice);
            self.seen.retain(|seen, _| seen.generation() == key.generation());
            let ask = self.choose(key);
            let reply = self.book.ask(self.client, &mut self.door, key, ask).await;
            self.learn(key, &reply);
            sleep(Duration::from_millis(self.dice.below(PAUSE_MS))).await;
        }
    }

    fn choose(&mut self, key: Key) -> Ask {
        let reads = self.dice.below(100) < 55;
        match (key.family(), reads) {
            (Family::Plain, true) => Ask::Get,
            (Family::Plain, false) => Ask::Set(self.book.value()),
            (Family::Counter, true) => Ask::Count,
            (Family::Counter, false) => Ask::Add,
            (Family::Versioned, true) => Ask::Look,
            (Family::Versioned, false) => {
                let value = self.book.value();
                match self.dice.below(10) {
                    0 if D::PUTS => Ask::Delete,
                    1..=3 if D::PUTS => Ask::Put(value),
                    _ => Ask::Swap(self.seen.get(&key).copied().unwrap_or(Version::NONE), value),
                }
            }
        }
    }

    fn learn(&mut self, key: Key, reply: &Reply) {
        match reply {
            Reply::Written(Some(version)) | Reply::Conflict(version) | Reply::Found(Some((Some(version), _))) => {
                self.seen.insert(key, *version);
            }
            Reply::Found(None) => {
                self.seen.remove(&key);
            }
            _ => {}
        }
    }
}
