//! Drafts of values, in pieces that are joined at the end. So the steps that append to a value don't copy it each time.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Buf, Bytes, BytesMut};
use smallvec::{SmallVec, smallvec};

use super::{ReadKey, decimal, incremented};
use crate::{
    Version,
    store::StoreError,
    types::update::{KeyChange, RequestFailure},
};

#[derive(Clone, Hash, Debug, Default)]
struct Draft {
    pieces: SmallVec<[Bytes; 2]>,
    len: usize,
}

impl From<Bytes> for Draft {
    fn from(value: Bytes) -> Self {
        Self { len: value.len(), pieces: smallvec![value] }
    }
}

impl Draft {
    fn push(&mut self, more: Bytes) {
        self.len += more.len();
        if !more.is_empty() || self.pieces.is_empty() {
            self.pieces.push(more);
        }
    }

    fn shorten(&mut self, len: usize) {
        while self.len > len
            && let Some(last) = self.pieces.last_mut()
        {
            let cut = last.len().min(self.len - len);
            last.truncate(last.len() - cut);
            self.len -= cut;
            if last.is_empty() && self.pieces.len() > 1 {
                self.pieces.pop();
            }
        }
    }

    /// Joins the pieces into one, and returns the value.
    fn whole(&mut self) -> Bytes {
        if self.pieces.len() > 1 {
            let mut value = BytesMut::with_capacity(self.len);
            self.pieces.iter().for_each(|piece| value.extend_from_slice(piece));
            self.pieces = smallvec![value.freeze()];
        }
        self.pieces.first().cloned().unwrap_or_default()
    }
}

#[derive(Debug)]
enum UndoStep {
    /// Restores the earlier draft of the key; `None`: the key had no draft, and its value is in the store.
    Put(Bytes, Option<Option<Draft>>),
    /// Truncates the key's value to this length.
    Shorten(Bytes, usize),
}

/// The changes of the steps so far, on top of the store.
#[derive(Debug)]
pub(super) struct Drafts<R> {
    read: R,
    /// The largest value, in bytes.
    limit: usize,
    changed: BTreeMap<Bytes, Option<Draft>>,
    /// The steps since [`begin`](Self::begin).
    undo: Vec<UndoStep>,
}

impl<R: ReadKey> Drafts<R> {
    pub(super) fn new(limit: usize, read: R) -> Self {
        Self { read, limit, changed: BTreeMap::new(), undo: Vec::new() }
    }

    /// Begins a group of steps that can be undone.
    pub(super) fn begin(&mut self) {
        self.undo.clear();
    }

    pub(super) fn undo(&mut self) {
        for undo in std::mem::take(&mut self.undo).into_iter().rev() {
            match undo {
                UndoStep::Put(key, None) => drop(self.changed.remove(&key)),
                UndoStep::Put(key, Some(before)) => drop(self.changed.insert(key, before)),
                UndoStep::Shorten(key, len) => {
                    if let Some(Some(draft)) = self.changed.get_mut(&key) {
                        draft.shorten(len);
                    }
                }
            }
        }
    }

    /// The version of the key; [`Version::NONE`]: the key is absent. `at` is the version of this write.
    pub(super) fn version(&self, key: &Bytes, at: Version) -> Result<Version, StoreError> {
        Ok(match self.changed.get(key) {
            Some(Some(_)) => at,
            Some(None) => Version::NONE,
            None => (self.read)(key)?.map_or(Version::NONE, |held| held.version),
        })
    }

    pub(super) fn length(&self, key: &Bytes) -> Result<Option<usize>, StoreError> {
        Ok(match self.changed.get(key) {
            Some(draft) => draft.as_ref().map(|draft| draft.len),
            None => (self.read)(key)?.and_then(|held| held.value).map(|value| value.len()),
        })
    }

    pub(super) fn found(&mut self, key: &Bytes, at: Version) -> Result<Option<(Version, Bytes)>, StoreError> {
        Ok(match self.changed.get_mut(key) {
            Some(draft) => draft.as_mut().map(|draft| (at, draft.whole())),
            None => (self.read)(key)?.and_then(|held| Some((held.version, held.value?))),
        })
    }

    pub(super) fn set(&mut self, key: Bytes, value: Option<Bytes>) {
        self.put(key, value.map(Draft::from));
    }

    fn put(&mut self, key: Bytes, draft: Option<Draft>) {
        let before = self.changed.insert(key.clone(), draft);
        self.undo.push(UndoStep::Put(key, before));
    }

    /// Appends to a value. Returns the new length.
    pub(super) fn append(&mut self, key: Bytes, more: Bytes) -> Result<Result<u64, RequestFailure>, StoreError> {
        let len = self.length(&key)?.unwrap_or(0) + more.len();
        if len > self.limit {
            return Ok(Err(RequestFailure::TooLarge(len as u64)));
        }
        if let Some(Some(draft)) = self.changed.get_mut(&key) {
            self.undo.push(UndoStep::Shorten(key, draft.len));
            draft.push(more);
        } else {
            let is_new = !self.changed.contains_key(&key);
            let before = if is_new { (self.read)(&key)?.and_then(|held| held.value) } else { None };
            let mut draft = before.filter(|value| !value.is_empty()).map(Draft::from).unwrap_or_default();
            draft.push(more);
            self.put(key, Some(draft));
        }
        Ok(Ok(len as u64))
    }

    /// Adds to a number. Returns the new number.
    pub(super) fn increment(&mut self, key: Bytes, by: i64) -> Result<Result<i64, RequestFailure>, StoreError> {
        // A longer value isn't a number, so it isn't assembled.
        const MAX_NUMBER_BYTES: usize = 20;
        let before = match self.length(&key)? {
            Some(len) if len > MAX_NUMBER_BYTES => return Ok(Err(RequestFailure::NotANumber)),
            _ => self.found(&key, Version::NONE)?.map(|(_, value)| value),
        };
        Ok(incremented(before, by).inspect(|&number| self.set(key, Some(decimal(number)))))
    }

    /// Returns all changes, or the sum of their values' lengths if it exceeds `most` bytes.
    pub(super) fn finish(self, most: usize) -> Result<(SmallVec<[KeyChange; 1]>, Joins), usize> {
        let len = self.changed.values().flatten().map(|draft| draft.len).sum();
        if len > most {
            return Err(len);
        }
        let mut joins = Joins::default();
        let change = |(at, (key, draft)): (usize, (Bytes, Option<Draft>))| {
            let value = draft.map(|draft| joins.add(at, draft));
            KeyChange { key, value }
        };
        Ok((self.changed.into_iter().enumerate().map(change).collect(), joins))
    }
}

/// The values that must still be assembled, and their changes.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Joins(Vec<Join>);

#[derive(Clone, Hash, Debug)]
struct Join {
    change: usize,
    pieces: VecDeque<Bytes>,
    value: BytesMut,
}

impl Joins {
    pub(super) fn of_one(before: Bytes, more: Bytes) -> (Bytes, Self) {
        let (mut draft, mut joins) = (Draft::from(before), Self::default());
        draft.push(more);
        (joins.add(0, draft), joins)
    }

    /// Returns the value, or a placeholder until the value is assembled.
    fn add(&mut self, change: usize, mut draft: Draft) -> Bytes {
        if draft.pieces.len() < 2 {
            return draft.whole();
        }
        let value = BytesMut::with_capacity(draft.len);
        self.0.push(Join { change, pieces: draft.pieces.into_iter().collect(), value });
        Bytes::new()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Copies up to `bytes` bytes. Returns whether nothing is left.
    pub(super) fn step(&mut self, mut bytes: usize, changes: &mut [KeyChange]) -> bool {
        while let Some(join) = self.0.last_mut() {
            while let Some(piece) = join.pieces.front_mut() {
                let some = piece.len().min(bytes);
                join.value.extend_from_slice(&piece[..some]);
                piece.advance(some);
                bytes -= some;
                if !piece.is_empty() {
                    return false;
                }
                join.pieces.pop_front();
            }
            let Some(Join { change, value, .. }) = self.0.pop() else { break };
            if let Some(change) = changes.get_mut(change) {
                change.value = Some(value.freeze());
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::Held;

    type Model = BTreeMap<String, Option<String>>;

    fn model(changes: &[KeyChange]) -> Model {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        changes.iter().map(|change| (text(&change.key), change.value.as_ref().map(text))).collect()
    }

    proptest! {
        /// Runs on a store in which "a" is "1" and all other keys are absent.
        #[test]
        fn steps_do_what_they_say_and_groups_are_undone(
            groups in prop::collection::vec((any::<bool>(), prop::collection::vec((0..5_u8, "[abc]", "[0-9]{0,3}"), 0..6)), 0..6),
            step in 1..8_usize,
        ) {
            let store = |key: &Bytes| Ok((&key[..] == b"a").then(|| Held { version: Version::new(1, 1), value: Some("1".into()) }));
            let mut drafts = Drafts::new(8, store);
            let mut all = Model::new();
            for (stays, steps) in groups {
                drafts.begin();
                let mut now = all.clone();
                for (what, key, text) in steps {
                    let held = now.get(&key).cloned().unwrap_or_else(|| (key == "a").then(|| "1".to_owned()));
                    let (name, value) = (Bytes::from(key.clone()), Bytes::from(text.clone()));
                    match what {
                        0 => { drafts.set(name, Some(value)); now.insert(key, Some(text)); }
                        1 => { drafts.set(name, None); now.insert(key, None); }
                        2 => {
                            let longer = format!("{}{text}", held.unwrap_or_default());
                            let expected = if longer.len() > 8 { Err(RequestFailure::TooLarge(longer.len() as u64)) } else { Ok(longer.len() as u64) };
                            prop_assert_eq!(drafts.append(name, value).unwrap(), expected);
                            if expected.is_ok() { now.insert(key, Some(longer)); }
                        }
                        3 => {
                            let number = incremented(held.map(Bytes::from), 7);
                            prop_assert_eq!(drafts.increment(name, 7).unwrap(), number);
                            if let Ok(number) = number { now.insert(key, Some(number.to_string())); }
                        }
                        _ => {
                            let found = drafts.found(&name, Version::new(2, 2)).unwrap();
                            prop_assert_eq!(found.map(|(_, value)| value), held.clone().map(Bytes::from));
                            prop_assert_eq!(drafts.length(&name).unwrap(), held.map(|held| held.len()));
                        }
                    }
                }
                if stays { all = now } else { drafts.undo() }
            }
            let len: usize = all.values().flatten().map(String::len).sum();
            let (mut changes, mut joins) = drafts.finish(len).unwrap();
            while !joins.is_empty() {
                joins.step(step, &mut changes);
            }
            prop_assert_eq!(model(&changes), all);
        }
    }

    #[test]
    fn values_beyond_the_limit_are_refused() {
        let mut drafts =
            Drafts::new(10, |_: &Bytes| Ok(Some(Held { version: Version::new(1, 1), value: Some("12345".into()) })));
        drafts.append("a".into(), "6".into()).unwrap().unwrap();
        drafts.append("b".into(), "6".into()).unwrap().unwrap();
        assert_eq!(drafts.finish(11).unwrap_err(), 12);
    }
}
