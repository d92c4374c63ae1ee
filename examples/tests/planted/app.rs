//! What correct applications have in common: reads that are repeated, and writes that are applied once.

use std::time::Duration;

use artillery_ddata::{
    Error, Kv, RequestId, Version,
    kv::{Committed, Conflict, Read, WriteCall, WriteError},
};
use bytes::Bytes;
use tokio::time::sleep;

/// The pause before a call is repeated.
const PAUSE: Duration = Duration::from_millis(20);

/// Reads a key, and repeats the read until it is answered.
pub(crate) async fn read(kv: &Kv, key: &str) -> Read<Bytes> {
    loop {
        match kv.get(key).await {
            Ok(read) => return read,
            Err(_) => sleep(PAUSE).await,
        }
    }
}

pub(crate) async fn exists(kv: &Kv, key: &str) -> bool {
    read(kv, key).await.value().is_some()
}

/// A text with its version. An absent key is an empty text.
pub(crate) async fn text(kv: &Kv, key: &str) -> (Version, String) {
    let read = read(kv, key).await;
    let text = read.value().map(|value| String::from_utf8(value.to_vec()).expect("the application writes text"));
    (read.version(), text.unwrap_or_default())
}

/// A number with its version. An absent key is 0.
pub(crate) async fn number(kv: &Kv, key: &str) -> (Version, i64) {
    let (version, text) = text(kv, key).await;
    (version, if text.is_empty() { 0 } else { text.parse().expect("the application writes numbers") })
}

/// Makes a write once, however often it must be repeated: always under the request id of the first attempt whose
/// outcome is unknown.
pub(crate) async fn once<T: 'static, K>(call: WriteCall<Committed<T>, Error, K>) -> Committed<T> {
    let mut id: Option<RequestId> = None;
    loop {
        let attempt = call.clone();
        match id.map_or(attempt.clone(), |id| attempt.request_id(id)).await {
            Ok(done) => return done,
            Err(Error::OutcomeUnknown { request_id, .. }) => id = Some(request_id),
            Err(_) => {}
        }
        sleep(PAUSE).await;
    }
}

/// Like [`once`], for a write with a condition.
pub(crate) async fn once_if<K>(call: WriteCall<Committed, WriteError, K>) -> Result<Committed, Conflict> {
    let mut id: Option<RequestId> = None;
    loop {
        let attempt = call.clone();
        match id.map_or(attempt.clone(), |id| attempt.request_id(id)).await.map_err(WriteError::into_conflict) {
            Ok(done) => return Ok(done),
            Err(Ok(conflict)) => return Err(conflict),
            Err(Err(Error::OutcomeUnknown { request_id, .. })) => id = Some(request_id),
            Err(Err(_)) => {}
        }
        sleep(PAUSE).await;
    }
}

/// Whether a write was applied, once its outcome is certain.
pub(crate) async fn was_applied(kv: &Kv, id: RequestId) -> bool {
    loop {
        match kv.resolve(id).await {
            Ok(artillery_ddata::kv::Resolution::Applied(_)) => return true,
            Ok(_) => return false,
            Err(_) => sleep(PAUSE).await,
        }
    }
}
