//! `ctl watch`.

use artillery_ddata::{Frontier, Kv};
use artillery_programs::exit::{self, Failure};
use serde_json::{Map, Value, json};

use super::output::{Output, put_value};

/// Prints the keys of changes one to a line, with `--json` one object per change, until it is stopped or its output is
/// closed.
pub(super) async fn run(kv: &Kv, prefix: &str, from: Option<&Frontier>, output: Output) -> Result<u8, Failure> {
    let mut watch = kv.watch(prefix);
    if let Some(from) = from {
        watch = watch.from(from.clone());
    }
    while let Some(change) = watch.next().await {
        let change = change?;
        let is_written = if output.json {
            let mut object = Map::new();
            object.insert("key".to_owned(), json!(String::from_utf8_lossy(&change.key)));
            put_value(&mut object, change.value.as_deref());
            object.insert("version".to_owned(), json!(change.version.to_string()));
            object.insert("position".to_owned(), json!(watch.position().map(|position| position.to_string())));
            output.object(&Value::Object(object))
        } else {
            output.bytes(&change.key)
        };
        if !is_written {
            break;
        }
    }
    Ok(exit::DONE)
}
