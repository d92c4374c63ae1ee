//! `ctl incr` and `ctl append`.

use std::fmt::Display;

use artillery_ddata::{Kv, kv::Committed};
use artillery_programs::exit::{self, Failure};
use serde_json::Value;

use super::output::{Output, done_with};

pub(super) async fn incr(kv: &Kv, key: &str, by: i64, output: Output) -> Result<u8, Failure> {
    let done = kv.increment(key, by).await?;
    show(key, &done, "value", output);
    Ok(exit::DONE)
}

pub(super) async fn append(kv: &Kv, key: &str, value: &str, output: Output) -> Result<u8, Failure> {
    let done = kv.append(key, value.to_owned()).await?;
    show(key, &done, "length", output);
    Ok(exit::DONE)
}

fn show<T: Display + Copy + Into<Value>>(key: &str, done: &Committed<T>, result: &str, output: Output) {
    if output.json {
        let mut object = done_with(key, done);
        object[result] = done.result.into();
        output.object(&object);
    } else {
        output.bytes(done.result.to_string().as_bytes());
    }
}
