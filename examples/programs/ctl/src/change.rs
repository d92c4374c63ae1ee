//! `ctl put`, `ctl del`, `ctl cas`, `ctl incr` and `ctl append`.

use std::{fmt::Display, time::Duration};

use artillery_ddata::{Kv, Version, kv::Committed};
use artillery_programs::exit::{self, Failure};
use serde_json::{Value, json};

use super::output::{Output, done_with};

pub(super) async fn put(kv: &Kv, key: &str, value: &str, ttl: Option<Duration>, output: Output) -> Result<u8, Failure> {
    let mut call = kv.put(key, value.to_owned());
    if let Some(ttl) = ttl {
        call = call.ttl(ttl);
    }
    let done = call.await?;
    Ok(show(key, &done, output))
}

pub(super) async fn del(kv: &Kv, key: &str, output: Output) -> Result<u8, Failure> {
    let done = kv.delete(key).await?;
    Ok(show(key, &done, output))
}

pub(super) async fn cas(kv: &Kv, key: &str, version: Version, value: &str, output: Output) -> Result<u8, Failure> {
    let conflict = match kv.compare_and_swap(key, version, value.to_owned()).await {
        Ok(done) => return Ok(show(key, &done, output)),
        Err(error) => error.into_conflict()?.version(),
    };
    if output.json {
        output.object(&json!({ "key": key, "conflict": conflict.to_string() }));
    } else {
        eprintln!("{key}: conflict, its current version is {conflict}");
    }
    Ok(exit::CONFLICT)
}

pub(super) async fn incr(kv: &Kv, key: &str, by: i64, output: Output) -> Result<u8, Failure> {
    let done = kv.increment(key, by).await?;
    Ok(show_result(key, &done, "value", output))
}

pub(super) async fn append(kv: &Kv, key: &str, value: &str, output: Output) -> Result<u8, Failure> {
    let done = kv.append(key, value.to_owned()).await?;
    Ok(show_result(key, &done, "length", output))
}

fn show<T>(key: &str, done: &Committed<T>, output: Output) -> u8 {
    if output.json {
        output.object(&done_with(key, done));
    }
    exit::DONE
}

fn show_result<T: Display + Copy + Into<Value>>(key: &str, done: &Committed<T>, name: &str, output: Output) -> u8 {
    if output.json {
        let mut object = done_with(key, done);
        object[name] = done.result.into();
        output.object(&object);
    } else {
        output.bytes(done.result.to_string().as_bytes());
    }
    exit::DONE
}
