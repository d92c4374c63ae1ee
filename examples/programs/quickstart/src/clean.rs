//! Clean reads: every node must serve some of them from its own state, and all with the right value.

use artillery_ddata::{
    Node,
    kv::{ReadPath, ReadState},
};
use artillery_programs::{exit::Failure, story::Story};

use super::ledger::Ledger;

/// Reads every key at every node. Returns, for each node, the number of reads that it served from its own state.
pub(super) async fn everywhere(story: &Story, nodes: &[Node], ledger: &Ledger) -> Result<Vec<u64>, Failure> {
    let mut counts = Vec::new();
    for node in nodes {
        counts.push(at(node, ledger).await?);
    }
    let told: Vec<_> = nodes.iter().zip(&counts).map(|(node, count)| format!("{} {count}", node.name())).collect();
    story.say(&format!("Strong reads of clean keys, each answered by the node itself: {}.", told.join(", ")));
    match nodes.iter().zip(&counts).find(|(_, count)| **count == 0) {
        Some((node, _)) => Err(Failure::failed(format!("{} served no read by itself", node.name()))),
        None => Ok(counts),
    }
}

async fn at(node: &Node, ledger: &Ledger) -> Result<u64, Failure> {
    let kv = node.kv();
    let mut local = 0;
    for key in ledger.keys() {
        let read = kv.get(key).await?;
        let expected = ledger.last(key).map(|(_, value)| value.as_bytes());
        if read.value().map(AsRef::as_ref) != expected {
            let found = (read.version(), read.value());
            return Err(Failure::failed(format!("{key} at {}: found {found:?}", node.name())));
        }
        let itself = read.served.node == node.id().node && read.served.way == ReadPath::Local;
        local += u64::from(itself && read.state == ReadState::Clean);
    }
    Ok(local)
}
