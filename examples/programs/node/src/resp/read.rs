//! Reads.

use artillery_ddata::{
    Error, Kv,
    kv::{ReadPath, Versioned},
};
use bytes::Bytes;
use smallvec::SmallVec;

use super::{expiry::Unit, failure::told_of_read, reply::Reply};

#[derive(Debug, Clone)]
pub(super) struct Read {
    pub(super) what: What,
    pub(super) keys: SmallVec<[Bytes; 1]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Value,
    /// Part of the value, from one offset to another; negative offsets count from the end.
    Range(i64, i64),
    Length,
    /// The number of keys that exist.
    Count,
    Type,
    /// The values of all keys, from one snapshot.
    Values,
    /// Value, version, and whether a version query was needed.
    Version,
    /// When the key expires.
    Left(Unit),
    /// An error with this text if the key is present.
    Refused(&'static str),
}

/// The value and version of a key; `None` if it is absent.
pub(super) type Found = Option<Versioned<Bytes>>;

impl Read {
    pub(super) fn new(what: What, keys: SmallVec<[Bytes; 1]>) -> Self {
        Self { what, keys }
    }

    /// Whether the answer depends only on the value of a single key.
    pub(super) fn is_plain(&self) -> bool {
        self.keys.len() == 1 && !matches!(self.what, What::Version | What::Left(_))
    }

    /// The answer from this node's own state, if the node may give it at once.
    pub(super) fn here(&self, kv: &Kv) -> Option<Reply> {
        let [key] = self.keys.as_slice() else { return None };
        if let What::Left(_) = self.what {
            return None;
        }
        let found = kv.get_local(key).ok()?;
        Some(self.answer(&[found], false))
    }

    /// The answer, from this node or from another member.
    pub(super) async fn ask(&self, kv: &Kv) -> Result<Reply, Error> {
        if let (What::Left(unit), [key]) = (self.what, self.keys.as_slice()) {
            let read = kv.get(key).await?;
            return Ok(unit.answer(read.value().map(|_| read.expires_in())));
        }
        let (found, dirty) = match self.keys.as_slice() {
            [key] => kv.get(key).await.map(|read| {
                let dirty = read.served.way == ReadPath::Query;
                (vec![read.into_versioned()], dirty)
            })?,
            keys => kv.get_many(keys).await.map(|cut| (cut.entries, false))?,
        };
        Ok(self.answer(&found, dirty))
    }

    pub(super) fn told(&self, kv: &Kv, error: &Error) -> Reply {
        told_of_read(kv, self.keys.first().map_or(&[], |key| key), error)
    }

    pub(super) fn answer(&self, found: &[Found], dirty: bool) -> Reply {
        let first = found.first().and_then(Option::as_ref);
        let value = || first.map(|first| first.value.clone());
        match self.what {
            What::Value => Reply::found(value()),
            What::Range(from, to) => Reply::Value(value().map_or_else(Bytes::new, |value| part(&value, from, to))),
            What::Length => Reply::count(first.map_or(0, |first| first.value.len())),
            What::Count => Reply::count(found.iter().flatten().count()),
            What::Type => Reply::Word(if first.is_some() { "string" } else { "none" }),
            What::Values => {
                let value = |found: &Found| Reply::found(found.as_ref().map(|found| found.value.clone()));
                Reply::List(found.iter().map(value).collect())
            }
            What::Version => {
                let version = first.map_or(artillery_ddata::Version::NONE, |first| first.version);
                Reply::List(vec![Reply::found(value()), Reply::text(version.to_string()), Reply::flag(dirty)])
            }
            What::Refused(text) => first.map_or(Reply::Absent, |_| Reply::error(text)),
            // A found value carries no expiry: `ask` and the results of scripts answer this.
            What::Left(unit) => unit.answer(first.map(|_| None)),
        }
    }
}

/// The bytes from one offset to another, both included.
fn part(value: &Bytes, from: i64, to: i64) -> Bytes {
    let len = i64::try_from(value.len()).unwrap_or(i64::MAX);
    if from < 0 && to < 0 && from > to {
        return Bytes::new();
    }
    let place = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (from, to) = (place(from), place(to).min(len - 1));
    if from > to || len == 0 { Bytes::new() } else { value.slice(from as usize..=to as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_values_are_those_of_redis() {
        let value = Bytes::from_static(b"This is a string");
        let cases = [
            (0, 3, "This"),
            (-3, -1, "ing"),
            (0, -1, "This is a string"),
            (10, 100, "string"),
            (5, 3, ""),
            (-1, -5, ""),
            (100, 200, ""),
            (-100, 3, "This"),
            (i64::MIN, i64::MAX, "This is a string"),
        ];
        for (from, to, wanted) in cases {
            assert_eq!(part(&value, from, to), wanted, "{from} to {to}");
        }
        assert_eq!(part(&Bytes::new(), 0, -1), "");
    }
}
