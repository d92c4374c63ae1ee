use std::collections::VecDeque;

use crate::{Epoch, Sequence, Version, message::Position, replica::ends::Ends as _, types::update::Update};

/// The updates that a member keeps: those above the watermark, and a backlog of committed ones for resends. They form a
/// contiguous suffix of the chain's history. The table of epochs covers the whole history.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct UpdateHistory {
    last: Version,
    /// First sequence of each epoch, oldest first.
    epochs: Vec<(Epoch, Sequence)>,
    updates: VecDeque<Update>,
    /// Updates up to this sequence belong to the backlog; later ones are in flight.
    committed: Sequence,
    in_flight: usize,
    backlog: usize,
}

impl UpdateHistory {
    pub(crate) fn last(&self) -> Version {
        self.last
    }

    /// Bytes of updates above the committed sequence.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Bytes of kept updates up to the committed sequence.
    pub(crate) fn backlog(&self) -> usize {
        self.backlog
    }

    /// The sequence of the first kept update; if none is kept, of the next update.
    pub(crate) fn first(&self) -> Sequence {
        Sequence(self.last.sequence.0 + 1 - self.updates.len() as u64)
    }

    pub(crate) fn updates(&self) -> &VecDeque<Update> {
        &self.updates
    }

    pub(crate) fn into_updates(self) -> VecDeque<Update> {
        self.updates
    }

    pub(crate) fn position(&self) -> Position {
        Position { last: self.last, epochs: self.epochs.clone() }
    }

    /// A committed history that ends at `last` and keeps no updates.
    pub(crate) fn behind(last: Version, epochs: Vec<(Epoch, Sequence)>) -> Self {
        Self { last, epochs, committed: last.sequence, ..Self::default() }
    }

    /// First sequence of each epoch up to `sequence`, oldest first.
    pub(crate) fn epochs_at(&self, sequence: Sequence) -> Vec<(Epoch, Sequence)> {
        self.epochs.iter().copied().take_while(|&(_, first)| first <= sequence).collect()
    }

    /// Whether all updates after `sequence` are kept, and have at most `limit` bytes.
    pub(crate) fn is_close(&self, sequence: Sequence, limit: usize) -> bool {
        let mut bytes = 0;
        sequence.next() >= self.first()
            && self.from(sequence.next()).all(|update| {
                bytes += update.cost();
                bytes <= limit
            })
    }

    pub(crate) fn from(&self, sequence: Sequence) -> impl Iterator<Item = &Update> + '_ {
        let skip = sequence.0.saturating_sub(self.first().0);
        self.updates.range(usize::try_from(skip).map_or(self.updates.len(), |skip| skip.min(self.updates.len()))..)
    }

    pub(crate) fn push(&mut self, update: Update) {
        debug_assert_eq!(update.version.sequence, self.last.sequence.next());
        debug_assert!(update.version.epoch >= self.last.epoch);
        if update.version.epoch != self.last.epoch {
            self.epochs.push((update.version.epoch, update.version.sequence));
        }
        self.last = update.version;
        self.in_flight += update.cost();
        self.updates.push_back(update);
    }

    /// Moves all updates up to `watermark` into the backlog, and drops the oldest until it fits into `limit` bytes.
    pub(crate) fn commit(&mut self, watermark: Sequence, limit: usize) {
        let moved: usize =
            self.from(self.committed.next()).take_while(|u| u.version.sequence <= watermark).map(Update::cost).sum();
        self.committed = watermark;
        self.in_flight -= moved;
        self.backlog += moved;
        while self.backlog > limit
            && let Some(update) = self.updates.take_front_if(|update| update.version.sequence <= watermark)
        {
            self.backlog -= update.cost();
        }
    }

    /// Drops every update above `keep`, which must be at or above the watermark.
    pub(crate) fn cut(&mut self, keep: Version) {
        debug_assert!(keep.sequence >= self.committed);
        while let Some(update) = self.updates.take_back_if(|update| update.version.sequence > keep.sequence) {
            self.in_flight -= update.cost();
        }
        self.epochs.retain(|&(_, first)| first <= keep.sequence);
        self.last = keep;
    }

    /// The version at `sequence`, by the table of epochs; `None`: there is no update at `sequence`.
    pub(crate) fn version_at(&self, sequence: Sequence) -> Option<Version> {
        if sequence > self.last.sequence {
            return None;
        }
        let epoch = self.epochs.iter().rev().find(|&&(_, first)| first <= sequence).map(|&(epoch, _)| epoch);
        epoch.map(|epoch| Version { epoch, sequence })
    }

    /// The newest version that this history shares with the history that `other` describes; [`Version::NONE`]: none.
    ///
    /// Equal versions imply equal histories up to them, so the result lies in the newest epoch that both contain.
    pub(crate) fn common(&self, other: &Position) -> Version {
        let mut end = other.last.sequence;
        for &(epoch, first) in other.epochs.iter().rev() {
            let ours = self.epochs.iter().position(|&(e, f)| (e, f) == (epoch, first));
            if let Some(at) = ours {
                let our_end = self.epochs.get(at + 1).map_or(self.last.sequence, |&(_, next)| Sequence(next.0 - 1));
                return Version { epoch, sequence: end.min(our_end) };
            }
            end = Sequence(first.0.saturating_sub(1));
        }
        Version::NONE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{fixtures, types::update::KeyChange};

    fn update(version: Version) -> Update {
        fixtures::update(version, [KeyChange::new("k".into(), Some("value".into()))])
    }

    fn history(epochs: &[u64]) -> UpdateHistory {
        let mut history = UpdateHistory::default();
        for (n, &epoch) in epochs.iter().enumerate() {
            history.push(update(Version::new(epoch, n as u64 + 1)));
        }
        history
    }

    #[test]
    fn empty_histories_have_nothing_in_common() {
        assert_eq!(history(&[]).common(&Position::default()), Version::NONE);
        assert_eq!(history(&[1, 1]).common(&Position::default()), Version::NONE);
    }

    #[test]
    fn a_prefix_has_its_last_version_in_common() {
        let long = history(&[1, 1, 2, 2, 5]);
        assert_eq!(long.common(&history(&[1, 1, 2]).position()), Version::new(2, 3));
        assert_eq!(history(&[1, 1, 2]).common(&long.position()), Version::new(2, 3));
        assert_eq!(long.common(&long.position()), Version::new(5, 5));
    }

    #[test]
    fn an_unknown_epoch_is_cut_off() {
        // The same sequence in different epochs: the second head never had the first head's third update.
        assert_eq!(history(&[1, 1, 2, 2]).common(&history(&[1, 1, 1]).position()), Version::new(1, 2));
        assert_eq!(history(&[1, 2, 2]).common(&history(&[1, 3]).position()), Version::new(1, 1));
    }

    #[test]
    fn committed_updates_stay_as_far_as_the_backlog_reaches() {
        let mut history = history(&[1; 10]);
        let cost = update(Version::new(1, 1)).cost();
        assert_eq!(history.in_flight(), 10 * cost);
        history.commit(Sequence(6), 2 * cost);
        assert_eq!((history.in_flight(), history.backlog()), (4 * cost, 2 * cost));
        assert_eq!(history.first(), Sequence(5));
        assert_eq!(history.from(Sequence(8)).count(), 3);
        history.commit(Sequence(10), 0);
        assert_eq!((history.in_flight(), history.backlog(), history.first()), (0, 0, Sequence(11)));
    }

    #[test]
    fn a_cut_takes_back_bytes_and_epochs() {
        let mut history = history(&[1, 1, 2, 3]);
        history.cut(Version::new(1, 2));
        assert_eq!(history.last(), Version::new(1, 2));
        assert_eq!(history.position().epochs, [(Epoch(1), Sequence(1))]);
        assert_eq!(history.in_flight(), 2 * update(Version::new(1, 1)).cost());
        history.push(update(Version::new(4, 3)));
        assert_eq!(history.version_at(Sequence(3)), Some(Version::new(4, 3)));
        assert_eq!(history.version_at(Sequence(4)), None);
    }

    proptest! {
        /// For two histories that diverge after a shared prefix, the common version is the end of the prefix.
        #[test]
        fn common_is_the_longest_equal_prefix(
            shared in prop::collection::vec(0u64..2, 0..8),
            ours in prop::collection::vec(0u64..2, 0..5),
            theirs in prop::collection::vec(0u64..2, 0..5),
        ) {
            let rise = |steps: &[u64], from: u64| {
                let mut epoch = from;
                steps.iter().map(|step| { epoch += step; epoch }).collect::<Vec<_>>()
            };
            let shared = rise(&shared, 1);
            let top = shared.last().copied().unwrap_or(1);
            // Different heads order in different epochs after the fork.
            let branch = |steps: &[u64], odd: u64| rise(steps, 0).iter().map(|e| top + 1 + 2 * e + odd).collect::<Vec<_>>();
            let a = history(&[shared.clone(), branch(&ours, 0)].concat());
            let b = history(&[shared.clone(), branch(&theirs, 1)].concat());
            let expected = shared.last().map_or(Version::NONE, |&epoch| Version::new(epoch, shared.len() as u64));
            prop_assert_eq!(a.common(&b.position()), expected);
            prop_assert_eq!(b.common(&a.position()), expected);
        }
    }
}
