//! Checks that no acknowledged write is lost at any node.

use artillery_ddata::Node;
use artillery_programs::{exit::Failure, story::Story};

use super::ledger::Ledger;

/// Reads every key back at every node. Returns the number of acknowledged writes that all nodes have kept.
pub(super) async fn everywhere(story: &Story, nodes: &[Node], ledger: &Ledger) -> Result<usize, Failure> {
    let mut verified = 0;
    for key in ledger.keys() {
        let mut kept = usize::MAX;
        for node in nodes {
            let read = node.kv().get(key).await?;
            kept = kept.min(ledger.kept(key, read.version(), read.value().map(AsRef::as_ref)));
        }
        verified += kept;
    }
    let (acked, nodes) = (ledger.acked(), nodes.len());
    story.say(&format!(
        "Of {acked} acknowledged writes, {verified} (or newer ones) were read back at all {nodes} nodes."
    ));
    Ok(verified)
}
