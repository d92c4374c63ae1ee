//! `ctl scan`.

use artillery_ddata::Kv;
use artillery_programs::exit::{self, Failure};
use serde_json::{Map, Value, json};

use super::output::{Output, put_value};

/// Prints keys one to a line, with `--json` one object per entry.
pub(super) async fn run(kv: &Kv, prefix: &str, output: Output) -> Result<u8, Failure> {
    let mut scan = kv.scan(prefix);
    while let Some(entry) = scan.next().await {
        let entry = entry?;
        if output.json {
            let mut object = Map::new();
            object.insert("key".to_owned(), json!(String::from_utf8_lossy(&entry.key)));
            put_value(&mut object, Some(&entry.value));
            object.insert("version".to_owned(), json!(entry.version.to_string()));
            output.object(&Value::Object(object));
        } else {
            output.bytes(&entry.key);
        }
    }
    Ok(exit::DONE)
}
