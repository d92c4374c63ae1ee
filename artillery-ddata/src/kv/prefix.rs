//! Deletes the keys that begin with a prefix.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Entry, Group, GroupOutcome, Scan, WriteError};
use crate::{
    Error, Frontier, Kv, ReadMode, Refusal, Script, Session, api::Expected, control::chain_of, error::Unknown,
    rpc::router::from_now,
};

/// The number of keys per step.
const STEP: usize = 256;

/// Deletes the keys whose newest version is from before the call. A key that is written during the call stays.
pub(super) async fn delete(kv: &Kv, prefix: Bytes) -> Result<u64, Error> {
    let begun = newest(kv, &prefix).await?;
    let chains = kv.router.routing(from_now(kv.timeout)).await?.chains.len() as u32;
    let mut scan = kv.scan(&prefix).mode(ReadMode::Strong);
    let mut deleted = 0;
    loop {
        let entries = some_entries(&mut scan).await?;
        if entries.is_empty() {
            return Ok(deleted);
        }
        let mut scripts = BTreeMap::<_, Vec<Group>>::new();
        for Entry { key, version, .. } in entries {
            let chain = chain_of(&key, chains);
            if version.sequence <= begun.floor(chain) {
                let group = Group::new().require(&key, Expected::Version(version)).delete(&key);
                scripts.entry(chain).or_default().push(group);
            }
        }
        for groups in scripts.into_values() {
            deleted += run(kv, groups).await?;
        }
    }
}

/// A position of each chain that may have such keys: at or after every update committed before the call.
async fn newest(kv: &Kv, prefix: &Bytes) -> Result<Frontier, Error> {
    let session = Session::new();
    kv.scan(prefix).mode(ReadMode::Strong).session(&session).limit(1).next().await.transpose()?;
    Ok(session.frontier())
}

/// Returns how many keys were deleted.
async fn run(kv: &Kv, groups: Vec<Group>) -> Result<u64, Error> {
    let count = groups.len() as u64;
    match kv.run(groups.into_iter().collect::<Script>()).await {
        Ok(done) => Ok(done.result.iter().filter(|outcome: &&GroupOutcome| outcome.is_ok()).count() as u64),
        // The script ran, and the count of its deletions is lost.
        Err(WriteError::Call(Error::OutcomeUnknown { reason: Unknown::ResultsLost(_), .. })) => Ok(count),
        Err(WriteError::Call(error)) => Err(error),
        Err(WriteError::Conflict(_)) => Err(Error::refused(Refusal::OtherRequest, None)),
    }
}

async fn some_entries(scan: &mut Scan) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::new();
    while entries.len() < STEP
        && let Some(entry) = scan.next().await
    {
        entries.push(entry?);
    }
    Ok(entries)
}
