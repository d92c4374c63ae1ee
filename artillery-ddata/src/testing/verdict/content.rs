//! The content of a key, and the effect of single steps on it.

use bytes::Bytes;

use super::clock::Terms;
use crate::{
    Version,
    api::{Expected, ExpireIf, Ttl, decimal_sum},
};

/// The content of a key. The version is unknown after a write whose version no answer showed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Content {
    pub(super) value: Option<Bytes>,
    /// The key is present, but its value isn't known: it was copied from another key.
    pub(super) copied: bool,
    pub(super) version: Option<Version>,
    /// The first answer that may show that the key has expired. `None`: the key certainly has no expiry.
    pub(super) expires: Option<u64>,
}

/// The effect of a write, or of a step of one, on a key.
pub(super) enum Action<'a> {
    Put(&'a Bytes, Ttl),
    Delete,
    Append(&'a Bytes, Ttl),
    Prepend(&'a Bytes, Ttl),
    Increment(i64, Ttl),
    AddDecimal(&'a Bytes, Ttl),
    SetRange(u64, &'a Bytes, Ttl),
    Expire(Option<u64>, Option<ExpireIf>),
}

impl Content {
    pub(super) fn absent(version: Option<Version>) -> Self {
        Self { version, ..Self::default() }
    }

    /// A present key, whose value is that of another key.
    pub(super) fn copied(version: Option<Version>, expires: Option<u64>) -> Self {
        Self { value: Some(Bytes::new()), copied: true, version, expires }
    }

    /// The possible contents after an action: none if it fails. Those that it changes have the version of `terms`.
    pub(super) fn after(&self, action: &Action<'_>, terms: &Terms<'_>) -> Vec<Self> {
        let value = match action {
            Action::Put(value, _) => (*value).clone(),
            Action::Delete => return vec![Self::absent(Some(terms.at))],
            Action::Append(more, _) => appended(self.value.as_ref(), more),
            Action::Prepend(more, _) => prepended(self.value.as_ref(), more),
            // Whether a copied value is a number isn't known.
            Action::Increment(..) if self.copied => Bytes::new(),
            Action::Increment(by, _) => match incremented(self.value.as_ref(), *by) {
                Some(number) => number,
                None => return Vec::new(),
            },
            Action::AddDecimal(..) if self.copied => Bytes::new(),
            Action::AddDecimal(by, _) => match decimal_sum(self.value.as_deref(), by) {
                Ok(number) => number.into(),
                Err(_) => return Vec::new(),
            },
            Action::SetRange(offset, bytes, _) => match with_range(self.value.as_ref(), *offset, bytes) {
                Some(value) => value,
                None => return Vec::new(),
            },
            Action::Expire(ttl, when) => return self.renewed(*ttl, *when, terms),
        };
        let copied = self.copied && !matches!(action, Action::Put(..));
        vec![Self { value: Some(value), copied, version: Some(terms.at), expires: self.expiry_after(action, terms) }]
    }

    fn expiry_after(&self, action: &Action<'_>, terms: &Terms<'_>) -> Option<u64> {
        match action {
            Action::Put(_, Ttl::Usual) | Action::Delete | Action::Expire(..) => None,
            Action::Put(_, ttl)
            | Action::Append(_, ttl)
            | Action::Prepend(_, ttl)
            | Action::Increment(_, ttl)
            | Action::AddDecimal(_, ttl)
            | Action::SetRange(_, _, ttl) => {
                match ttl {
                    Ttl::Set(ttl) => Some(terms.end(*ttl)),
                    Ttl::IfNew(ttl) if self.value.is_none() => Some(terms.end(*ttl)),
                    Ttl::Usual | Ttl::Keep | Ttl::IfNew(_) => self.expires,
                    // An unknown one may let the key go at any time.
                    _ => Some(0),
                }
            }
        }
    }

    /// The contents after a step that sets the expiry: it may not be known whether its condition holds.
    fn renewed(&self, ttl: Option<u64>, when: Option<ExpireIf>, terms: &Terms<'_>) -> Vec<Self> {
        if self.value.is_none() {
            return vec![self.clone()];
        }
        let (may_change, may_stay) = may_renew(when, ttl.is_some(), self.expires.is_some());
        let expires = ttl.map(|ttl| terms.end(ttl));
        let changed = may_change.then(|| Self { version: Some(terms.at), expires, ..self.clone() });
        changed.into_iter().chain(may_stay.then(|| self.clone())).collect()
    }

    /// The content, if its value can be the one that answers showed at its version.
    pub(super) fn shown(self, seen: Option<&Bytes>) -> Option<Self> {
        match seen {
            None => Some(self),
            Some(seen) if self.copied => Some(Self { value: Some(seen.clone()), copied: false, ..self }),
            Some(seen) => (self.value.as_ref() == Some(seen)).then_some(self),
        }
    }

    /// The content, if its value can have this length.
    pub(super) fn of_length(self, length: Option<u64>) -> Option<Self> {
        let is_right = match (&self.value, length) {
            (Some(value), Some(length)) => self.copied || value.len() as u64 == length,
            (value, length) => value.is_none() && length.is_none(),
        };
        is_right.then_some(self)
    }

    /// The content, if its value can be this number.
    pub(super) fn of_number(self, number: i64) -> Option<Self> {
        if self.copied {
            return Some(Self { value: Some(number.to_string().into()), copied: false, ..self });
        }
        (number_of(self.value.as_ref()) == Some(number)).then_some(self)
    }
}

/// Whether a present key's expiry may change, and whether it may stay. The key may have an expiry, or certainly has none;
/// the new one may be "never".
fn may_renew(when: Option<ExpireIf>, is_set: bool, may_have: bool) -> (bool, bool) {
    match when {
        None => (is_set || may_have, !is_set),
        Some(ExpireIf::Unset | ExpireIf::Sooner) => (is_set, !is_set || may_have),
        Some(ExpireIf::Set | ExpireIf::Later) => (may_have, true),
        // An unknown condition may hold or not.
        Some(_) => (true, true),
    }
}

pub(super) fn matches(content: &Content, expected: Version) -> bool {
    if expected.is_none() {
        return content.value.is_none();
    }
    content.value.is_some() && content.version == Some(expected)
}

/// Whether a condition holds. `None`: it depends on a value that isn't known.
pub(super) fn holds(content: &Content, expected: &Expected) -> Option<bool> {
    match expected {
        Expected::Absent => Some(content.value.is_none()),
        Expected::Present => Some(content.value.is_some()),
        Expected::Version(version) => Some(matches(content, *version)),
        Expected::Value(_) | Expected::NotValue(_) if content.copied => None,
        Expected::Value(value) => Some(content.value.as_ref() == Some(value)),
        Expected::NotValue(value) => Some(content.value.as_ref() != Some(value)),
        // An unknown condition is treated as failed.
        _ => Some(false),
    }
}

fn appended(value: Option<&Bytes>, more: &Bytes) -> Bytes {
    [value.map_or(&[][..], |value| value), more].concat().into()
}

fn prepended(value: Option<&Bytes>, more: &Bytes) -> Bytes {
    [&more[..], value.map_or(&[][..], |value| value)].concat().into()
}

/// The number that the value is, in its only decimal form: without a plus sign or leading zeros.
fn number_of(value: Option<&Bytes>) -> Option<i64> {
    let Some(value) = value else { return Some(0) };
    let number: i64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    (*number.to_string().as_bytes() == **value).then_some(number)
}

fn incremented(value: Option<&Bytes>, by: i64) -> Option<Bytes> {
    Some(number_of(value)?.checked_add(by)?.to_string().into())
}

/// The value with these bytes from `offset` on. `None`: it would be larger than memory allows.
fn with_range(value: Option<&Bytes>, offset: u64, bytes: &Bytes) -> Option<Bytes> {
    let offset = usize::try_from(offset).ok()?;
    let mut all = value.map_or_else(Vec::new, |value| value.to_vec());
    let len = all.len().max(offset.checked_add(bytes.len())?);
    all.resize(len, 0);
    all[offset..offset + bytes.len()].copy_from_slice(bytes);
    Some(all.into())
}
