//! Replies of nodes, and the checks on them.

use std::fmt::Write as _;

use artillery_proto::{
    Sequence,
    api::{Computed, HashedReply, ReadMode, ReadReply, Refusal, Reply, ScanReply},
    store::Held,
};

use super::{Event, World};
use crate::{
    client::{Ask, Pending, key_bytes, key_of},
    node::{Caller, Origin},
    oracle::{ChainOracle, Failure, Oracle},
    scenario::SECOND,
};

impl World {
    pub(super) fn answer(&mut self, index: usize, slot: usize, caller: Caller, reply: Reply) -> Result<(), Failure> {
        let origin = match caller {
            Caller::Watcher(watcher, attempt) => return self.answer_changes(watcher, attempt, reply),
            Caller::Contender(process, attempt) => {
                self.answer_contender(process, attempt, reply);
                return Ok(());
            }
            Caller::Follower(follower, attempt) => {
                self.answer_follower(follower, attempt, reply);
                return Ok(());
            }
            Caller::Client(origin) => origin,
        };
        self.trace.line(self.now, |out| {
            write!(out, "n{index} c{slot} answers client {} op {}: {reply:?}", origin.client, origin.number)
        });
        self.counts.busy += u64::from(reply == Reply::Refused(Refusal::Busy));
        self.counts.expired_sessions += u64::from(reply == Reply::Refused(Refusal::SessionExpired));
        self.note_served(index, &reply);
        self.check_peace(&origin, &reply);
        self.check_reply(&origin, &reply);
        self.respond(origin, reply);
        Ok(())
    }

    /// Checks a reply against the commits of the tail, and against an earlier reply to the same request.
    pub(super) fn check_reply(&mut self, origin: &Origin, reply: &Reply) {
        let oracle = &self.oracles[origin.asked.chain];
        // After an accepted loss, an earlier reply to this request may describe lost updates.
        let is_forgotten = origin.expected.as_ref().is_some_and(|expected| match &**expected {
            Reply::Committed(committed) => self.is_lost(origin.asked.chain, committed.version),
            _ => self.has_lost(origin.asked.chain),
        });
        // A store that no longer belongs to the chain serves eventual reads until its node rejoins.
        let shows_lost = matches!(&reply, Reply::Read(ReadReply { held: Some(held), .. })
            if self.is_lost(origin.asked.chain, held.version));
        let is_eventual = matches!(origin.asked.ask, Ask::Read(_, ReadMode::Eventual));
        if is_forgotten || shows_lost && is_eventual {
            return;
        }
        let checked = checked(oracle, &self.setup.keys, origin, reply);
        if let Err(failure) = checked {
            self.claim(failure);
        }
    }

    /// Checks that no client gets an unknown outcome before its deadline where nothing fails.
    fn check_peace(&mut self, origin: &Origin, reply: &Reply) {
        let pending = self.clients[origin.client].pending.as_ref();
        // The margin allows for clock drift.
        let in_time = |pending: &Pending| pending.number == origin.number && self.now + SECOND / 10 < pending.until;
        if self.setup.peaceful && *reply == Reply::Expired && pending.is_some_and(in_time) {
            let what = format!("{:?} got an unknown outcome although nothing failed", origin.asked.ask);
            self.claim(Failure::new(Oracle::Unknown, what));
        }
    }

    /// Keeps the first failure until the end of the run: a violation in the client history takes precedence.
    pub(super) fn claim(&mut self, failure: Failure) {
        if self.claim.is_none() {
            self.trace.line(self.now, |out| write!(out, "claim: {failure}"));
            self.claim = Some(failure);
        }
    }

    pub(super) fn respond(&mut self, origin: Origin, reply: Reply) {
        // No client waits for the reply to a duplicate.
        if origin.expected.is_none()
            && let Some(delay) = self.network.client_delay(origin.client)
        {
            self.queue.push(self.now + delay, Event::Reply(origin, Box::new(reply)));
        }
    }

    pub(super) fn reply(&mut self, origin: Origin, reply: Reply) -> Result<(), Failure> {
        let Origin { client: index, number, attempt, .. } = origin;
        let waits = |pending: &Pending| pending.number == number && pending.attempts == attempt && pending.waits;
        if !self.clients[index].pending.as_ref().is_some_and(waits) {
            return Ok(());
        }
        if let Some(next) = self.clients[index].reply(reply, &self.setup.keys, &self.ids)? {
            self.carry_on(index, next);
        }
        Ok(())
    }
}

fn checked(oracle: &ChainOracle, keys: &crate::client::Keys, origin: &Origin, reply: &Reply) -> Result<(), Failure> {
    if let Some(expected) = &origin.expected {
        is_the_same(expected, reply)?;
    }
    let asked = &origin.asked;
    let committed = oracle.committed_up_to();
    let ahead = |what: &str, sequence: Sequence| {
        let claim = format!("{what} {sequence} was returned, but the tail has committed only up to {committed}");
        if sequence > committed { Err(Failure::new(Oracle::Claims, claim)) } else { Ok(()) }
    };
    let seen = |as_of: Sequence| {
        ahead("a read as of", as_of)?;
        // A strong read shows every committed update, even if its `as_of` is lower.
        let is_loose = asked.ask.mode() == Some(ReadMode::Eventual);
        match asked.floor.filter(|&floor| asked.tells_floor && is_loose && as_of < floor) {
            Some(floor) => {
                let what = format!("a session's read as of {as_of} is below its floor {floor}");
                Err(Failure::new(Oracle::Claims, what))
            }
            None => Ok(()),
        }
    };
    match (&asked.ask, reply) {
        (Ask::Read(key, mode), Reply::Read(ReadReply { held, clean, as_of, .. })) => {
            seen(*as_of)?;
            let key = key_bytes(*key);
            if let Some(Held { version, value, .. }) = held {
                oracle.check_claim(&key, *version, value.as_ref(), *clean || *mode == ReadMode::Strong)?;
            }
            oracle.check_not_behind(&key, held.as_ref(), *as_of)
        }
        (Ask::Keys(asked, _), Reply::Cut(cut)) => {
            seen(cut.as_of)?;
            let found = asked.iter().zip(&cut.found);
            found.into_iter().try_for_each(|(key, held)| oracle.check_exact(&key_bytes(*key), held.as_ref(), cut.as_of))
        }
        (Ask::Page { after, .. }, Reply::Page(ScanReply { records, next, as_of, snapshot, .. })) => {
            match snapshot {
                Some(_) => ahead("a snapshot at", *as_of)?,
                None => seen(*as_of)?,
            }
            let next = next.as_ref().and_then(|key| key_of(key));
            Ask::range(keys, asked.chain, *after, next).try_for_each(|key| {
                let key = key_bytes(key);
                let held = records.iter().find(|record| record.key == key).map(|record| &record.held);
                oracle.check_exact(&key, held, *as_of)
            })
        }
        (Ask::Hashed { from, .. }, Reply::Hashed(HashedReply { keys: listed, next, as_of, .. })) => {
            seen(*as_of)?;
            Ask::placed(keys, asked.chain, *from, *next).try_for_each(|key| {
                let key = key_bytes(key);
                oracle.check_listed(&key, listed.contains(&key), *as_of)
            })
        }
        (_, Reply::Committed(committed)) => ahead("write", committed.version.sequence),
        (_, Reply::Conflict { at, .. }) => ahead("conflict", at.sequence),
        _ => Ok(()),
    }
}

/// Whether a repeated answer agrees with the first. One of them may be missing the deleted value, but not its version;
/// the second one has no results of a script.
fn is_the_same_result(first: &Computed, again: &Computed) -> bool {
    match (first, again) {
        (Computed::Took(Some((taken, _))), Computed::TookForgotten(version))
        | (Computed::TookForgotten(version), Computed::Took(Some((taken, _)))) => taken == version,
        // A script's results are returned only once.
        (Computed::Ran(_), Computed::RanForgotten) => true,
        _ => first == again,
    }
}

fn is_the_same(expected: &Reply, reply: &Reply) -> Result<(), Failure> {
    let fine = match (expected, reply) {
        (Reply::Committed(first), Reply::Committed(again)) => {
            first.version == again.version && is_the_same_result(&first.result, &again.result)
        }
        (
            Reply::Conflict { at, step, version, .. },
            Reply::Conflict { at: at_again, step: step_again, version: version_again, .. },
        ) => (at, step, version) == (at_again, step_again, version_again),
        (_, Reply::Refused(Refusal::Barred)) => *expected == Reply::Refused(Refusal::Barred),
        (
            _,
            Reply::Refused(
                Refusal::NotANumber
                | Refusal::Overflow
                | Refusal::ResultsTooLarge { .. }
                | Refusal::UpdateTooLarge { .. },
            ),
        ) => false,
        (_, Reply::Refused(_) | Reply::Expired) => true,
        _ => false,
    };
    if fine {
        return Ok(());
    }
    Err(Failure::new(Oracle::Once, format!("a request got {expected:?}, but its duplicate {reply:?}")))
}
