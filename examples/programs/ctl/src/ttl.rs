//! `ctl ttl`: shows, sets or removes the expiry of a key.

use std::time::Duration;

use artillery_ddata::{Kv, kv::Committed};
use artillery_programs::exit::{self, Failure};
use serde_json::json;

use super::output::{Output, done_with, millis, with_expiry};

/// Prints how long a key will stay.
pub(super) async fn show(kv: &Kv, key: &str, output: Output) -> Result<u8, Failure> {
    let read = kv.get(key).await?;
    let is_present = read.value().is_some();
    if output.json {
        let object = json!({ "key": key, "version": read.version().to_string() });
        output.object(&with_expiry(object, read.expires_in()));
    } else if is_present {
        let left = read.expires_in().map_or_else(|| "none".to_owned(), |left| millis(left).to_string());
        output.bytes(left.as_bytes());
    }
    Ok(ended(key, is_present, output))
}

pub(super) async fn set(kv: &Kv, key: &str, ttl: Duration, output: Output) -> Result<u8, Failure> {
    let done = kv.expire(key, ttl).await?;
    changed(key, &done, output);
    Ok(ended(key, done.result, output))
}

pub(super) async fn persist(kv: &Kv, key: &str, output: Output) -> Result<u8, Failure> {
    let done = kv.persist(key).await?;
    // Nothing was changed if the key is absent, or has no expiry.
    let is_present = done.result || kv.get(key).await?.value().is_some();
    changed(key, &done, output);
    Ok(ended(key, is_present, output))
}

fn changed(key: &str, done: &Committed<bool>, output: Output) {
    if output.json {
        let mut object = done_with(key, done);
        object["changed"] = done.result.into();
        output.object(&object);
    }
}

fn ended(key: &str, is_present: bool, output: Output) -> u8 {
    if is_present {
        return exit::DONE;
    }
    if !output.json {
        eprintln!("{key}: not found");
    }
    exit::FAILED
}
