//! The content of a key, and the effect of single steps on it.

use bytes::Bytes;

use crate::{Version, api::Expected};

/// The content of a key. The version is unknown after a write whose version no answer showed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Content {
    pub(super) value: Option<Bytes>,
    pub(super) version: Option<Version>,
}

pub(super) fn matches(content: &Content, expected: Version) -> bool {
    if expected.is_none() {
        return content.value.is_none();
    }
    content.value.is_some() && content.version == Some(expected)
}

pub(super) fn holds(content: &Content, expected: &Expected) -> bool {
    match expected {
        Expected::Absent => content.value.is_none(),
        Expected::Present => content.value.is_some(),
        Expected::Version(version) => matches(content, *version),
        Expected::Value(value) => content.value.as_ref() == Some(value),
        Expected::NotValue(value) => content.value.as_ref() != Some(value),
        // An unknown condition is treated as failed.
        _ => false,
    }
}

pub(super) fn appended(value: Option<&Bytes>, more: &Bytes) -> Bytes {
    [value.map_or(&[][..], |value| value), more].concat().into()
}

pub(super) fn prepended(value: Option<&Bytes>, more: &Bytes) -> Bytes {
    [&more[..], value.map_or(&[][..], |value| value)].concat().into()
}

pub(super) fn number_of(value: Option<&Bytes>) -> Option<i64> {
    value.map_or(Some(0), |value| std::str::from_utf8(value).ok()?.parse().ok())
}

pub(super) fn incremented(value: Option<&Bytes>, by: i64) -> Option<Bytes> {
    Some(number_of(value)?.checked_add(by)?.to_string().into())
}

/// The value with these bytes from `offset` on. `None`: it would be larger than memory allows.
pub(super) fn with_range(value: Option<&Bytes>, offset: u64, bytes: &Bytes) -> Option<Bytes> {
    let offset = usize::try_from(offset).ok()?;
    let mut all = value.map_or_else(Vec::new, |value| value.to_vec());
    let len = all.len().max(offset.checked_add(bytes.len())?);
    all.resize(len, 0);
    all[offset..offset + bytes.len()].copy_from_slice(bytes);
    Some(all.into())
}
