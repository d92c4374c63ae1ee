//! Changes of a part of a value, and of decimal numbers.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{Changed, Draft, Drafts, ReadKey, UndoStep};
use crate::{
    Expiry,
    api::{ExpireIf, MAX_DECIMAL_BYTES, Ttl, decimal_sum},
    replica::head::resolve::may_expire,
    store::StoreError,
    types::update::RequestFailure,
};

impl Draft {
    /// Removes the bytes from `at` on, and returns them.
    fn split_off(&mut self, at: usize) -> VecDeque<Bytes> {
        let (mut before, mut begin) = (0, 0);
        while let Some(piece) = self.pieces.get(before)
            && begin + piece.len() <= at
        {
            (before, begin) = (before + 1, begin + piece.len());
        }
        let mut rest = self.pieces.split_off(before);
        if let Some(first) = rest.front_mut()
            && at > begin
        {
            self.pieces.push_back(first.split_to(at - begin));
        }
        self.len = self.len.min(at);
        rest
    }

    /// Replaces the bytes from one offset to another, without the latter. Returns the replaced bytes.
    pub(super) fn replace(&mut self, from: usize, to: usize, new: impl IntoIterator<Item = Bytes>) -> VecDeque<Bytes> {
        let rest = self.split_off(to);
        let old = self.split_off(from);
        self.pieces.extend(new);
        self.pieces.extend(rest);
        self.len = self.pieces.iter().map(Bytes::len).sum();
        old
    }
}

impl<R: ReadKey> Drafts<R> {
    /// Replaces the bytes of a value from `offset` on, which zeros extend up to there. Empty bytes change nothing.
    /// Returns the new length.
    pub(in crate::replica::head::resolve) fn set_range(
        &mut self,
        key: Bytes,
        offset: u64,
        bytes: Bytes,
        ttl: Ttl,
    ) -> Result<Result<u64, RequestFailure>, StoreError> {
        let len = self.length(&key)?.unwrap_or(0);
        if bytes.is_empty() {
            return Ok(Ok(len as u64));
        }
        let end = offset.saturating_add(bytes.len() as u64);
        let limit = self.terms.limit as u64;
        let (Ok(offset), true) = (usize::try_from(offset), end <= limit) else {
            return Ok(Err(RequestFailure::TooLarge(end)));
        };
        // Many such steps would allocate many values before their sum is checked.
        self.zeros = self.zeros.saturating_add(offset.saturating_sub(len));
        if self.zeros > self.terms.most {
            return Ok(Err(RequestFailure::TooLarge(self.zeros as u64)));
        }
        let expires = self.expiry_after(&key, ttl)?;
        let zeros = Some(Bytes::from(vec![0; offset.saturating_sub(len)])).filter(|zeros| !zeros.is_empty());
        let (from, to) = (offset.min(len), (offset + bytes.len()).min(len));
        let new = zeros.into_iter().chain([bytes]);
        let len = if let Some(Changed::Set(draft)) = self.changed.get_mut(&key) {
            let (before, expired) = (draft.len, draft.expires);
            let old = draft.replace(from, to, new);
            draft.expires = expires;
            let to = draft.len - (before - to);
            self.undo.push(UndoStep::Replace { key, from, to, old, expires: expired });
            draft.len
        } else {
            let value = self.stored(&key)?.and_then(|held| held.value).unwrap_or_default();
            let mut draft = Draft::new(value, expires);
            draft.replace(from, to, new);
            let len = draft.len;
            self.put(key, Changed::Set(draft));
            len
        };
        Ok(Ok(len as u64))
    }

    /// Adds to a decimal number. Returns the new number.
    pub(in crate::replica::head::resolve) fn increment_float(
        &mut self,
        key: Bytes,
        by: &[u8],
        ttl: Ttl,
    ) -> Result<Result<Bytes, RequestFailure>, StoreError> {
        let before = match self.length(&key)? {
            // A longer value isn't a number, so it isn't assembled.
            Some(len) if len > MAX_DECIMAL_BYTES => return Ok(Err(RequestFailure::NotANumber)),
            _ => self.found(&key)?.map(|(_, value)| value),
        };
        let sum = match decimal_sum(before.as_deref(), by) {
            Ok(sum) => Bytes::from(sum),
            Err(failure) => return Ok(Err(failure)),
        };
        if sum.len() > self.terms.limit {
            return Ok(Err(RequestFailure::TooLarge(sum.len() as u64)));
        }
        let expires = self.expiry_after(&key, ttl)?;
        self.put(key, Changed::Set(Draft::new(sum.clone(), expires)));
        Ok(Ok(sum))
    }

    /// Deletes a key if it may expire now. Returns whether it was deleted.
    pub(in crate::replica::head::resolve) fn expire_now(
        &mut self,
        key: Bytes,
        when: Option<ExpireIf>,
    ) -> Result<bool, StoreError> {
        let now = Some(Expiry::after(self.terms.stamp, 0));
        let expires = self.expiry(&key)?.is_some_and(|before| may_expire(when, before, now));
        if expires {
            self.delete(key);
        }
        Ok(expires)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Version, replica::head::resolve::Terms, store::Held};

    const TERMS: Terms =
        Terms { at: Version::new(2, 2), stamp: 100, limit: 40, most: 1000, keeps_failed_groups: false };

    fn drafts(value: &'static str) -> Drafts<impl ReadKey> {
        Drafts::new(TERMS, move |_: &Bytes| Ok(Some(Held::new(Version::new(1, 1), Some(value.into())))))
    }

    fn value(drafts: &mut Drafts<impl ReadKey>) -> Vec<u8> {
        drafts.found(&"k".into()).unwrap().map(|(_, value)| value.to_vec()).unwrap_or_default()
    }

    proptest! {
        #[test]
        fn ranges_are_replaced_and_restored(
            stored in prop::sample::select(vec!["", "a", "stored value"]),
            kept in prop::collection::vec((0..20_usize, "[a-z]{0,6}"), 0..5),
            undone in prop::collection::vec((0..20_usize, "[a-z]{0,6}"), 0..5),
        ) {
            let mut drafts = drafts(stored);
            let mut model = stored.as_bytes().to_vec();
            let mut restored = model.clone();
            for (group, ranges) in [(0, kept), (1, undone)] {
                drafts.begin();
                for (offset, text) in ranges {
                    if !text.is_empty() {
                        model.resize(model.len().max(offset + text.len()), 0);
                        model[offset..offset + text.len()].copy_from_slice(text.as_bytes());
                    }
                    let len = drafts.set_range("k".into(), offset as u64, text.into(), Ttl::Usual).unwrap();
                    prop_assert_eq!(len, Ok(model.len() as u64));
                }
                if group == 0 {
                    restored.clone_from(&model);
                }
            }
            let before = format!("{:?}", drafts.changed);
            prop_assert_eq!(value(&mut drafts), model, "{}", before);
            drafts.undo();
            prop_assert_eq!(value(&mut drafts), restored);
        }
    }

    #[test]
    fn longer_values_and_other_texts_are_refused() {
        let mut drafts = drafts("1.50");
        let at = |offset| (Bytes::from("k"), offset, Bytes::from("xy"), Ttl::Usual);
        for offset in [39, u64::MAX] {
            let (key, offset, bytes, ttl) = at(offset);
            let failure = RequestFailure::TooLarge(offset.saturating_add(2));
            assert_eq!(drafts.set_range(key, offset, bytes, ttl).unwrap(), Err(failure));
        }
        let mut add = |by: &[u8]| drafts.increment_float("k".into(), by, Ttl::Usual).unwrap();
        assert_eq!(add(b"0.25"), Ok("1.75".into()));
        assert_eq!(add(b"x"), Err(RequestFailure::NotANumber));
        assert_eq!(add(b"-inf"), Err(RequestFailure::Overflow));
        assert_eq!(add(b"1e100"), Err(RequestFailure::TooLarge(101)));
        assert_eq!(value(&mut drafts), b"1.75");
    }

    #[test]
    fn a_key_that_expires_now_is_deleted() {
        let mut drafts = drafts("1");
        assert!(!drafts.expire_now("k".into(), Some(ExpireIf::Set)).unwrap());
        assert!(!drafts.expire_now("k".into(), Some(ExpireIf::SetAndSooner)).unwrap());
        assert!(!drafts.expire_now("k".into(), Some(ExpireIf::Later)).unwrap());
        drafts.expire("k".into(), Some(50), None).unwrap();
        assert!(drafts.expire_now("k".into(), Some(ExpireIf::SetAndSooner)).unwrap());
        assert_eq!(drafts.length(&"k".into()).unwrap(), None);
        assert!(!drafts.expire_now("k".into(), None).unwrap());
    }
}
