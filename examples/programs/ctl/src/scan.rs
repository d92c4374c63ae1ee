//! `ctl scan`.

use artillery_ddata::Kv;
use artillery_programs::exit::{self, Failure};
use serde_json::json;

use super::output::{Output, with_key, with_value};

/// Prints one key per line, or with `--json` one object per entry.
pub(super) async fn run(kv: &Kv, prefix: &str, output: Output) -> Result<u8, Failure> {
    let mut scan = kv.scan(prefix);
    while let Some(entry) = scan.next().await {
        let entry = entry?;
        if output.json {
            let object = with_key(json!({ "version": entry.version.to_string() }), &entry.key);
            output.object(&with_value(object, Some(&entry.value)));
        } else {
            output.bytes(&entry.key);
        }
    }
    Ok(exit::DONE)
}
