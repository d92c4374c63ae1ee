//! Watches: queries for committed changes.
//!
//! A member queues no changes for a watch. Each query requests the changes after the client's position, and waits here
//! until such a change is committed. Changes are read from the history that is kept for resends. A query for older
//! changes is refused.

use std::{collections::BTreeMap, ops::Bound};

use bytes::Bytes;

use super::portion::Portion;
use crate::{
    Expiry, Sequence, Timestamp,
    api::{Refusal, Reply, WatchQuery, WatchReply},
    replica::{Context, Outbox, Token, log::Log},
    store::{Held, ScanRecord},
    types::update::{KeyChange, Update, UpdateKind},
};

/// The bytes of a waiting query without its prefix.
const QUERY_BYTES: usize = 256;

/// The waiting queries by prefix, so that each change is matched once rather than once per query.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Watchers {
    by_prefix: BTreeMap<Bytes, Vec<PendingWatch>>,
    len: usize,
    bytes: usize,
}

#[derive(Clone, Hash, Debug)]
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
        self.bytes += QUERY_BYTES + prefix.len();
        self.by_prefix.entry(prefix).or_default().push(waiting);
    }

    fn take(&mut self, prefix: &Bytes) -> Vec<PendingWatch> {
        let taken = self.by_prefix.remove(prefix).unwrap_or_default();
        self.len -= taken.len();
        self.bytes -= taken.len() * (QUERY_BYTES + prefix.len());
        taken
    }

    fn take_late(&mut self, now: Timestamp) -> Vec<PendingWatch> {
        let (mut late, mut bytes) = (Vec::new(), 0);
        self.by_prefix.retain(|prefix, all| {
            let before = late.len();
            late.extend(all.extract_if(.., |waiting| waiting.deadline <= now));
            bytes += (late.len() - before) * (QUERY_BYTES + prefix.len());
            !all.is_empty()
        });
        self.len -= late.len();
        self.bytes -= bytes;
        late
    }

    fn take_all(&mut self) -> impl Iterator<Item = PendingWatch> + use<> {
        std::mem::take(self).by_prefix.into_values().flatten()
    }

    /// The prefixes of `key`, longest first. Each comparison uses a step; `None`: the steps don't suffice.
    fn prefixes_of(&self, key: &[u8], steps: &mut usize) -> Option<Vec<Bytes>> {
        let mut found = Vec::new();
        let mut longest = key.len();
        loop {
            *steps = steps.checked_sub(1)?;
            let upto = (Bound::Unbounded, Bound::Included(&key[..longest]));
            let Some((prefix, _)) = self.by_prefix.range::<[u8], _>(upto).next_back() else { return Some(found) };
            let common = prefix.iter().zip(key).take_while(|(a, b)| a == b).count();
            if common < prefix.len() {
                // A shorter prefix of `key` sorts before `prefix`, and is no longer than their common prefix.
                longest = common;
                continue;
            }
            found.push(prefix.clone());
            let Some(shorter) = common.checked_sub(1) else { return Some(found) };
            longest = shorter;
        }
    }
}

impl Watchers {
    /// Answers or refuses a query, or parks it.
    pub(super) fn watch(
        &mut self,
        cx: Context<'_>,
        log: &Log,
        (token, deadline, floor): (Token, Timestamp, Option<Sequence>),
        query: WatchQuery,
        out: &mut Outbox,
    ) {
        let asks_position = query.asks_position(floor);
        let WatchQuery { prefix, after: Some(after), shown } = query else {
            let upto = log.watermark().max(floor.unwrap_or_default());
            return out.reply(token, Reply::Changes(WatchReply { records: Vec::new(), upto, shown: 0 }));
        };
        let first = log.history().first();
        if after.saturating_next() < first {
            return out.refuse(token, Refusal::Compacted { first: first.0 });
        }
        let mut steps = cx.settings().watch_steps;
        let changes = changes(cx, log, &prefix, (after, shown), &mut steps);
        // A copy that isn't level needs a later position, whether or not its keys have changed.
        if !changes.records.is_empty() || changes.upto < log.watermark() || asks_position {
            return out.reply(token, Reply::Changes(changes));
        }
        if self.bytes + QUERY_BYTES + prefix.len() > cx.settings().watches {
            return out.refuse(token, Refusal::Busy);
        }
        let WatchReply { upto: after, shown, .. } = changes;
        self.wait(prefix, PendingWatch { token, deadline, after, shown });
    }

    /// Answers the queries for which changes were committed after `before`. All queries have seen the changes of their
    /// keys up to `before`. The steps of one commit are bounded, however many queries wait. If the steps run out, the
    /// remaining queries are answered with their position, and their clients query again.
    pub(super) fn answer(&mut self, cx: Context<'_>, log: &Log, before: Sequence, out: &mut Outbox) {
        if self.len == 0 {
            return;
        }
        let mut steps = cx.settings().watch_steps;
        let mut changed = Vec::new();
        let updates = log.history().from(before.next());
        let committed = updates.take_while(|update| update.version.sequence <= log.watermark());
        for change in committed.flat_map(|update| &update.changes) {
            let Some(prefixes) = self.prefixes_of(&change.key, &mut steps) else {
                steps = 0;
                break;
            };
            for prefix in prefixes {
                // Each query is taken at its first match, so later changes don't match it again.
                let waiting = self.take(&prefix);
                changed.push((prefix, waiting));
            }
        }
        if steps == 0 {
            let found = changed.into_iter().flat_map(|(_, waiting)| waiting);
            found.chain(self.take_all()).for_each(|waiting| waiting.reply_position(before, out));
            return;
        }
        for (prefix, waiting) in changed {
            for waiting in waiting {
                self.answer_one(cx, log, &prefix, waiting.behind(before), &mut steps, out);
            }
        }
    }

    fn answer_one(
        &mut self,
        cx: Context<'_>,
        log: &Log,
        prefix: &Bytes,
        waiting: PendingWatch,
        steps: &mut usize,
        out: &mut Outbox,
    ) {
        let PendingWatch { token, deadline, after, shown } = waiting;
        let changes = changes(cx, log, prefix, (after, shown), steps);
        if changes.records.is_empty() && changes.upto >= log.watermark() {
            // The client has seen these changes at another member.
            let WatchReply { upto: after, shown, .. } = changes;
            self.wait(prefix.clone(), PendingWatch { token, deadline, after, shown });
        } else {
            out.reply(token, Reply::Changes(changes));
        }
    }

    /// Answers queries whose deadline has passed with their position, where the next query continues.
    pub(super) fn expire(&mut self, now: Timestamp, watermark: Sequence, out: &mut Outbox) {
        self.take_late(now).into_iter().for_each(|waiting| waiting.reply_position(watermark, out));
    }

    pub(super) fn refuse_all(&mut self, out: &mut Outbox) {
        self.take_all().for_each(|waiting| out.refuse(waiting.token, Refusal::NoChain));
    }
}

impl PendingWatch {
    /// The same query, once it has seen all changes of its keys up to `before`.
    fn behind(self, before: Sequence) -> Self {
        if self.after < before { Self { after: before, shown: 0, ..self } } else { self }
    }

    /// Answers with the position up to which the client has missed no change.
    fn reply_position(self, before: Sequence, out: &mut Outbox) {
        let Self { token, after: upto, shown, .. } = self.behind(before);
        out.reply(token, Reply::Changes(WatchReply { records: Vec::new(), upto, shown }));
    }
}

/// Committed changes after `after`, without the first `shown` of the next update: as many as fit into an answer. Each
/// update uses a step, and one more for each of its changes. The last update may use more steps than are left.
fn changes(
    cx: Context<'_>,
    log: &Log,
    prefix: &Bytes,
    (after, shown): (Sequence, u32),
    steps: &mut usize,
) -> WatchReply {
    let is_shown =
        |update: &Update| update.version.sequence <= log.watermark() || allows!(cx.guards(), WatchUncommitted);
    let mut changes = WatchReply { records: Vec::new(), upto: after, shown };
    let mut portion = Portion::new(cx.settings().answer);
    for update in log.history().from(after.saturating_next()).take_while(|update| is_shown(update)) {
        if *steps == 0 {
            break;
        }
        *steps = steps.saturating_sub(1 + update.changes.len());
        let skipped = std::mem::take(&mut changes.shown) as usize;
        for (at, change) in update.changes.iter().enumerate().skip(skipped) {
            // A renewal changes no value.
            if change.renews || !change.key.starts_with(prefix) {
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

fn record(update: &Update, change: &KeyChange) -> ScanRecord {
    let mut held = Held { version: update.version, value: change.value.clone(), expires: change.expires };
    if update.kind == UpdateKind::EXPIRE {
        held.expires = Some(Expiry::at(update.chain_time));
    }
    ScanRecord { key: change.key.clone(), held }
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
            let (len, bytes) = left.fold((0, 0), |(len, bytes), prefix| (len + 1, bytes + QUERY_BYTES + prefix.len()));
            prop_assert_eq!((watchers.len(), watchers.bytes), (len, bytes));
            prop_assert_eq!(watchers.take_late(Timestamp::MAX).len(), len);
            prop_assert_eq!((watchers.len(), watchers.bytes), (0, 0));
        }
    }
}
