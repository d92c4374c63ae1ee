//! The record of the operations of all clients.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use artillery_programs::chance::Dice;

use super::door::{Ask, Door, Reply};

/// The family of a key determines the operations on it, and so the checks that apply to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    /// Values without versions, as any Redis client sees them.
    Plain,
    Versioned,
    Counter,
}

/// The families of the keys of one generation.
const FAMILIES: [Family; 8] = {
    use Family::{Counter, Plain, Versioned};
    [Plain, Plain, Plain, Versioned, Versioned, Versioned, Counter, Counter]
};

/// A key. Its number determines its family and its generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key(pub(super) u32);

impl Key {
    pub(super) fn family(self) -> Family {
        FAMILIES[self.0 as usize % FAMILIES.len()]
    }

    pub(super) fn generation(self) -> u32 {
        self.0 / FAMILIES.len() as u32
    }
}

#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) client: u32,
    pub(super) key: Key,
    pub(super) ask: Ask,
    /// Order of events: a counter that grows with each call and each answer of the run.
    pub(super) called: u64,
    pub(super) returned: u64,
    pub(super) reply: Reply,
}

pub(super) struct Book {
    /// A token that keeps the keys of different runs apart.
    run: String,
    /// Whether the store reports versions.
    versions: bool,
    generation: AtomicU32,
    moment: AtomicU64,
    value: AtomicU64,
    clients: AtomicU32,
    over: AtomicBool,
    lines: Mutex<Vec<Line>>,
}

impl Book {
    /// Without `versions`, versioned keys are left out.
    pub(super) fn new(run: String, versions: bool) -> Self {
        Self {
            run,
            versions,
            generation: AtomicU32::new(0),
            moment: AtomicU64::new(0),
            value: AtomicU64::new(0),
            clients: AtomicU32::new(0),
            over: AtomicBool::new(false),
            lines: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn any_key(&self, dice: &mut Dice) -> Key {
        loop {
            let key = self.key(dice.below(FAMILIES.len() as u64) as u32);
            if self.has(key) {
                return key;
            }
        }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        (0..FAMILIES.len() as u32).map(|place| self.key(place)).filter(|key| self.has(*key))
    }

    pub(super) fn all_keys(&self) -> impl Iterator<Item = Key> {
        let end = (self.generation.load(Ordering::SeqCst) + 1) * FAMILIES.len() as u32;
        (0..end).map(Key).filter(|key| self.has(*key))
    }

    fn has(&self, key: Key) -> bool {
        self.versions || key.family() != Family::Versioned
    }

    fn key(&self, place: u32) -> Key {
        Key(self.generation.load(Ordering::SeqCst) * FAMILIES.len() as u32 + place)
    }

    pub(super) fn name(&self, key: Key) -> String {
        format!("chaos/{}/{}", self.run, key.0)
    }

    /// Starts a new set of keys, which keeps histories short.
    pub(super) fn next_generation(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// A value that no other write has; never 0.
    pub(super) fn value(&self) -> u64 {
        self.value.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(super) fn client(&self) -> u32 {
        self.clients.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) async fn ask<D: Door>(&self, client: u32, door: &mut D, key: Key, ask: Ask) -> Reply {
        let called = self.moment();
        let number = {
            // Record the operation before it is sent: if its task ends before an answer or an error arrives, it may
            // still have been applied.
            let line = Line { client, key, ask, called, returned: u64::MAX, reply: Reply::Unknown };
            let mut lines = self.lines();
            lines.push(line);
            lines.len() - 1
        };
        let reply = door.ask(&self.name(key), ask).await;
        let returned = self.moment();
        if let Some(line) = self.lines().get_mut(number) {
            (line.returned, line.reply) = (returned, reply.clone());
        }
        reply
    }

    fn moment(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, Vec<Line>> {
        // A line is pushed and updated as a whole, so a poisoned lock is harmless.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn copy(&self) -> Vec<Line> {
        self.lines().clone()
    }

    /// Makes clients stop after their current operation.
    pub(super) fn close(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}
