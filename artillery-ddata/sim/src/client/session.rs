//! Sessions: request numbers, which identify retries, and the floor up to which an application has seen the history.

use std::collections::BTreeSet;

use artillery_proto::{ClusterId, Sequence, Version};

/// A session of an application with one chain.
#[derive(Clone, Debug)]
pub struct Session {
    /// The version of the update that opened the session.
    pub id: Version,
    next: u64,
    open: BTreeSet<u64>,
}

/// The state of an application for one chain, shared by its clients.
#[derive(Clone, Default, Debug)]
pub struct Standing {
    session: Option<Session>,
    /// Whether a client is opening a session.
    pub opening: bool,
    /// The sequence up to which the application has seen or written the history.
    pub floor: Sequence,
    /// The history to which the floor belongs. The first request after the start or after a reset sets it. Always
    /// `None` in runs in which no loss is accepted: there, requests name no history.
    pub history: Option<ClusterId>,
}

impl Standing {
    /// Resets the floor because its history is over. Data written and seen in it may be lost.
    pub fn begin_history(&mut self) {
        (self.floor, self.history) = (Sequence::ZERO, None);
    }

    /// Begins the session that the update `id` opened. Its requests are numbered from 1.
    pub fn opened(&mut self, id: Version) {
        self.session = Some(Session { id, next: 1, open: BTreeSet::new() });
    }

    /// Records that the session `id` has been evicted.
    pub fn expired(&mut self, id: Version) {
        if self.session.as_ref().is_some_and(|session| session.id == id) {
            self.session = None;
        }
    }

    /// Whether a session is open: a numbered request needs one.
    pub fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Allocates the id of a new request; `None` without a session.
    pub fn number(&mut self) -> Option<(Version, u64)> {
        let session = self.session.as_mut()?;
        let number = session.next;
        session.next += 1;
        session.open.insert(number);
        Some((session.id, number))
    }

    /// Records that the request has ended.
    pub fn close(&mut self, (id, number): (Version, u64)) {
        if let Some(session) = self.session.as_mut().filter(|session| session.id == id) {
            session.open.remove(&number);
        }
    }

    /// The lowest number whose request has not ended; the next number if all have. 0, which confirms nothing, if `id`
    /// is not the current session.
    pub fn lowest(&self, id: Version) -> u64 {
        match &self.session {
            Some(session) if session.id == id => session.open.first().copied().unwrap_or(session.next),
            _ => 0,
        }
    }

    /// Raises the floor to `seen` if it is lower.
    pub fn rise(&mut self, seen: Sequence) {
        self.floor = self.floor.max(seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_unanswered_number_rises_with_the_answers() {
        let (mut standing, id) = (Standing::default(), Version::new(1, 9));
        assert_eq!(standing.number(), None);
        standing.opened(id);
        let (one, two) = (standing.number().unwrap(), standing.number().unwrap());
        assert_eq!((one, two, standing.lowest(id)), ((id, 1), (id, 2), 1));
        standing.close(two);
        assert_eq!(standing.lowest(id), 1);
        standing.close(one);
        assert_eq!((standing.lowest(id), standing.lowest(Version::new(1, 1))), (3, 0));
        standing.expired(id);
        assert!(!standing.has_session());
    }
}
