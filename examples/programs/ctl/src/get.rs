//! `ctl get`.

use artillery_ddata::{Client, Kv, ReadMode, kv::ReadState};
use artillery_programs::exit::{self, Failure};
use serde_json::{Map, Value, json};

use super::{
    args,
    output::{Output, put_value},
};

pub(super) async fn run(client: &Client, kv: &Kv, key: &str, mode: ReadMode, output: Output) -> Result<u8, Failure> {
    let read = kv.get(key).mode(mode).await?;
    let state = if read.state == ReadState::Clean { "clean" } else { "dirty" };
    let id = read.served.node;
    let node = client.routing().nodes.get(&id).map_or_else(|| id.to_string(), |node| node.name.clone());
    if !output.json && !matches!(mode, ReadMode::Strong | ReadMode::ThroughChain) {
        eprintln!("{} read: version {} at {node}, {state}", args::word(mode), read.version());
    }
    if output.json {
        let mut object = Map::new();
        object.insert("key".to_owned(), json!(key));
        put_value(&mut object, read.value().map(AsRef::as_ref));
        object.insert("version".to_owned(), json!(read.version().to_string()));
        object.insert("read".to_owned(), json!(args::word(mode)));
        object.insert("state".to_owned(), json!(state));
        object.insert("node".to_owned(), json!(node));
        object.insert("role".to_owned(), json!(read.served.place.to_string()));
        output.object(&Value::Object(object));
    } else if let Some(value) = read.value() {
        output.bytes(value);
    } else {
        eprintln!("{key}: not found");
    }
    Ok(if read.value().is_some() { exit::DONE } else { exit::FAILED })
}
