//! How a member applies updates, and how the watermark commits them.

use smallvec::SmallVec;

use super::{Halt, Replica};
use crate::{
    Sequence, Timestamp,
    store::{Held, StoreBatch, StoreOp},
    types::update::Update,
};

impl Replica {
    /// Applies the next update of the history: puts it into the store, or enqueues it behind the store, and appends it
    /// to the history.
    pub(super) fn apply(&mut self, update: Update) -> Result<(), Halt> {
        if !update.kind.is_known() {
            return Err(Halt::UnknownKind(update.kind.0));
        }
        // With the mutant `WholeTooSoon` the store may hold a newer version, and would refuse this update.
        let too_soon = allows!(self.settings.guards, WholeTooSoon);
        let known = |key: &[u8]| too_soon && self.has_newer(key, update.version).unwrap_or(false);
        let ops: SmallVec<[StoreOp; 2]> = update
            .changes
            .iter()
            .filter(|change| !known(&change.key))
            .map(|change| StoreOp::Put {
                key: change.key.clone(),
                held: Held { version: update.version, value: change.value.clone() },
            })
            .collect();
        let taken = self.taken_by(&update)?;
        if !ops.is_empty() {
            let batch = StoreBatch { chain: self.chain, keep_from: self.watermark, ops };
            if self.place.is_alone() {
                self.store.apply(&batch)?;
            } else {
                self.store.put_later(update.version.sequence, batch, !allows!(self.settings.guards, ReadBehind))?;
            }
        }
        self.journal_update(&update, taken.as_ref());
        self.sessions.note(&update, taken);
        self.count_for_snapshots(update.cost());
        self.history.push(update);
        Ok(())
    }

    pub(super) fn commit_as_tail(&mut self, now: Timestamp) {
        if self.place.is_tail && self.is_open() && self.committable() > self.watermark {
            self.commit(now, self.committable());
            self.peers.values_mut().for_each(|peer| peer.due = true);
        }
    }

    /// Takes in a watermark of this epoch. While our history isn't known to be a prefix of the head's, the watermark is
    /// ignored: a returning member may hold other updates under the sequences that it covers.
    pub(super) fn advance_commit(&mut self, now: Timestamp, watermark: Sequence) {
        if !self.is_prefix {
            return;
        }
        let last = self.history.last().sequence;
        if watermark > last && self.place.serves() {
            // Every committed update has passed us, so this is a bug, here or at another member. Refuse rather than
            // answer wrongly (docs/DESIGN.md §4).
            self.halt(Halt::WatermarkAhead { watermark, last });
        } else if self.place.serves() && self.held_here().is_some_and(|held| watermark > held) {
            self.halt(Halt::NotDurable { watermark });
        } else if watermark.min(last) > self.watermark {
            self.commit(now, watermark.min(last));
        }
    }

    /// Commits all updates up to `watermark`: shows them to readers, and prunes what they supersede when there is time.
    fn commit(&mut self, now: Timestamp, watermark: Sequence) {
        // The only member stores before it answers: no other copy exists.
        if self.place.is_alone()
            && let Err(error) = self.store.settle()
        {
            return self.halt(error.into());
        }
        self.store.commit(watermark);
        let before = std::mem::replace(&mut self.watermark, watermark);
        if let Err(error) = self.prune(before) {
            return self.halt(error);
        }
        let (sessions, history) = (&mut self.sessions, &self.history);
        let committed = history.from(before.next()).take_while(|update| update.version.sequence <= watermark);
        let pace = &mut self.pace;
        committed.for_each(|update| {
            sessions.commit(update);
            pace.committed(update.cost());
        });
        self.acknowledged_by_watermark(now);
        self.answer_writes();
        self.serve_committed_reads(now);
        self.answer_watchers(before);
        self.history.commit(watermark, self.settings.backlog);
        self.end_outgoing_if_overtaken();
        self.count_rereplicated(now);
    }

    fn prune(&mut self, before: Sequence) -> Result<(), Halt> {
        let put_off = self.store.supersede(self.watermark);
        let ops: SmallVec<[StoreOp; 2]> = self
            .history
            .from(before.next())
            .take_while(|update| update.version.sequence <= self.watermark)
            .flat_map(|update| {
                let is_put_off = update.version.sequence >= put_off;
                update.changes.iter().filter(move |change| !is_put_off || change.value.is_none())
            })
            .map(|change| StoreOp::Prune { key: change.key.clone() })
            .collect();
        if !ops.is_empty() {
            self.store.later(StoreBatch { chain: self.chain, keep_from: self.watermark, ops })?;
        }
        Ok(())
    }
}
