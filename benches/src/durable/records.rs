//! Records with scattered keys of 16 bytes and values of 32 bytes.

use artillery_ddata::Client;
use artillery_proto::store::position;
use bytes::Bytes;

use crate::{
    load::{holds, value},
    throughput::{Failed, crew::spread},
};

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
/// Bytes of a value.
pub const VALUE_BYTES: usize = 32;

/// Writes in flight of one client that fills a store.
const FILLERS: usize = 1024;

/// The key with this number. Keys with consecutive numbers are far apart.
pub fn key(n: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&position(&n.to_le_bytes()).to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

/// The first value of the key with this number.
pub fn first_value(n: u64) -> Bytes {
    value(n, VALUE_BYTES)
}

/// Writes all records, through several clients with many writes in flight each.
pub async fn fill(clients: &[Client], records: u64) -> Result<(), Failed> {
    let kvs: Vec<_> = clients.iter().map(Client::kv).collect();
    let callers = FILLERS * kvs.len();
    let put = move |n: usize| {
        let kv = kvs[n % kvs.len()].clone();
        async move {
            kv.put(key(n as u64), first_value(n as u64)).await?;
            Ok(())
        }
    };
    spread(0..callers, callers, records as usize, put).await
}

/// Reads every `step`th record, which must have its first value.
pub async fn verify(client: &Client, records: u64, step: u64) -> Result<(), Failed> {
    let kv = client.kv();
    let read = move |n: usize| {
        let (kv, number) = (kv.clone(), n as u64 * step);
        async move {
            let read = kv.get(&key(number)).await?;
            let is_there = read.value().is_some_and(|value| holds(value, number, VALUE_BYTES));
            if is_there { Ok(()) } else { Err(format!("record {number} has a wrong value").into()) }
        }
    };
    spread(0..64, 64, (records / step.max(1)) as usize, read).await
}
