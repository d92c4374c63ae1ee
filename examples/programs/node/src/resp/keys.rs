//! Commands about all keys: KEYS, and FLUSHALL if the operator allows it.

use std::collections::BTreeSet;

use artillery_ddata::Kv;
use bytes::Bytes;
use tokio::{sync::Semaphore, task::coop, time::timeout};

use super::{
    COMMAND_TIMEOUT, Limits,
    ask::lower,
    failure::{SYNTAX, told_of_read},
    frame::Words,
    glob,
    reply::Reply,
};

/// KEYS is refused above this number of keys.
pub(super) const MAX_KEYS: usize = 100_000;
/// The number of keys that one page of a scan examines.
const PAGE: u32 = 10_000;

/// `KEYS pattern`. Only one is executed at a time, since the keys are collected before the answer takes its permits.
pub(super) async fn matching(kv: &Kv, limits: &Limits, turn: &Semaphore, pattern: &Bytes) -> Reply {
    let alone = async {
        let _turn = turn.acquire().await;
        found(kv, limits, pattern).await
    };
    match timeout(COMMAND_TIMEOUT, alone).await {
        Ok(Ok(keys)) => Reply::List(keys.into_iter().map(Reply::Value).collect()),
        Ok(Err(reply)) => reply,
        Err(_) => Reply::Error("BUSY another KEYS is executed, or the keys are not sorted yet: use SCAN".into()),
    }
}

async fn found(kv: &Kv, limits: &Limits, pattern: &Bytes) -> Result<BTreeSet<Bytes>, Reply> {
    let (mut cursor, mut met, mut bytes, mut found) = (0, 0, 0, BTreeSet::new());
    loop {
        let page = kv.scan_hashed(cursor).limit(PAGE).await.map_err(|error| told_of_read(kv, b"", &error))?;
        met += page.keys.len();
        for key in page.keys {
            // Matching may take long, and other tasks share the thread.
            coop::consume_budget().await;
            // A page may repeat keys of the one before it.
            if glob::matches(pattern, &key) {
                bytes += key.len();
                found.insert(key);
            }
        }
        if met > MAX_KEYS {
            return Err(too_many());
        }
        if bytes > limits.value_bytes {
            let most = limits.value_bytes;
            return Err(Reply::error(format_args!("KEYS would return more than {most} bytes: use SCAN")));
        }
        if page.next == 0 {
            return Ok(found);
        }
        cursor = page.next;
    }
}

pub(super) fn too_many() -> Reply {
    Reply::error(format_args!("KEYS is refused above {MAX_KEYS} keys: use SCAN"))
}

/// Checks `FLUSHALL [ASYNC | SYNC]`.
pub(super) fn check_flush(name: &str, words: &Words, limits: &Limits) -> Result<(), Reply> {
    if !limits.allow_flush {
        let name = name.to_uppercase();
        return Err(Reply::error(format_args!("{name} is refused: delete keys by name, or start with --allow-flush")));
    }
    match &words[1..] {
        [] => Ok(()),
        [option] if matches!(lower(option).as_str(), "async" | "sync") => Ok(()),
        _ => Err(Reply::error(SYNTAX)),
    }
}

/// Deletes the keys that exist when it begins, in steps.
pub(super) async fn flush(kv: &Kv) -> Reply {
    match kv.delete_prefix("").await {
        Ok(_) => Reply::OK,
        // Steps before the failed one have deleted keys.
        Err(error) => Reply::Error(format!("UNKNOWN some keys may remain, send it again: {error}").into()),
    }
}
