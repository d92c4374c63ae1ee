//! Log matching: a successor's history is compared with its predecessor's, and cut where they differ (docs/DESIGN.md
//! §5.4).

use super::{Halt, Replica, links::Cursor};
use crate::{
    MemberId, Role, Timestamp,
    message::{Control, Partial, Position, Truncate},
    store::{StoreBatch, StoreOp},
};

impl Replica {
    /// The successor told its position. Sending goes on behind it, or the successor first drops what we never had
    /// (rule 5.4).
    pub(super) fn follow(&mut self, now: Timestamp, from: MemberId, position: &Position, partial: Option<Partial>) {
        if self.serves(from) && position.last.sequence < self.watermark {
            // A serving member holds every committed update, so this position is old.
            return;
        }
        if self.peers.get(&from).is_some_and(|peer| position.last.sequence < peer.acknowledged) {
            // This position is old too: only a snapshot drops what was acknowledged.
            return;
        }
        let keep = self.history.common(position);
        if keep != position.last && !self.is_open() {
            // Don't cut yet. Our predecessor may still send us the updates that this cut would drop, and the successor may
            // acknowledge them meanwhile. A cut can't be withdrawn, so the position is compared again once the epoch is open
            // here.
            if let Some(peer) = self.peers.get_mut(&from) {
                let resume = Some(position.clone());
                peer.heard =
                    Some(Box::new(Control { acknowledged: position.last, resume, partial, ..Control::default() }));
            }
            return;
        }
        let first = self.history.first();
        if keep.sequence.next() < first {
            // A serving successor holds every committed update, so the backlog must have what it needs. A syncing one
            // gets a snapshot.
            if self.serves(from) {
                self.halt(Halt::BacklogTooShort { needed: keep.sequence.next(), first });
            } else {
                self.offer_snapshot(now, from, position.last);
            }
            return;
        }
        self.end_outgoing();
        let Some(peer) = self.peers.get_mut(&from) else { return };
        peer.due = true;
        peer.progress = now;
        if keep == position.last {
            peer.cut = None;
            peer.cursor = Some(Cursor::behind(keep.sequence, partial));
            peer.acknowledged = peer.acknowledged.max(keep.sequence);
        } else {
            peer.cut = Some(Truncate { said: position.last, keep });
            peer.cursor = None;
        }
    }

    /// The predecessor has confirmed that our history is a prefix of its own. So the watermarks heard before hold for
    /// our history too.
    pub(super) fn found_prefix(&mut self, now: Timestamp) {
        if !self.is_prefix && self.place.role == Some(Role::Syncing) {
            self.resyncs.partial += 1;
        }
        self.believe_prefix(now);
    }

    pub(super) fn believe_prefix(&mut self, now: Timestamp) {
        if std::mem::replace(&mut self.is_prefix, true) {
            return;
        }
        if let Some(heard) = self.peers.values().map(|peer| peer.watermark).max() {
            self.advance_commit(now, heard);
        }
        self.follow_heard(now);
    }

    pub(super) fn open_if_caught_up(&mut self, now: Timestamp) {
        let held = self.history.last().sequence;
        if !self.is_open() && self.open_awaits.is_some_and(|upto| held >= upto) {
            self.open(now);
        }
    }

    /// Drops what the predecessor never had, if our history still ends where the predecessor takes it to end. A member
    /// is cut at most once an epoch, before it has sent anything in it.
    pub(super) fn cut(&mut self, now: Timestamp, cut: Truncate) {
        if self.history.last() != cut.said {
            return;
        }
        if self.is_prefix
            && !allows!(self.settings.guards, FollowTooSoon)
            && !allows!(self.settings.guards, RollBackFirst)
        {
            return self.halt(Halt::CutPrefix { said: cut.said, keep: cut.keep });
        }
        if cut.keep.sequence < self.watermark {
            return self.halt(Halt::DropCommitted { to: cut.keep.sequence, watermark: self.watermark });
        }
        let last = cut.keep.sequence;
        // The history has every update above the watermark, so it names all keys that the dropped updates changed.
        let changes = self.history.from(last.next()).flat_map(|update| &update.changes);
        let ops = changes.map(|change| StoreOp::DropAbove { key: change.key.clone(), last }).collect();
        let batch = StoreBatch { chain: self.chain, keep_from: self.watermark, ops };
        if !allows!(self.settings.guards, KeepDirty)
            && let Err(error) = self.store.apply(&batch)
        {
            return self.halt(error.into());
        }
        self.history.cut(cut.keep);
        self.journal_cut(cut.keep);
        self.drop_unreplicated(now, last);
        self.incoming = None;
        self.pace.cut(cut.keep.sequence);
        self.cut_writes(cut.keep);
        // Waiting reads may wait for a dropped update.
        self.restart_reads(now);
        if let Err(error) = self.note_pending_anew() {
            self.halt(error.into());
        }
    }

    pub(super) fn serves(&self, id: MemberId) -> bool {
        self.config.as_ref().is_some_and(|config| config.serving().any(|serving| serving == id))
    }
}
