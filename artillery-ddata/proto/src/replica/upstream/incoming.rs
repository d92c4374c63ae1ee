//! Large updates that arrive in pieces, and the pieces to send to the successor.

use bytes::Bytes;

use crate::{
    Version,
    message::{Outline, Partial},
    types::update::Update,
};

#[derive(Clone, Hash, Debug)]
pub(in crate::replica) struct Incoming {
    version: Version,
    outline: Outline,
    received: Vec<u8>,
}

/// A piece that doesn't continue the received ones.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::replica) struct Misplaced;

impl Incoming {
    pub(in crate::replica) fn new(version: Version, outline: Outline) -> Self {
        Self { version, outline, received: Vec::new() }
    }

    pub(in crate::replica) fn version(&self) -> Version {
        self.version
    }

    pub(in crate::replica) fn outline(&self) -> &Outline {
        &self.outline
    }

    pub(in crate::replica) fn partial(&self) -> Partial {
        Partial { version: self.version, bytes: self.received.len() as u64 }
    }

    pub(in crate::replica) fn is_whole(&self) -> bool {
        self.received.len() as u64 == self.outline.bytes()
    }

    /// Appends the bytes at `offset` that are new.
    pub(in crate::replica) fn take(&mut self, offset: u64, piece: &[u8]) -> Result<(), Misplaced> {
        let end = offset.checked_add(piece.len() as u64).ok_or(Misplaced)?;
        let known = (self.received.len() as u64).checked_sub(offset).ok_or(Misplaced)?;
        if end > self.outline.bytes() {
            return Err(Misplaced);
        }
        self.push(piece.get(known as usize..).unwrap_or_default());
        Ok(())
    }

    /// Memory grows with the bytes received, not with the length that the outline claims, and never beyond that length.
    fn push(&mut self, piece: &[u8]) {
        if self.received.capacity() - self.received.len() < piece.len() {
            let missing = (self.outline.bytes() as usize).saturating_sub(self.received.len());
            self.received.reserve_exact(self.received.len().min(missing).max(piece.len()));
        }
        self.received.extend_from_slice(piece);
    }

    pub(in crate::replica) fn finish(self) -> Option<Update> {
        self.outline.fill(self.version, &self.received.into())
    }

    /// Up to `most` of the received bytes, from `at` on.
    pub(in crate::replica) fn piece(&self, at: usize, most: usize) -> Bytes {
        let end = self.received.len().min(at.saturating_add(most));
        Bytes::copy_from_slice(self.received.get(at..end).unwrap_or_default())
    }
}

/// Up to `most` bytes of an update's keys and values, from `at` on: a slice if they are in one value, otherwise a copy.
pub(in crate::replica) fn piece_of(update: &Update, at: usize, most: usize) -> Bytes {
    let mut out = Vec::new();
    let mut skip = at;
    for piece in update.changes.iter().flat_map(|change| [Some(&change.key), change.value.as_ref()]).flatten() {
        if skip >= piece.len() {
            skip -= piece.len();
            continue;
        }
        let end = piece.len().min(skip + most - out.len());
        if out.is_empty() && end - skip == most {
            return piece.slice(skip..end);
        }
        out.extend_from_slice(&piece[skip..end]);
        skip = 0;
        if out.len() == most {
            break;
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{fixtures, types::update::KeyChange};

    fn update(changes: Vec<KeyChange>) -> Update {
        Update { chain_time: 9, ..fixtures::update(Version::new(1, 1), changes) }
    }

    fn large() -> (Update, Bytes) {
        let value = Bytes::from((0..=255).cycle().take(1000).collect::<Vec<u8>>());
        (update(vec![KeyChange::new("key".into(), Some(value.clone()))]), value)
    }

    #[test]
    fn pieces_within_a_value_are_slices_of_it() {
        let (update, value) = large();
        assert_eq!(piece_of(&update, 10, 20).as_ptr(), value[7..].as_ptr());
        assert_eq!(piece_of(&update, 0, 5), [b"key", &value[..2]].concat());
        assert_eq!(piece_of(&update, 1000, 64), value[997..], "the end");
        assert_eq!(piece_of(&update, 1003, 64), Bytes::new());
    }

    #[test]
    fn a_piece_out_of_place_is_not_taken() {
        let (update, _) = large();
        let mut incoming = Incoming::new(update.version, Outline::of(&update));
        assert_eq!(incoming.take(0, &[1; 10]), Ok(()));
        assert_eq!(incoming.take(11, &[1; 10]), Err(Misplaced), "a hole");
        assert_eq!(incoming.take(u64::MAX, &[1; 10]), Err(Misplaced));
        assert_eq!(incoming.take(0, &[1; 1004]), Err(Misplaced), "beyond the end");
        assert_eq!(incoming.partial().bytes, 10);
        assert_eq!(incoming.take(5, &[2; 10]), Ok(()), "partly known");
        assert_eq!(incoming.take(3, &[3; 4]), Ok(()), "all known");
        assert_eq!(incoming.piece(0, 100), [[1; 10].as_slice(), &[2; 5]].concat());
        assert!(!incoming.is_whole());
    }

    #[test]
    fn memory_grows_with_what_has_come() {
        let outline = Outline {
            changes: vec![crate::message::Lengths { key: 0, value: crate::message::ValueOutline::Set(u32::MAX) }],
            ..Outline::of(&update(vec![]))
        };
        let mut incoming = Incoming::new(Version::new(1, 1), outline);
        for n in 1..100 {
            incoming.take((n - 1) * 1000, &[0; 1000]).unwrap();
            assert!(incoming.received.capacity() <= 2 * n as usize * 1000);
        }
    }

    proptest! {
        #[test]
        fn pieces_of_any_length_make_the_update_again(
            lengths in prop::collection::vec((0..9_usize, prop::option::of(0..60_usize)), 1..6),
            chunk in 1..50_usize,
        ) {
            let mut byte = 0_u8;
            let mut bytes = |len| (0..len).map(|_| { byte = byte.wrapping_add(7); byte }).collect::<Vec<u8>>().into();
            let changes = lengths.iter().map(|&(key, value)| KeyChange::new(bytes(key), value.map(&mut bytes)));
            let update = update(changes.collect());
            let mut incoming = Incoming::new(update.version, Outline::of(&update));
            let mut handed_on = Vec::new();
            for at in (0..update.bytes()).step_by(chunk) {
                let piece = piece_of(&update, at, chunk);
                prop_assert!(piece.len() == chunk || at + piece.len() == update.bytes());
                incoming.take(at as u64, &piece).unwrap();
                handed_on.extend_from_slice(&incoming.piece(at, chunk));
                prop_assert_eq!(&handed_on, &incoming.received);
            }
            prop_assert!(incoming.is_whole());
            prop_assert_eq!(incoming.received.capacity(), update.bytes());
            prop_assert_eq!(incoming.finish(), Some(update));
        }
    }
}
