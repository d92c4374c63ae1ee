//! Checks the replies to clients against the log. Violations are [`Oracle::Claims`].

use artillery_proto::{
    Sequence, Version,
    api::WatchReply,
    store::{Held, ScanRecord},
};
use bytes::Bytes;

use super::{ChainOracle, Failure, Oracle};

/// Fails with [`Oracle::Claims`] unless `holds`.
fn claim(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::new(Oracle::Claims, what())) }
}

impl ChainOracle {
    /// Checks an answer about `key`: the update exists, wrote this value, and is committed if the answer claims so.
    pub fn check_claim(
        &self,
        key: &[u8],
        version: Version,
        value: Option<&Bytes>,
        committed: bool,
    ) -> Result<(), Failure> {
        let change = self.update(version).and_then(|update| update.changes.iter().find(|change| change.key == key));
        let wrote = change.is_some_and(|change| change.value.as_ref() == value);
        claim(wrote, || format!("version {version} of {key:?} was shown with a value that it never had"))?;
        if !committed {
            return Ok(());
        }
        let upto = self.committed_up_to();
        claim(version.sequence <= upto, || {
            format!("version {version} of {key:?} was reported as committed, but the tail is at {upto}")
        })?;
        let there = self.log.get(version.sequence.0.saturating_sub(1) as usize).map_or(version, |other| other.version);
        claim(there == version, || format!("version {version} of {key:?} was reported as committed, but {there} is"))
    }

    /// Checks that an answer with the state as of `as_of` shows no older state of `key`.
    pub fn check_not_behind(&self, key: &[u8], held: Option<&Held>, as_of: Sequence) -> Result<(), Failure> {
        let newest = self.newest(key, as_of).map_or(Version::NONE, |(version, _)| version);
        let fine = match held {
            Some(held) => held.version >= newest,
            None => {
                let later = self.places(key).iter().filter_map(|&at| self.log.get(at));
                let deleted = |update: &artillery_proto::types::update::Update| {
                    update.changes.iter().any(|change| change.key == key && change.is_deletion())
                };
                newest.is_none()
                    || later.filter(|update| update.version >= newest).any(deleted)
                    || self.ever_from(newest).any(deleted)
            }
        };
        claim(fine, || format!("{key:?} was shown as {held:?} as of {as_of}, but {newest} is newer"))
    }

    /// Checks that an answer shows exactly the state of `key` after the update `as_of`.
    pub fn check_exact(&self, key: &[u8], held: Option<&Held>, as_of: Sequence) -> Result<(), Failure> {
        let expected = self.newest(key, as_of).and_then(|(version, value)| Some((version, value?)));
        let found = held.and_then(|held| Some((held.version, held.value.as_ref()?)));
        claim(expected == found, || format!("{key:?} was shown as {found:?} at {as_of}, but was {expected:?}"))
    }

    /// Checks that `key` was listed if and only if it was present right after the update `as_of`.
    pub fn check_listed(&self, key: &[u8], listed: bool, as_of: Sequence) -> Result<(), Failure> {
        let there = self.newest(key, as_of).is_some_and(|(_, value)| value.is_some());
        claim(listed == there, || format!("{key:?} at {as_of}: listed {listed}, present {there}"))
    }

    /// Whether `key` has been present continuously since `since`.
    pub fn was_there_throughout(&self, key: &[u8], since: Sequence) -> bool {
        let later = self.places(key).iter().filter(|&&at| at as u64 >= since.0).filter_map(|&at| self.log.get(at));
        let deletes = |update: &artillery_proto::types::update::Update| {
            update.changes.iter().any(|change| change.key == key && change.is_deletion())
        };
        self.newest(key, since).is_some_and(|(_, value)| value.is_some()) && !later.into_iter().any(deletes)
    }

    /// Checks that `shown` contains each change of a prefix after `from` once and in order, up to the end of `shown`.
    /// The first `seen` changes of the update after `from` are skipped, since they were shown earlier.
    pub fn check_changes(&self, prefix: &[u8], from: Sequence, seen: u32, shown: &WatchReply) -> Result<(), Failure> {
        let behind = self.log.iter().skip(from.0 as usize);
        let upto = behind.take_while(|update| update.version.sequence <= shown.upto.next());
        let expected = upto.flat_map(|update| {
            let at = update.version.sequence;
            let upto = if at > shown.upto { shown.shown as usize } else { update.changes.len() };
            let seen = if at == from.next() { seen as usize } else { 0 };
            update.changes.iter().take(upto).skip(seen).map(move |change| (update.version, change))
        });
        let mut expected = expected.filter(|(_, change)| !change.renews && change.key.starts_with(prefix));
        let same = |record: &ScanRecord| {
            expected.next().is_some_and(|(version, change)| {
                (&record.key, record.held.version, &record.held.value) == (&change.key, version, &change.value)
            })
        };
        let is_whole = shown.records.iter().all(same) && expected.next().is_none();
        claim(is_whole && (shown.upto, shown.shown) >= (from, seen), || {
            format!(
                "a watcher of {prefix:?} after {from} and {seen} more changes was shown {shown:?}, \
                 which differs from the log"
            )
        })
    }

    /// Whether there are committed changes of a prefix after `from`.
    pub fn has_changes(&self, prefix: &[u8], from: Sequence) -> bool {
        let behind = self.log.iter().skip(from.0 as usize);
        let mut committed = behind.take_while(|update| update.version.sequence <= self.committed_up_to());
        let is_shown =
            |change: &artillery_proto::types::update::KeyChange| !change.renews && change.key.starts_with(prefix);
        committed.any(|update| update.changes.iter().any(is_shown))
    }

    /// The newest change of `key` up to `at_most`.
    fn newest(&self, key: &[u8], at_most: Sequence) -> Option<(Version, Option<&Bytes>)> {
        let places = self.places(key);
        let upto = places.partition_point(|&at| (at as u64) < at_most.0);
        let update = self.log.get(*places.get(upto.checked_sub(1)?)?)?;
        let change = update.changes.iter().rfind(|change| change.key == key)?;
        Some((update.version, change.value.as_ref()))
    }

    fn places(&self, key: &[u8]) -> &[usize] {
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }
}
