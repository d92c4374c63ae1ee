//! The calls of a handle.

use bytes::Bytes;

use super::{
    Append, CompareAndSwap, Delete, Get, GetDelete, GetMany, Increment, Put, Record, Resolution, RunScript, Scan,
    ScanHashed, Watch, WriteBatch,
    batch::Batch,
    handle::Kv,
    keep::{copy, pair},
    script::Script,
    write,
};
use crate::{Error, Refusal, RequestId, Version, error::Unknown};

impl Kv {
    /// Reads a key.
    ///
    /// In mode [`ReadMode::Strong`](crate::ReadMode::Strong) the first poll tries [`get_local`](Self::get_local), and is ready at once if that
    /// serves; otherwise a member is asked.
    ///
    /// # Errors
    /// When awaited, [`Error::Refused`] or [`Error::NotApplied`].
    pub fn get<'a, K: AsRef<[u8]> + ?Sized>(&'a self, key: &'a K) -> Get<'a> {
        Get::new(self, key.as_ref())
    }

    /// Gives a key a value. Returns, when awaited, once the write is on all serving members.
    ///
    /// # Errors
    /// When awaited, any [`Error`]. A call dropped before its end leaves an unknown outcome: use its
    /// timeout instead.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Put {
        let (key, value) = pair(key, value);
        Put::new(self, key, value)
    }

    /// Makes a key absent, whether it was there or not.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Delete {
        Delete::new(self, copy(key))
    }

    /// Gives a key a value if its newest version is `expected`; [`Version::NONE`]: if it is absent.
    ///
    /// The inner result says whether it was: a [`Conflict`](super::Conflict) is an answer, not a fault.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Version,
        value: impl Into<Bytes>,
    ) -> CompareAndSwap {
        let (key, value) = pair(key, value);
        CompareAndSwap::new(self, key, expected, Some(value))
    }

    /// Makes a key absent if its newest version is `expected`.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn compare_and_delete(&self, key: impl AsRef<[u8]>, expected: Version) -> CompareAndSwap {
        CompareAndSwap::new(self, copy(key), expected, None)
    }

    /// Appends to a value; an absent key counts as empty.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn append(&self, key: impl AsRef<[u8]>, value: impl Into<Bytes>) -> Append {
        Append::new(self, copy(key), value.into())
    }

    /// Adds to a number, which is kept as decimal text; an absent key counts as 0.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Refusal::NotANumber`] and [`Refusal::Overflow`] if it can't be done.
    pub fn increment(&self, key: impl AsRef<[u8]>, by: i64) -> Increment {
        Increment::new(self, copy(key), by)
    }

    /// Makes a key absent, and says what it held.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get_delete(&self, key: impl AsRef<[u8]>) -> GetDelete {
        GetDelete::new(self, copy(key))
    }

    /// Writes a batch: all of it or nothing. Its keys belong to one chain.
    ///
    /// The inner result says whether its requirements held.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Refusal::ManyChains`] and [`Refusal::BatchSize`].
    pub fn write(&self, batch: Batch) -> WriteBatch {
        WriteBatch::new(self, batch)
    }

    /// Runs a script: its steps one after the other, with nothing between them, and says what came of each group.
    ///
    /// The inner result says whether the script's own requirements held; [`Conflict::step`](super::Conflict::step) counts those. The groups'
    /// outcomes are told once, to this call: if the answer is lost on its way and a retry finds the record, the outcome is
    /// [`Unknown::ResultsLost`], and the script has run.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Refusal::ManyChains`], [`Refusal::BatchSize`], and [`Refusal::ResultsTooLarge`] if it would
    /// tell more bytes than a value may have.
    pub fn run(&self, script: Script) -> RunScript {
        RunScript::new(self, script)
    }

    /// Reads keys of one chain, all at one point of its history: never half of a batch.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`Refusal::ManyChains`] and [`Refusal::BatchSize`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> GetMany {
        GetMany::new(self, keys.into_iter().map(copy).collect())
    }

    /// The keys that begin with `prefix`, in the order of their bytes, with their values.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Scan {
        Scan::new(self, copy(prefix))
    }

    /// A page of all keys in the order of a fixed 64-bit hash, beginning at `cursor`; 0: at the first.
    ///
    /// The cursor is a position in that order and no more: no member keeps anything for it, each knows it, and it is good
    /// for ever. Who goes on with what each page names until that is 0 meets every key that is there throughout at least
    /// once; one that comes or goes meanwhile perhaps. It is no snapshot. When keys are first asked for in this order, a
    /// member has to bring its own into it, some thousands a call: until then pages are empty, and name the same cursor.
    ///
    /// # Errors
    /// When awaited, [`Error::Refused`] or [`Error::NotApplied`].
    pub fn scan_hashed(&self, cursor: u64) -> ScanHashed {
        ScanHashed::new(self, cursor)
    }

    /// Every committed change of the keys that begin with `prefix`, once and in order, from now on or from a given
    /// position.
    pub fn watch(&self, prefix: impl AsRef<[u8]>) -> Watch {
        Watch::new(self, copy(prefix))
    }

    /// An id for a write of `key` that is to be made later: store it first where the write must happen once even if this
    /// process ends meanwhile. The chain keeps what it needs for that until it has to make room for others.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::NotApplied`]; nothing of yours was applied.
    pub async fn new_request_id(&self, key: impl AsRef<[u8]>) -> Result<RequestId, Error> {
        self.router.new_request_id(key.as_ref(), self.timeout).await
    }

    /// What became of a write whose outcome is unknown. The answer is true for ever: what wasn't applied by now never
    /// will be.
    ///
    /// # Errors
    /// Any [`Error`]; then nothing is settled yet, and this may be called again.
    pub async fn resolve(&self, id: RequestId) -> Result<Resolution, Error> {
        let outcome = match self.router.resolve(id, self.timeout).await {
            Ok(answer) => write::outcome(answer, id),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(Ok(done)) => Ok(Resolution::Applied(Record::new(done.version, done.result))),
            Ok(Err(conflict)) => Ok(Resolution::Conflict(conflict)),
            // Its record says that it changed nothing.
            Err(Error::Refused {
                reason:
                    Refusal::Barred
                    | Refusal::NotANumber
                    | Refusal::Overflow
                    | Refusal::ResultsTooLarge { .. }
                    | Refusal::UpdateTooLarge { .. },
                ..
            }) => Ok(Resolution::NeverApplied),
            Err(Error::OutcomeUnknown { reason: Unknown::SessionExpired, .. }) => Ok(Resolution::Forgotten),
            Err(error) => Err(error),
        }
    }
}
