//! Deletes the keys that begin with a prefix.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Scan, WriteError, batch::Batch};
use crate::{Error, Kv, ReadMode, Refusal, control::chain_of, rpc::router::from_now};

/// The number of keys per step.
const STEP: usize = 256;

pub(super) async fn delete(kv: &Kv, prefix: Bytes) -> Result<u64, Error> {
    let mut deleted = 0;
    let mut scan = kv.scan(&prefix).mode(ReadMode::Strong);
    loop {
        let keys = some_keys(&mut scan).await?;
        if keys.is_empty() {
            return Ok(deleted);
        }
        deleted += keys.len() as u64;
        let chains = kv.router.routing(from_now(kv.timeout)).await?.chains.len() as u32;
        let mut batches = BTreeMap::<_, Batch>::new();
        for key in keys {
            let batch = batches.entry(chain_of(&key, chains)).or_default();
            *batch = std::mem::take(batch).delete(key);
        }
        for batch in batches.into_values() {
            match kv.write(batch).await {
                Ok(_) => {}
                Err(WriteError::Call(error)) => return Err(error),
                Err(WriteError::Conflict(_)) => return Err(Error::refused(Refusal::OtherRequest, None)),
            }
        }
    }
}

async fn some_keys(scan: &mut Scan) -> Result<Vec<Bytes>, Error> {
    let mut keys = Vec::new();
    while keys.len() < STEP
        && let Some(entry) = scan.next().await
    {
        keys.push(entry?.key);
    }
    Ok(keys)
}
