//! `ctl watch`.

use artillery_ddata::{Frontier, Kv};
use artillery_programs::exit::{self, Failure};
use serde_json::json;

use super::output::{Output, with_key, with_value};

/// Prints one key per change and line, or with `--json` one object per change, until it is stopped or standard output
/// is closed.
pub(super) async fn run(kv: &Kv, prefix: &str, from: Option<&Frontier>, output: Output) -> Result<u8, Failure> {
    let watch = kv.watch(prefix);
    let mut watch = match from {
        Some(from) => watch.from(from.clone()).await?,
        None => watch.await?,
    };
    while let Some(change) = watch.next().await {
        let change = change?;
        let is_written = if output.json {
            let position = watch.position().to_string();
            let version = change.version.to_string();
            let object = json!({ "version": version, "expired": change.expired, "position": position });
            output.object(&with_value(with_key(object, &change.key), change.value.as_deref()))
        } else {
            output.bytes(&change.key)
        };
        if !is_written {
            break;
        }
    }
    Ok(exit::DONE)
}
