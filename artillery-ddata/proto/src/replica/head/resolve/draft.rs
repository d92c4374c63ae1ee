//! Drafts of values, in pieces that are joined at the end. So the steps that append to a value don't copy it each time.

mod edits;

use std::collections::{BTreeMap, VecDeque};

use bytes::{Buf, Bytes, BytesMut};
use smallvec::SmallVec;

use super::{ReadKey, Terms, decimal, holds, incremented, may_expire};
use crate::{
    Expiry, Version,
    api::{Expected, ExpireIf, Ttl},
    store::{Held, StoreError},
    types::update::{KeyChange, RequestFailure},
};

#[derive(Clone, Hash, Debug, Default)]
struct Draft {
    pieces: VecDeque<Bytes>,
    len: usize,
    expires: Option<Expiry>,
}

impl Draft {
    fn new(value: Bytes, expires: Option<Expiry>) -> Self {
        Self { len: value.len(), pieces: [value].into(), expires }
    }

    fn push(&mut self, more: Bytes, end: End) {
        self.len += more.len();
        if !more.is_empty() || self.pieces.is_empty() {
            match end {
                End::Front => self.pieces.push_front(more),
                End::Back => self.pieces.push_back(more),
            }
        }
    }

    /// Removes bytes at one end, until this many are left.
    fn shorten(&mut self, len: usize, end: End) {
        while self.len > len
            && let Some(piece) = match end {
                End::Front => self.pieces.front_mut(),
                End::Back => self.pieces.back_mut(),
            }
        {
            let cut = piece.len().min(self.len - len);
            match end {
                End::Front => piece.advance(cut),
                End::Back => piece.truncate(piece.len() - cut),
            }
            self.len -= cut;
            if piece.is_empty() && self.pieces.len() > 1 {
                match end {
                    End::Front => self.pieces.pop_front(),
                    End::Back => self.pieces.pop_back(),
                };
            }
        }
    }

    /// Joins the pieces into one, and returns the value.
    fn whole(&mut self) -> Bytes {
        if self.pieces.len() > 1 {
            let mut value = BytesMut::with_capacity(self.len);
            self.pieces.iter().for_each(|piece| value.extend_from_slice(piece));
            self.pieces = [value.freeze()].into();
        }
        self.pieces.front().cloned().unwrap_or_default()
    }
}

/// An end of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Front,
    Back,
}

/// The combined change of a key by the steps that have run.
#[derive(Clone, Debug)]
enum Changed {
    Deleted,
    Set(Draft),
    /// Only the expiry has changed: the value is in the store.
    Renewed(Option<Expiry>),
}

#[derive(Debug)]
enum UndoStep {
    /// Restores the earlier change of the key; `None`: it had none.
    Put(Bytes, Option<Changed>),
    /// Removes bytes from an end of the key's value, until it has this length, and restores its expiry.
    Shorten(Bytes, usize, End, Option<Expiry>),
    /// Restores the expiry of the key's value.
    Expire(Bytes, Option<Expiry>),
    /// Restores the old bytes of the key's value, which were replaced by those between two offsets, and its expiry.
    Replace { key: Bytes, from: usize, to: usize, old: VecDeque<Bytes>, expires: Option<Expiry> },
}

/// The changes of the steps so far, on top of the store.
#[derive(Debug)]
pub(super) struct Drafts<R> {
    read: R,
    terms: Terms,
    changed: BTreeMap<Bytes, Changed>,
    /// The zeros by which steps have extended values, in bytes.
    zeros: usize,
    /// The steps since [`begin`](Self::begin).
    undo: Vec<UndoStep>,
}

impl<R: ReadKey> Drafts<R> {
    pub(super) fn new(terms: Terms, read: R) -> Self {
        Self { read, terms, changed: BTreeMap::new(), zeros: 0, undo: Vec::new() }
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
                UndoStep::Shorten(key, len, end, expires) => {
                    if let Some(Changed::Set(draft)) = self.changed.get_mut(&key) {
                        draft.shorten(len, end);
                        draft.expires = expires;
                    }
                }
                UndoStep::Expire(key, expires) => {
                    if let Some(Changed::Set(draft)) = self.changed.get_mut(&key) {
                        draft.expires = expires;
                    }
                }
                UndoStep::Replace { key, from, to, old, expires } => {
                    if let Some(Changed::Set(draft)) = self.changed.get_mut(&key) {
                        draft.replace(from, to, old);
                        draft.expires = expires;
                    }
                }
            }
        }
    }

    /// The key in the store, unless a step has set or deleted it.
    fn stored(&self, key: &Bytes) -> Result<Option<Held>, StoreError> {
        match self.changed.get(key) {
            None => (self.read)(key),
            Some(&Changed::Renewed(expires)) => Ok((self.read)(key)?.map(|held| Held { expires, ..held })),
            Some(Changed::Set(_) | Changed::Deleted) => Ok(None),
        }
    }

    /// The version of the key; [`Version::NONE`]: the key is absent. This write's own version if it has changed it.
    pub(super) fn version(&self, key: &Bytes) -> Result<Version, StoreError> {
        Ok(match self.changed.get(key) {
            Some(Changed::Set(_) | Changed::Renewed(_)) => self.terms.at,
            Some(Changed::Deleted) => Version::NONE,
            None => (self.read)(key)?.map_or(Version::NONE, |held| held.version),
        })
    }

    pub(super) fn length(&self, key: &Bytes) -> Result<Option<usize>, StoreError> {
        if let Some(Changed::Set(draft)) = self.changed.get(key) {
            return Ok(Some(draft.len));
        }
        Ok(self.stored(key)?.and_then(|held| held.value).map(|value| value.len()))
    }

    pub(super) fn found(&mut self, key: &Bytes) -> Result<Option<(Version, Bytes)>, StoreError> {
        let (at, stored) = (self.terms.at, self.stored(key)?);
        Ok(match self.changed.get_mut(key) {
            Some(Changed::Set(draft)) => Some((at, draft.whole())),
            Some(Changed::Renewed(_)) => stored.and_then(|held| Some((at, held.value?))),
            Some(Changed::Deleted) | None => stored.and_then(|held| Some((held.version, held.value?))),
        })
    }

    /// The expiry of the key; the outer `None`: it is absent.
    pub(super) fn expiry(&self, key: &Bytes) -> Result<Option<Option<Expiry>>, StoreError> {
        if let Some(Changed::Set(draft)) = self.changed.get(key) {
            return Ok(Some(draft.expires));
        }
        Ok(self.stored(key)?.map(|held| held.expires))
    }

    /// Whether a condition holds.
    pub(super) fn holds(&mut self, key: &Bytes, expected: &Expected) -> Result<Result<(), Version>, StoreError> {
        let version = self.version(key)?;
        // A value of another length isn't assembled.
        let is_long = |wanted: &Bytes| Ok::<_, StoreError>(self.length(key)? == Some(wanted.len()));
        let value = match expected.value() {
            Some(wanted) if is_long(wanted)? => self.found(key)?.map(|(_, value)| value),
            _ => None,
        };
        Ok(if holds(expected, version, value.as_ref()) { Ok(()) } else { Err(version) })
    }

    pub(super) fn delete(&mut self, key: Bytes) {
        self.put(key, Changed::Deleted);
    }

    pub(super) fn set(&mut self, key: Bytes, value: Bytes, ttl: Ttl) -> Result<(), StoreError> {
        let expires = if ttl == Ttl::Usual { None } else { self.expiry_after(&key, ttl)? };
        self.put(key, Changed::Set(Draft::new(value, expires)));
        Ok(())
    }

    /// The expiry of the key after a write that changes its value.
    fn expiry_after(&self, key: &Bytes, ttl: Ttl) -> Result<Option<Expiry>, StoreError> {
        let after = |ttl| Some(Expiry::after(self.terms.stamp, ttl));
        Ok(match ttl {
            Ttl::Set(ttl) => after(ttl),
            Ttl::IfNew(ttl) => self.expiry(key)?.unwrap_or_else(|| after(ttl)),
            Ttl::Usual | Ttl::Keep => self.expiry(key)?.flatten(),
        })
    }

    fn put(&mut self, key: Bytes, changed: Changed) {
        let before = self.changed.insert(key.clone(), changed);
        self.undo.push(UndoStep::Put(key, before));
    }

    /// Appends to a value, or puts bytes in front of it. Returns the new length.
    pub(super) fn extend(
        &mut self,
        key: Bytes,
        more: Bytes,
        end: End,
        ttl: Ttl,
    ) -> Result<Result<u64, RequestFailure>, StoreError> {
        let len = self.length(&key)?.unwrap_or(0) + more.len();
        if len > self.terms.limit {
            return Ok(Err(RequestFailure::TooLarge(len as u64)));
        }
        let expires = self.expiry_after(&key, ttl)?;
        if let Some(Changed::Set(draft)) = self.changed.get_mut(&key) {
            self.undo.push(UndoStep::Shorten(key, draft.len, end, draft.expires));
            draft.push(more, end);
            draft.expires = expires;
        } else {
            let before = self.stored(&key)?.and_then(|held| held.value);
            let mut draft = Draft { expires, ..Draft::default() };
            before.into_iter().filter(|value| !value.is_empty()).for_each(|value| draft.push(value, End::Back));
            draft.push(more, end);
            self.put(key, Changed::Set(draft));
        }
        Ok(Ok(len as u64))
    }

    /// Adds to a number. Returns the new number.
    pub(super) fn increment(
        &mut self,
        key: Bytes,
        by: i64,
        ttl: Ttl,
    ) -> Result<Result<i64, RequestFailure>, StoreError> {
        // A longer value isn't a number, so it isn't assembled.
        const MAX_NUMBER_BYTES: usize = 20;
        let before = match self.length(&key)? {
            Some(len) if len > MAX_NUMBER_BYTES => return Ok(Err(RequestFailure::NotANumber)),
            _ => self.found(&key)?.map(|(_, value)| value),
        };
        let number = match incremented(before, by) {
            Ok(number) => number,
            Err(failure) => return Ok(Err(failure)),
        };
        let expires = self.expiry_after(&key, ttl)?;
        self.put(key, Changed::Set(Draft::new(decimal(number), expires)));
        Ok(Ok(number))
    }

    /// Sets the expiry of a key. Returns whether it was changed.
    pub(super) fn expire(&mut self, key: Bytes, ttl: Option<u64>, when: Option<ExpireIf>) -> Result<bool, StoreError> {
        let expires = ttl.map(|ttl| Expiry::after(self.terms.stamp, ttl));
        let Some(before) = self.expiry(&key)?.filter(|&before| may_expire(when, before, expires)) else {
            return Ok(false);
        };
        if let Some(Changed::Set(draft)) = self.changed.get_mut(&key) {
            draft.expires = expires;
            self.undo.push(UndoStep::Expire(key, before));
        } else {
            self.put(key, Changed::Renewed(expires));
        }
        Ok(true)
    }

    /// Sets another key to the value and expiry of this one. Returns whether this key is present.
    pub(super) fn copy(&mut self, key: &Bytes, to: Bytes) -> Result<bool, StoreError> {
        let Some(expires) = self.expiry(key)? else { return Ok(false) };
        let Some((_, value)) = self.found(key)? else { return Ok(false) };
        self.put(to, Changed::Set(Draft::new(value, expires)));
        Ok(true)
    }

    /// Returns all changes, or the sum of their values' lengths if it exceeds `most` bytes.
    pub(super) fn finish(self) -> Result<(SmallVec<[KeyChange; 1]>, Joins), usize> {
        let len = |changed: &Changed| if let Changed::Set(draft) = changed { draft.len } else { 0 };
        let len = self.changed.values().map(len).sum();
        if len > self.terms.most {
            return Err(len);
        }
        let mut joins = Joins::default();
        let change = |(at, (key, changed)): (usize, (Bytes, Changed))| match changed {
            Changed::Deleted => KeyChange::new(key, None),
            Changed::Set(draft) => {
                let expires = draft.expires;
                KeyChange::new(key, Some(joins.add(at, draft))).expiring(expires)
            }
            Changed::Renewed(expires) => KeyChange::renewal(key, expires),
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
        let (mut draft, mut joins) = (Draft::new(before, None), Self::default());
        draft.push(more, End::Back);
        (joins.add(0, draft), joins)
    }

    /// Returns the value, or a placeholder until the value is assembled.
    fn add(&mut self, change: usize, mut draft: Draft) -> Bytes {
        if draft.pieces.len() < 2 {
            return draft.whole();
        }
        let value = BytesMut::with_capacity(draft.len);
        self.0.push(Join { change, pieces: draft.pieces, value });
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

    type Model = BTreeMap<String, Option<Modelled>>;

    #[derive(Clone, PartialEq, Debug)]
    struct Modelled {
        text: String,
        expires: Option<Expiry>,
    }

    const TERMS: Terms =
        Terms { at: Version::new(2, 2), stamp: 100, limit: 8, most: usize::MAX, keeps_failed_groups: false };
    const LATER: Expiry = Expiry::after(100, 50);

    /// What changes make of a store in which "a" is "1", expiring at 120, and all other keys are absent.
    fn model(changes: &[KeyChange]) -> Model {
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let held = |change: &KeyChange| {
            let value = if change.renews { Some("1".to_owned()) } else { change.value.as_ref().map(text) };
            value.map(|text| Modelled { text, expires: change.expires })
        };
        changes.iter().map(|change| (text(&change.key), held(change))).collect()
    }

    fn first() -> Modelled {
        Modelled { text: "1".to_owned(), expires: Some(Expiry::at(120)) }
    }

    proptest! {
        #[test]
        fn steps_do_what_they_say_and_groups_are_undone(
            groups in prop::collection::vec((any::<bool>(), prop::collection::vec((0..9_u8, "[abc]", "[0-9]{0,3}"), 0..6)), 0..6),
            step in 1..8_usize,
        ) {
            let store = |key: &Bytes| Ok((&key[..] == b"a").then(|| {
                Held { version: Version::new(1, 1), value: Some("1".into()), expires: first().expires }
            }));
            let mut drafts = Drafts::new(TERMS, store);
            let mut all = Model::new();
            for (stays, steps) in groups {
                drafts.begin();
                let mut now = all.clone();
                for (what, key, text) in steps {
                    let held = now.get(&key).cloned().unwrap_or_else(|| (key == "a").then(first));
                    let expires = held.as_ref().and_then(|held| held.expires);
                    let (name, value) = (Bytes::from(key.clone()), Bytes::from(text.clone()));
                    match what {
                        0 => {
                            drafts.set(name, value, Ttl::Usual).unwrap();
                            now.insert(key, Some(Modelled { text, expires: None }));
                        }
                        1 => {
                            drafts.delete(name);
                            now.insert(key, None);
                        }
                        2 | 3 => {
                            let before = held.map(|held| held.text).unwrap_or_default();
                            let (longer, end) =
                                if what == 2 { (format!("{before}{text}"), End::Back) } else { (format!("{text}{before}"), End::Front) };
                            let len = longer.len() as u64;
                            let expected = if len > 8 { Err(RequestFailure::TooLarge(len)) } else { Ok(len) };
                            prop_assert_eq!(drafts.extend(name, value, end, Ttl::Usual).unwrap(), expected);
                            if expected.is_ok() {
                                now.insert(key, Some(Modelled { text: longer, expires }));
                            }
                        }
                        4 => {
                            let is_new = held.is_none();
                            let number = incremented(held.map(|held| held.text.into()), 7);
                            prop_assert_eq!(drafts.increment(name, 7, Ttl::IfNew(50)).unwrap(), number);
                            if let Ok(number) = number {
                                let expires = if is_new { Some(LATER) } else { expires };
                                now.insert(key, Some(Modelled { text: number.to_string(), expires }));
                            }
                        }
                        5 => {
                            prop_assert_eq!(drafts.expire(name, Some(50), None).unwrap(), held.is_some());
                            if let Some(held) = held {
                                now.insert(key, Some(Modelled { expires: Some(LATER), ..held }));
                            }
                        }
                        6 => {
                            prop_assert_eq!(drafts.expire(name, None, None).unwrap(), expires.is_some());
                            if let Some(held) = held.filter(|_| expires.is_some()) {
                                now.insert(key, Some(Modelled { expires: None, ..held }));
                            }
                        }
                        7 => {
                            prop_assert_eq!(drafts.copy(&name, "c".into()).unwrap(), held.is_some());
                            if held.is_some() {
                                now.insert("c".to_owned(), held);
                            }
                        }
                        _ => {
                            let found = drafts.found(&name).unwrap();
                            prop_assert_eq!(found.map(|(_, value)| value), held.clone().map(|held| held.text.into()));
                            prop_assert_eq!(drafts.length(&name).unwrap(), held.clone().map(|held| held.text.len()));
                            prop_assert_eq!(drafts.expiry(&name).unwrap(), held.map(|held| held.expires));
                        }
                    }
                }
                if stays { all = now } else { drafts.undo() }
            }
            let (mut changes, mut joins) = drafts.finish().unwrap();
            while !joins.is_empty() {
                joins.step(step, &mut changes);
            }
            prop_assert_eq!(model(&changes), all);
        }
    }

    #[test]
    fn many_values_are_not_extended_before_their_sum_is_checked() {
        let terms = Terms { limit: 10, most: 20, ..TERMS };
        let mut drafts = Drafts::new(terms, |_: &Bytes| Ok(None));
        let mut set = |key: &'static str| drafts.set_range(key.into(), 9, "x".into(), Ttl::Usual).unwrap();
        assert_eq!([set("a"), set("b")], [Ok(10), Ok(10)]);
        assert_eq!(set("c"), Err(RequestFailure::TooLarge(27)));
    }

    #[test]
    fn values_beyond_the_limit_are_refused() {
        let terms = Terms { limit: 10, most: 11, ..TERMS };
        let mut drafts = Drafts::new(terms, |_: &Bytes| Ok(Some(Held::new(Version::new(1, 1), Some("12345".into())))));
        drafts.extend("a".into(), "6".into(), End::Back, Ttl::Usual).unwrap().unwrap();
        drafts.extend("b".into(), "6".into(), End::Front, Ttl::Usual).unwrap().unwrap();
        assert_eq!(drafts.finish().unwrap_err(), 12);
    }
}
