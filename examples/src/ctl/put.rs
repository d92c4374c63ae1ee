//! `ctl put`.

use artillery_ddata::Kv;
use serde_json::json;

use super::output::Output;
use crate::exit::{self, Failure};

pub(super) async fn run(kv: &Kv, key: &str, value: &str, output: Output) -> Result<u8, Failure> {
    let done = kv.put(key, value.to_owned()).await?;
    if output.json {
        output.object(&json!({ "key": key, "version": done.version.to_string() }));
    }
    Ok(exit::DONE)
}
