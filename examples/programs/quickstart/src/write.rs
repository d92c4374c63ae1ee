//! Writes, from every node.

use artillery_ddata::Node;
use artillery_programs::{exit::Failure, story::Story};
use tokio::task::JoinSet;

use super::ledger::{Acked, Ledger};

const PER_NODE: usize = 100;

/// Writes keys at every node. Nodes other than the head forward their writes to it.
pub(super) async fn everywhere(story: &Story, nodes: &[Node], ledger: &mut Ledger) -> Result<(), Failure> {
    let mut writers = JoinSet::new();
    for node in nodes {
        let kv = node.kv();
        let name = node.name().to_owned();
        writers.spawn(async move {
            let mut acked = Vec::new();
            for number in 0..PER_NODE {
                let (key, value) = (format!("{name}/{number}"), format!("{number}, written at {name}"));
                let done = kv.put(&key, value.clone()).await?;
                acked.push((key, Acked { version: done.version, value }));
            }
            Ok::<_, artillery_ddata::Error>(acked)
        });
    }
    while let Some(acked) = writers.join_next().await {
        for (key, acked) in acked.map_err(Failure::failed)?? {
            ledger.add(&key, acked);
        }
    }
    let count = ledger.acked();
    story.say(&format!("Each node accepted {PER_NODE} writes: the head ordered them, the tail committed all {count}."));
    Ok(())
}
