//! Removes keys that are due (docs/adr/0031-chain-time.md). Only the head does, by updates in the history: members and
//! readers never hide a key by a clock.

use std::time::Duration;

use bytes::Bytes;

use super::{Head, IsAppended, may_know, next_update};
use crate::{
    Sequence, Timestamp,
    api::Write,
    replica::{Context, Halt, Membership, log::Log},
    types::update::{KeyChange, UpdateKind},
};

/// The most keys that one update removes.
const MAX_REMOVED: usize = 512;
/// While keys can expire and nothing is written, the head stamps this often, so that a restart of all members loses no
/// more chain time.
const STAMP_INTERVAL: Duration = Duration::from_secs(10);
/// The least time between two removals of a sole member, which commits at once.
const MIN_INTERVAL: Duration = Duration::from_millis(1);

/// The state of the head's removals.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Removals {
    /// The newest removal. The next one waits for its commit.
    newest: Sequence,
    /// The head orders no removal before this time, so that removals and the clients' writes take turns.
    not_before: Timestamp,
    /// The next attempt after one that wasn't allowed, if no other input arrives before.
    retry: Timestamp,
}

impl Head {
    /// Removes keys that are due, or stamps an idle chain. Runs after each input at the head.
    pub(in crate::replica) fn remove_due(&mut self, cx: Context<'_>, log: &mut Log) -> Result<IsAppended, Halt> {
        let Some(first) = log.expiring().next()? else { return Ok(false) };
        let chain_time = log.chain_time_at(cx.now);
        let is_due = first.is_due(chain_time);
        let is_idle = chain_time.saturating_sub(log.newest_stamp()) >= STAMP_INTERVAL.as_millis() as u64;
        if !is_due && !is_idle || !self.may_remove_next(cx.now, log) {
            return Ok(false);
        }
        if may_know(cx).and_then(|()| self.may_order(cx, log)).is_err() {
            self.removals.retry = cx.now + cx.settings().heartbeat;
            return Ok(false);
        }
        self.removals.not_before = cx.now + MIN_INTERVAL;
        let mut due = log.expiring().due(chain_time, MAX_REMOVED)?;
        if allows!(cx.guards(), RemoveNewer) {
            due.extend(overwritten(log, chain_time)?);
        }
        if !due.is_empty() {
            self.remove(cx, log, due)?;
            log.expiring().measure()?;
        } else if is_idle {
            let stamp = next_update(cx, log, UpdateKind::NOOP);
            self.append(cx, log, stamp)?;
        } else {
            // The first expiry was replaced by a later one.
            return Ok(false);
        }
        self.removals.newest = log.last().sequence;
        Ok(true)
    }

    fn may_remove_next(&self, now: Timestamp, log: &Log) -> bool {
        self.removals.newest <= log.watermark() && now >= self.removals.not_before
    }

    /// Removes the due keys of a write before the write is resolved, so that it meets no dead value (trap 102). The
    /// removal precedes the write in the history, so a reader that sees the write sees the removal too.
    pub(super) fn remove_due_among(
        &mut self,
        cx: Context<'_>,
        log: &mut Log,
        write: &Write,
    ) -> Result<IsAppended, Halt> {
        let chain_time = log.chain_time_at(cx.now);
        let due = log.expiring().due_among(chain_time, write.keys())?;
        if due.is_empty() || self.may_order(cx, log).is_err() || allows!(cx.guards(), WriteToDead) {
            return Ok(false);
        }
        for keys in due.chunks(MAX_REMOVED) {
            self.remove(cx, log, keys.to_vec())?;
        }
        Ok(true)
    }

    fn remove(&mut self, cx: Context<'_>, log: &mut Log, keys: Vec<Bytes>) -> Result<(), Halt> {
        let mut update = next_update(cx, log, UpdateKind::EXPIRE);
        update.changes = keys.into_iter().map(|key| KeyChange::new(key, None)).collect();
        self.append(cx, log, update)
    }

    /// When this head should remove keys or stamp next, without any other input.
    pub(in crate::replica) fn next_removal(&self, member: &Membership, log: &Log) -> Option<Timestamp> {
        if !member.place().is_head || member.is_halted() || self.removals.newest > log.watermark() {
            return None;
        }
        let idle = log.newest_stamp().saturating_add(STAMP_INTERVAL.as_millis() as u64);
        let next = log.known_expiry()?.chain_time().min(idle);
        Some(log.reaches(next)?.max(self.removals.not_before).max(self.removals.retry))
    }

    pub(super) fn forget_removals(&mut self, keep: Sequence) {
        self.removals.newest = self.removals.newest.min(keep);
    }
}

/// Mutant: the keys whose committed version is due, although a newer one is pending.
fn overwritten(log: &Log, chain_time: u64) -> Result<Vec<Bytes>, Halt> {
    let watermark = log.watermark();
    let mut keys = Vec::new();
    for change in log.history().from(watermark.next()).flat_map(|update| &update.changes) {
        let committed = log.store().read(&change.key, watermark)?;
        if committed.and_then(|held| held.expiry()).is_some_and(|expiry| expiry.is_due(chain_time)) {
            keys.push(change.key.clone());
        }
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}
