//! `ctl cas`.

use artillery_ddata::{Kv, Version};
use artillery_programs::exit::{self, Failure};
use serde_json::json;

use super::output::{Output, done_with};

pub(super) async fn run(kv: &Kv, key: &str, version: Version, value: &str, output: Output) -> Result<u8, Failure> {
    match kv.compare_and_swap(key, version, value.to_owned()).await? {
        Ok(done) => {
            if output.json {
                output.object(&done_with(key, &done));
            }
            Ok(exit::DONE)
        }
        Err(conflict) => {
            let current = conflict.version();
            if output.json {
                output.object(&json!({ "key": key, "conflict": current.to_string() }));
            } else {
                eprintln!("{key}: conflict, its version is {current}");
            }
            Ok(exit::CONFLICT)
        }
    }
}
