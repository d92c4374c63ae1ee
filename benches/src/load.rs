//! Checked reads and writes, with any number in flight.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use artillery_ddata::Kv;
use bytes::Bytes;

use crate::throughput::crew::spread;

/// The default length of a value, in bytes.
pub const VALUE: usize = 1000;

/// The key with this number.
pub fn key(n: usize) -> Bytes {
    Bytes::from(format!("key/{n:08}"))
}

/// The value with this number, of at least 9 bytes. No two values are equal.
pub fn value(n: u64, len: usize) -> Bytes {
    let mut value = vec![n as u8; len];
    value[..8].copy_from_slice(&n.to_le_bytes());
    value.into()
}

/// Whether these bytes are [`value`] `n`, by their first and last bytes.
pub fn holds(bytes: &[u8], n: u64, len: usize) -> bool {
    bytes.len() == len && bytes[..8] == n.to_le_bytes() && bytes[len - 1] == n as u8
}

/// A stride that is wide in memory, and coprime with the usual numbers of keys.
const STRIDE: usize = 7919;

/// The number of writers that fill the keys.
const FILLERS: usize = 50;

/// Keys, and the number of the last value of each.
///
/// Any error or wrong answer is a panic, since the figures of a failed run are worthless.
pub struct Load {
    names: Vec<Bytes>,
    last: Vec<AtomicU64>,
    /// The number of operations, from which the next writes and reads continue.
    done: AtomicU64,
}

impl Load {
    /// `keys` keys without values.
    pub fn new(keys: usize) -> Arc<Self> {
        let last = (0..keys).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { names: (0..keys).map(key).collect(), last, done: AtomicU64::new(0) })
    }

    /// A key, and the number of its value.
    pub fn nth(&self, n: usize) -> (&Bytes, u64) {
        let at = n.wrapping_mul(STRIDE) % self.names.len();
        (&self.names[at], self.last[at].load(Relaxed))
    }

    /// Gives every key a value.
    pub async fn fill(self: &Arc<Self>, kv: &Kv, copies: u32) {
        assert_eq!(self.names.len() % FILLERS, 0, "the keys can't be divided evenly among {FILLERS} writers");
        self.write(kv, copies, self.names.len(), FILLERS).await;
    }

    /// Writes `operations` values, `in_flight` at a time. Each key has one writer at a time, so its last value is
    /// known.
    pub async fn write(self: &Arc<Self>, kv: &Kv, copies: u32, operations: usize, in_flight: usize) {
        let first = self.done.fetch_add(operations as u64, Relaxed);
        let one = move |load: Arc<Self>, kv: Kv, n: usize| async move {
            let number = first + n as u64 + 1;
            let (row, writer) = (number as usize / in_flight, n % in_flight);
            load.put(&kv, copies, writer + in_flight * (row % (load.names.len() / in_flight)), number).await;
        };
        self.spread(kv, operations, in_flight, one).await;
    }

    /// Writes one value.
    pub async fn write_one(&self, kv: &Kv, copies: u32) {
        let number = self.done.fetch_add(1, Relaxed) + 1;
        self.put(kv, copies, (number as usize).wrapping_mul(STRIDE) % self.names.len(), number).await;
    }

    async fn put(&self, kv: &Kv, copies: u32, at: usize, number: u64) {
        let done = kv.put(&self.names[at], value(number, VALUE)).await;
        let done = done.unwrap_or_else(|error| panic!("a write failed: {error}"));
        assert_eq!(done.copies, copies, "a write is on too few members");
        self.last[at].store(number, Relaxed);
    }

    /// Reads `operations` keys, `in_flight` at a time. No caller may write concurrently.
    pub async fn read(self: &Arc<Self>, kv: &Kv, operations: usize, in_flight: usize) {
        let first = self.done.fetch_add(operations as u64, Relaxed) as usize;
        let one = move |load: Arc<Self>, kv: Kv, n: usize| async move { load.read_one(&kv, first + n).await };
        self.spread(kv, operations, in_flight, one).await;
    }

    /// Reads one key.
    pub async fn read_one(&self, kv: &Kv, n: usize) {
        let (key, number) = self.nth(n);
        let read = kv.get(key).await.unwrap_or_else(|error| panic!("a read failed: {error}"));
        assert!(read.value().is_some_and(|value| holds(value, number, VALUE)), "a read returned a wrong value");
    }

    /// Reads every key, which must hold its last value.
    pub async fn verify(self: &Arc<Self>, kv: &Kv) {
        self.read(kv, self.names.len(), 64).await;
    }

    /// Distributes operations over `callers` callers, each with one operation in flight.
    async fn spread<F>(
        self: &Arc<Self>,
        kv: &Kv,
        operations: usize,
        callers: usize,
        one: impl Fn(Arc<Self>, Kv, usize) -> F + Clone + Send + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        let (load, kv) = (self.clone(), kv.clone());
        let one = move |n| {
            let done = one(load.clone(), kv.clone(), n);
            async move {
                done.await;
                Ok(())
            }
        };
        spread(0..callers, callers, operations, one).await.unwrap_or_else(|error| panic!("{error}"));
    }
}
