//! `ctl get`.

use artillery_ddata::{Client, Kv, ReadMode, kv::ReadState};
use artillery_programs::exit::{self, Failure};
use serde_json::json;

use super::{
    args,
    output::{Output, with_expiry, with_value},
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
        let (version, role) = (read.version().to_string(), read.served.place.to_string());
        let word = args::word(mode);
        let object =
            json!({ "key": key, "version": version, "read": word, "state": state, "node": node, "role": role });
        let object = with_value(object, read.value().map(AsRef::as_ref));
        output.object(&with_expiry(object, read.expires_in()));
    } else if let Some(value) = read.value() {
        output.bytes(value);
    } else {
        eprintln!("{key}: not found");
    }
    Ok(if read.value().is_some() { exit::DONE } else { exit::FAILED })
}
