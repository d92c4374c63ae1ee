//! `ctl get`.

use artillery_ddata::{Kv, ReadMode, ReadState};
use serde_json::{Map, Value, json};

use super::output::{Output, put_value};
use crate::exit::{self, Failure};

pub(super) async fn run(kv: &Kv, key: &str, mode: ReadMode, output: Output) -> Result<u8, Failure> {
    let read = kv.get(key).mode(mode).await?;
    if output.json {
        let mut object = Map::new();
        object.insert("key".to_owned(), json!(key));
        put_value(&mut object, read.value().map(AsRef::as_ref));
        object.insert("version".to_owned(), json!(read.version().to_string()));
        object.insert("state".to_owned(), json!(if read.state == ReadState::Clean { "clean" } else { "dirty" }));
        object.insert("node".to_owned(), json!(read.served.node.to_string()));
        object.insert("role".to_owned(), json!(read.served.place.to_string()));
        output.object(&Value::Object(object));
    } else if let Some(value) = read.value() {
        output.bytes(value);
    } else {
        eprintln!("{key}: not found");
    }
    Ok(if read.value().is_some() { exit::DONE } else { exit::FAILED })
}
