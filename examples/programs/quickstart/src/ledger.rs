//! The acknowledged writes: a cluster that loses one of them has broken its promise.

use std::collections::BTreeMap;

use artillery_ddata::Version;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Acked {
    pub(super) version: Version,
    pub(super) value: String,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    writes: BTreeMap<String, BTreeMap<Version, String>>,
}

impl Ledger {
    pub(super) fn add(&mut self, key: &str, acked: Acked) {
        self.writes.entry(key.to_owned()).or_default().insert(acked.version, acked.value);
    }

    pub(super) fn acked(&self) -> usize {
        self.writes.values().map(BTreeMap::len).sum()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.writes.keys().map(String::as_str)
    }

    pub(super) fn last(&self, key: &str) -> Option<(Version, &str)> {
        self.writes.get(key)?.last_key_value().map(|(version, value)| (*version, value.as_str()))
    }

    /// The number of acknowledged writes of `key` up to the version that was read; 0 if a different value was
    /// acknowledged at that version.
    pub(super) fn kept(&self, key: &str, version: Version, value: Option<&[u8]>) -> usize {
        let Some(writes) = self.writes.get(key) else { return 0 };
        match writes.get(&version) {
            Some(written) if value != Some(written.as_bytes()) => 0,
            _ => writes.range(..=version).count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_and_foreign_values_keep_less() {
        let mut ledger = Ledger::default();
        for sequence in [5, 7] {
            ledger.add("k", Acked { version: Version::new(1, sequence), value: format!("v{sequence}") });
        }
        assert_eq!((ledger.acked(), ledger.last("k")), (2, Some((Version::new(1, 7), "v7"))));
        assert_eq!(ledger.kept("k", Version::new(1, 7), Some(b"v7")), 2);
        assert_eq!(ledger.kept("k", Version::new(1, 7), Some(b"v5")), 0);
        assert_eq!(ledger.kept("k", Version::new(1, 5), Some(b"v5")), 1);
        assert_eq!(ledger.kept("k", Version::NONE, None), 0);
        assert_eq!(ledger.kept("other", Version::new(1, 7), Some(b"v7")), 0);
    }
}
