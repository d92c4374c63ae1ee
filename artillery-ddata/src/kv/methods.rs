use std::time::Duration;

use bytes::Bytes;

use super::{
    Backup, Committed, Get, GetMany, GroupOutcome, OpenWatch, ReadDigest, Record, Resolution, Scan, ScanHashed, Taken,
    WriteCall, WriteError,
    batch::Batch,
    handle::Kv,
    keep::{copy, pair},
    prefix,
    script::Script,
    write::{self, SetsExpiry, SetsValue},
};
use crate::{
    Error, Refusal, RequestId, Version,
    api::{Ttl, Write, millis},
    error::Unknown,
};

impl Kv {
    /// Reads a key.
    ///
    /// In mode [`ReadMode::Strong`](crate::ReadMode::Strong) the first poll tries [`get_local`](Self::get_local). If
    /// that succeeds, the call is ready at once; otherwise it asks a member.
    ///
    /// # Errors
    /// When awaited, [`Error::Refused`] or [`Error::NotApplied`].
    pub fn get<'a, K: AsRef<[u8]> + ?Sized>(&'a self, key: &'a K) -> Get<'a> {
        Get::new(self, key.as_ref())
    }

    /// Sets a key's value. When awaited, returns once all serving members hold the write.
    ///
    /// # Errors
    /// When awaited, any [`Error`]. Dropping a call before it ends leaves its outcome unknown: set its timeout instead.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> WriteCall<Committed, Error, SetsValue> {
        let (key, value) = pair(key, value);
        self.write_call(Write::put(key, value))
    }

    /// Sets the value of a new key, and returns the key: the prefix, followed by the version of this write as 33 bytes.
    /// Keys of one prefix are in the order in which their writes were committed.
    ///
    /// If the cluster has several chains, the prefix must have a whole `{…}`, which decides the chain of its keys.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); [`Refusal::ManyChains`] if the prefix decides no chain.
    pub fn put_sequential(
        &self,
        prefix: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
    ) -> WriteCall<Committed<Bytes>, Error, SetsValue> {
        self.sequential_call(copy(prefix), value.into())
    }

    /// Lets a key expire after this length of chain time, and returns whether its expiry was changed: an absent key
    /// stays absent. The key gets a new version, and watches don't report it.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), except that full members refuse only values.
    pub fn expire(&self, key: impl AsRef<[u8]>, ttl: Duration) -> WriteCall<Committed<bool>, Error, SetsExpiry> {
        self.changed_call(Write::Expire { key: copy(key), ttl: Some(millis(ttl)), when: None })
    }

    /// Removes a key's expiry, and returns whether it had one.
    ///
    /// # Errors
    /// Those of [`expire`](Self::expire).
    pub fn persist(&self, key: impl AsRef<[u8]>) -> WriteCall<Committed<bool>> {
        self.changed_call(Write::Expire { key: copy(key), ttl: None, when: None })
    }

    /// Deletes the keys that begin with `prefix`, in steps, and returns how many. A key that is written after the call
    /// has begun stays. If it fails, some of the keys are deleted: call it again.
    ///
    /// # Errors
    /// Those of [`scan`](Self::scan) and [`delete`](Self::delete). The timeout of this handle applies to each step.
    pub async fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<u64, Error> {
        prefix::delete(self, copy(prefix)).await
    }

    /// Deletes a key. Deleting an absent key succeeds.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> WriteCall<Committed> {
        self.write_call(Write::Delete { key: copy(key) })
    }

    /// Sets a key's value if its newest version is `expected`; with [`Version::NONE`], if the key is absent.
    ///
    /// # Errors
    /// When awaited, [`WriteError::Conflict`] with the key's version if it is another one, and as [`WriteError::Call`]
    /// the errors of [`put`](Self::put).
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Version,
        value: impl Into<Bytes>,
    ) -> WriteCall<Committed, WriteError, SetsValue> {
        let (key, value) = pair(key, value);
        self.conditional_call(Write::compare_and_swap(key, expected, Some(value)))
    }

    /// Deletes a key if its newest version is `expected`.
    ///
    /// # Errors
    /// Those of [`compare_and_swap`](Self::compare_and_swap).
    pub fn compare_and_delete(&self, key: impl AsRef<[u8]>, expected: Version) -> WriteCall<Committed, WriteError> {
        self.conditional_call(Write::compare_and_swap(copy(key), expected, None))
    }

    /// Appends to a value, and returns the new length in bytes. An absent key is treated as empty.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn append(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
    ) -> WriteCall<Committed<u64>, Error, SetsValue> {
        self.length_call(Write::append(copy(key), value.into()))
    }

    /// Puts bytes in front of a value, and returns the new length in bytes. An absent key is treated as empty.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn prepend(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Bytes>,
    ) -> WriteCall<Committed<u64>, Error, SetsValue> {
        self.length_call(Write::Prepend { key: copy(key), value: value.into(), ttl: Ttl::Usual })
    }

    /// Adds to a number stored as decimal text, and returns the new number. An absent key is treated as 0.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); [`Refusal::NotANumber`] if the value isn't a decimal 64-bit integer,
    /// [`Refusal::Overflow`] if the sum doesn't fit one.
    pub fn increment(&self, key: impl AsRef<[u8]>, by: i64) -> WriteCall<Committed<i64>, Error, SetsValue> {
        self.number_call(Write::increment(copy(key), by))
    }

    /// Deletes a key, and returns its previous value.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn get_delete(&self, key: impl AsRef<[u8]>) -> WriteCall<Committed<Taken>> {
        self.taken_call(Write::GetDelete { key: copy(key) })
    }

    /// Writes a batch: all of it or nothing. Its keys must belong to one chain.
    ///
    /// # Errors
    /// When awaited, [`WriteError::Conflict`] if one of the batch's requirements doesn't hold, and as
    /// [`WriteError::Call`] the errors of [`put`](Self::put), those of [`increment`](Self::increment) if it increments
    /// a key, [`Refusal::ManyChains`] if its keys belong to several chains, and [`Refusal::BatchSize`] if it has no
    /// step or more than 4,096, including requirements.
    pub fn write(&self, batch: Batch) -> WriteCall<Committed, WriteError> {
        self.conditional_call(Write::Batch(batch.into_steps()))
    }

    /// Runs a script: its steps one after another, with no other write between them. The result has the outcome of each
    /// group. The chain doesn't keep these outcomes: if the answer is lost, a retry learns only that the script ran,
    /// and the call fails with [`Unknown::ResultsLost`].
    ///
    /// # Errors
    /// Those of [`write`](Self::write), except that a failed increment fails only its group; a conflict's
    /// [`step`](super::Conflict::step) is the index of the script's own requirement that doesn't hold.
    /// [`Refusal::ResultsTooLarge`] if the outcomes together are larger than the maximum size of a value; then the
    /// script changed nothing.
    pub fn run(&self, script: Script) -> WriteCall<Committed<Vec<GroupOutcome>>, WriteError> {
        self.script_call(Write::Script(script.into_inner()))
    }

    /// Reads several keys of one chain, all at one point of its history: the result never shows part of a batch.
    ///
    /// # Errors
    /// Those of [`get`](Self::get); [`Refusal::ManyChains`] if the keys belong to several chains,
    /// [`Refusal::BatchSize`] if no key or more than 4,096 are given, [`Refusal::ValueTooLarge`] if the values together
    /// are larger than the maximum size of one value.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> GetMany {
        GetMany::new(self, keys.into_iter().map(copy).collect())
    }

    /// Scans the keys that begin with `prefix`, in byte order, with their values.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Scan {
        Scan::new(self, copy(prefix))
    }

    /// Sums the records that begin with `prefix`, at one point of the history of each chain: to compare members with each
    /// other, a cluster with a copy, or with itself at another time.
    ///
    /// # Errors
    /// When awaited, those of [`scan`](Self::scan) with [`snapshot`](super::Scan::snapshot);
    /// [`Refusal::Unsupported`] if the members that it asked until its timeout run a release without digests.
    pub fn digest(&self, prefix: impl AsRef<[u8]>) -> ReadDigest {
        ReadDigest::new(self, copy(prefix))
    }

    /// Copies all data into a file, for [`backup::check`](crate::backup::check) and later use in another cluster.
    pub fn backup(&self) -> Backup {
        Backup::new(self)
    }

    /// Reads one page of all keys, in the order of a fixed 64-bit hash. The page begins at `cursor`; 0 is the start.
    ///
    /// A cursor is only a position in that order: members keep no state for it, every node accepts it, and it never
    /// expires. A caller that follows [`next`](super::KeyPage::next) until it is 0 gets every key that exists
    /// throughout at least once, and perhaps keys that are created or deleted during the scan. Pages don't form a
    /// snapshot. A member sorts the keys of a chain during the first calls, 1024 keys per call. Until all are sorted,
    /// its pages are empty and repeat the cursor, except that cursor 0 returns 1.
    ///
    /// # Errors
    /// When awaited, [`Error::Refused`] or [`Error::NotApplied`].
    pub fn scan_hashed(&self, cursor: u64) -> ScanHashed {
        ScanHashed::new(self, cursor)
    }

    /// Opens a [`Watch`](super::Watch) of the keys that begin with `prefix`. When awaited, returns once the watch has
    /// begun: it returns every change that is committed from then on, once and in the order of its chain. It can also
    /// begin at an earlier position ([`from`](OpenWatch::from)).
    ///
    /// # Errors
    /// When awaited, [`Error::Refused`] or [`Error::NotApplied`]; the reason is [`Refusal::OtherHistory`] if the given
    /// position or the session of this handle belongs to another history.
    pub fn watch(&self, prefix: impl AsRef<[u8]>) -> OpenWatch {
        OpenWatch::new(self, copy(prefix))
    }

    /// A new id for a later write of `key`. If a write must take effect once even if this process crashes, store the id
    /// durably before making the write under it. The chain remembers the id until its session is evicted
    /// (`limits.sessions_bytes`).
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::NotApplied`]; no key was changed.
    pub async fn new_request_id(&self, key: impl AsRef<[u8]>) -> Result<RequestId, Error> {
        self.router.new_request_id(key.as_ref(), self.timeout).await
    }

    /// Settles the unknown outcome of a write. The result is final: a write that has not been applied by now never will
    /// be.
    ///
    /// # Errors
    /// Any [`Error`]. The outcome may or may not have been settled; calling again is safe.
    pub async fn resolve(&self, id: RequestId) -> Result<Resolution, Error> {
        let answer = self.router.resolve(id, self.timeout).await;
        let error = match answer.map_err(WriteError::from).and_then(|answer| write::outcome(answer, id)) {
            Ok(done) => return Ok(Resolution::Applied(Record::new(done.version, done.result))),
            Err(WriteError::Conflict(conflict)) => return Ok(Resolution::Conflict(*conflict)),
            Err(WriteError::Call(error)) => error,
        };
        match error {
            // With these refusals the record shows that the write changed nothing.
            Error::Refused {
                reason:
                    Refusal::Barred
                    | Refusal::NotANumber
                    | Refusal::Overflow
                    | Refusal::ResultsTooLarge { .. }
                    | Refusal::UpdateTooLarge { .. }
                    | Refusal::ValueTooLarge { .. },
                ..
            } => Ok(Resolution::NeverApplied),
            Error::OutcomeUnknown { reason: Unknown::SessionExpired, .. } => Ok(Resolution::Forgotten),
            error => Err(error),
        }
    }
}
