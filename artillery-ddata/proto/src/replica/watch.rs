//! Watches: queries for committed changes.
//!
//! Nothing is queued for a watch. Each query asks for the changes behind those that the client has, and waits here if
//! there are none yet. Changes are read from the history that is kept for resends; a query for older ones is refused.

use std::{collections::BTreeMap, ops::Bound};

use bytes::Bytes;

use super::{Replica, ReplicaOutput, Token, portion::Portion, reads::PendingRead};
use crate::{
    Sequence, Timestamp,
    api::{Refusal, Reply, WatchQuery, WatchReply},
    store::{Held, ScanRecord},
    types::update::{KeyChange, Update},
};

/// What a waiting query counts beside its prefix, in bytes.
const QUESTION: usize = 256;

/// The waiting queries by their prefix: so each change is matched once, not once a query.
#[derive(Clone, Debug, Default)]
pub(super) struct Watchers {
    by_prefix: BTreeMap<Bytes, Vec<PendingWatch>>,
    len: usize,
    bytes: usize,
}

#[derive(Clone, Debug)]
struct PendingWatch {
    token: Token,
    deadline: Timestamp,
    after: Sequence,
    shown: u32,
}

impl Watchers {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn wait(&mut self, prefix: Bytes, waiting: PendingWatch) {
        self.len += 1;
        self.bytes += QUESTION + prefix.len();
        self.by_prefix.entry(prefix).or_default().push(waiting);
    }

    fn take(&mut self, prefix: &Bytes) -> Vec<PendingWatch> {
        let taken = self.by_prefix.remove(prefix).unwrap_or_default();
        self.len -= taken.len();
        self.bytes -= taken.len() * (QUESTION + prefix.len());
        taken
    }

    /// Takes out the queries whose deadline has passed.
    fn take_late(&mut self, now: Timestamp) -> Vec<PendingWatch> {
        let (mut late, mut bytes) = (Vec::new(), 0);
        self.by_prefix.retain(|prefix, all| {
            let before = late.len();
            late.extend(all.extract_if(.., |waiting| waiting.deadline <= now));
            bytes += (late.len() - before) * (QUESTION + prefix.len());
            !all.is_empty()
        });
        self.len -= late.len();
        self.bytes -= bytes;
        late
    }

    /// Takes all out.
    fn take_all(&mut self) -> impl Iterator<Item = PendingWatch> + use<> {
        std::mem::take(self).by_prefix.into_values().flatten()
    }

    /// The prefixes that `key` begins with, longest first. Each comparison takes a step; `None`: there are too few
    /// steps.
    fn prefixes_of(&self, key: &[u8], steps: &mut usize) -> Option<Vec<Bytes>> {
        let mut found = Vec::new();
        let mut longest = key.len();
        loop {
            *steps = steps.checked_sub(1)?;
            let upto = (Bound::Unbounded, Bound::Included(&key[..longest]));
            let Some((prefix, _)) = self.by_prefix.range::<[u8], _>(upto).next_back() else { return Some(found) };
            let common = prefix.iter().zip(key).take_while(|(a, b)| a == b).count();
            if common < prefix.len() {
                // A shorter prefix of `key` sorts before `prefix`, and can't be longer than what `key` shares with
                // that.
                longest = common;
                continue;
            }
            found.push(prefix.clone());
            let Some(shorter) = common.checked_sub(1) else { return Some(found) };
            longest = shorter;
        }
    }
}

impl Replica {
    pub(super) fn watch(&mut self, asked: PendingRead, watch: WatchQuery) {
        let PendingRead { token, floor, deadline, .. } = asked;
        let now_is = self.watermark.max(floor.unwrap_or_default());
        let WatchQuery { prefix, after: Some(after), shown } = watch else {
            return self.reply(token, Reply::Changes(WatchReply { records: Vec::new(), upto: now_is, shown: 0 }));
        };
        let first = self.history.first();
        if after.saturating_next() < first {
            return self.reply(token, Reply::Refused(Refusal::Compacted { first: first.0 }));
        }
        let mut steps = self.settings.watch_steps;
        let changes = self.changes(&prefix, after, shown, &mut steps);
        if !changes.records.is_empty() || changes.upto < self.watermark {
            return self.reply(token, Reply::Changes(changes));
        }
        if self.watchers.bytes + QUESTION + prefix.len() > self.settings.watches {
            return self.reply(token, Reply::Refused(Refusal::Busy));
        }
        let WatchReply { upto: after, shown, .. } = changes;
        self.watchers.wait(prefix, PendingWatch { token, deadline, after, shown });
    }

    /// Committed changes behind `after`, without the first `shown` of the next update: as many as an answer holds. Each
    /// change takes a step. The last update may take more steps than are left.
    fn changes(&self, prefix: &Bytes, after: Sequence, shown: u32, steps: &mut usize) -> WatchReply {
        let mut changes = WatchReply { records: Vec::new(), upto: after, shown };
        let mut portion = Portion::new(self.settings.answer);
        for update in self.history.from(after.saturating_next()).take_while(|update| self.is_shown(update)) {
            if *steps == 0 {
                break;
            }
            *steps = steps.saturating_sub(1 + update.changes.len());
            let skipped = std::mem::take(&mut changes.shown) as usize;
            for (at, change) in update.changes.iter().enumerate().skip(skipped) {
                if !change.key.starts_with(prefix) {
                    continue;
                }
                if !portion.takes(change.key.len() + change.value.as_ref().map_or(0, Bytes::len)) {
                    changes.shown = at as u32;
                    return changes;
                }
                changes.records.push(record(update, change));
            }
            changes.upto = update.version.sequence;
        }
        changes
    }

    fn is_shown(&self, update: &Update) -> bool {
        update.version.sequence <= self.watermark || allows!(self.settings.guards, WatchUncommitted)
    }

    /// Answers the queries that wait for changes committed behind `before`. Up to `before` they have seen all changes
    /// of their keys. The steps of one commit are bounded, however many queries wait. If they run out, the remaining
    /// queries get the position reached, and each asks again.
    pub(super) fn answer_watchers(&mut self, before: Sequence) {
        if self.watchers.len == 0 {
            return;
        }
        let mut steps = self.settings.watch_steps;
        let mut changed = Vec::new();
        let committed = self.history.from(before.next()).take_while(|update| update.version.sequence <= self.watermark);
        for change in committed.flat_map(|update| &update.changes) {
            let Some(prefixes) = self.watchers.prefixes_of(&change.key, &mut steps) else {
                steps = 0;
                break;
            };
            for prefix in prefixes {
                // Taken out at its first match, so later changes don't match it again.
                let waiting = self.watchers.take(&prefix);
                changed.push((prefix, waiting));
            }
        }
        if steps == 0 {
            let found = changed.into_iter().flat_map(|(_, waiting)| waiting);
            let all: Vec<_> = found.chain(self.watchers.take_all()).collect();
            all.into_iter().for_each(|waiting| self.tell_so_far(waiting, before));
            return;
        }
        for (prefix, waiting) in changed {
            waiting.into_iter().for_each(|waiting| self.answer_watcher(&prefix, waiting, before, &mut steps));
        }
    }

    fn answer_watcher(&mut self, prefix: &Bytes, waiting: PendingWatch, before: Sequence, steps: &mut usize) {
        let PendingWatch { token, deadline, after, shown } = waiting;
        let (after, shown) = if after < before { (before, 0) } else { (after, shown) };
        let changes = self.changes(prefix, after, shown, steps);
        if changes.records.is_empty() && changes.upto >= self.watermark {
            // The client has seen these changes at another member.
            let WatchReply { upto: after, shown, .. } = changes;
            self.watchers.wait(prefix.clone(), PendingWatch { token, deadline, after, shown });
        } else {
            self.outputs.push_back(ReplicaOutput::Reply(token, Reply::Changes(changes)));
        }
    }

    /// Answers a waiting query with the position up to which it has missed no change.
    fn tell_so_far(&mut self, waiting: PendingWatch, before: Sequence) {
        let PendingWatch { token, after, shown, .. } = waiting;
        let (upto, shown) = if after < before { (before, 0) } else { (after, shown) };
        self.outputs
            .push_back(ReplicaOutput::Reply(token, Reply::Changes(WatchReply { records: Vec::new(), upto, shown })));
    }

    /// Answers queries whose deadline has passed with the position reached: the next query goes on from there.
    pub(super) fn expire_watchers(&mut self, now: Timestamp) {
        for waiting in self.watchers.take_late(now) {
            self.tell_so_far(waiting, self.watermark);
        }
    }

    pub(super) fn refuse_watchers(&mut self) {
        for waiting in self.watchers.take_all() {
            self.outputs.push_back(ReplicaOutput::Reply(waiting.token, Reply::Refused(Refusal::NoChain)));
        }
    }
}

fn record(update: &Update, change: &KeyChange) -> ScanRecord {
    ScanRecord { key: change.key.clone(), held: Held { version: update.version, value: change.value.clone() } }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_prefixes_of_a_key_are_found(
            prefixes in prop::collection::vec("[ab]{0,5}", 0..20),
            key in "[ab]{0,6}",
        ) {
            let mut watchers = Watchers::default();
            for (n, prefix) in prefixes.iter().enumerate() {
                let waiting = PendingWatch { token: Token(n as u64), deadline: Timestamp::MAX, after: Sequence::ZERO, shown: 0 };
                watchers.wait(prefix.clone().into(), waiting);
            }
            let mut expected: Vec<_> = prefixes.iter().filter(|prefix| key.starts_with(*prefix)).cloned().collect();
            expected.sort_by_key(|prefix| std::cmp::Reverse(prefix.len()));
            expected.dedup();
            let mut steps = 1000;
            prop_assert_eq!(watchers.prefixes_of(key.as_bytes(), &mut steps), Some(expected.iter().cloned().map(Bytes::from).collect()));
            let mut needed = 1000 - steps;
            prop_assert!(watchers.prefixes_of(key.as_bytes(), &mut needed).is_some());
            let mut too_few = 999 - steps;
            prop_assert_eq!(watchers.prefixes_of(key.as_bytes(), &mut too_few), None);
            for prefix in expected {
                watchers.take(&prefix.into());
            }
            let left = prefixes.iter().filter(|prefix| !key.starts_with(*prefix));
            let (len, bytes) = left.fold((0, 0), |(len, bytes), prefix| (len + 1, bytes + QUESTION + prefix.len()));
            prop_assert_eq!((watchers.len(), watchers.bytes), (len, bytes));
            prop_assert_eq!(watchers.take_late(Timestamp::MAX).len(), len);
            prop_assert_eq!((watchers.len(), watchers.bytes), (0, 0));
        }
    }
}
