//! `ctl reopen`: has a chain open again from what is left, when no store comes back of those that served it last.

use std::time::Duration;

use artillery_ddata::{
    ChainId, Client, NodeId,
    admin::{NotReopened, Reopened},
};
use artillery_programs::exit::{self, Failure};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::output::Output;

/// The longest wait for the answer. The leader waits until all nodes that live have told it what they hold.
const REOPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Until the next question for the leader of the configuration.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn run(client: &Client, chain: u32, timeout: Duration, output: Output) -> Result<u8, Failure> {
    let deadline = Instant::now() + timeout.max(REOPEN_TIMEOUT);
    let routing = client.refresh(timeout).await.unwrap_or_else(|_| client.routing());
    let mut asked: Vec<NodeId> = routing.nodes.keys().copied().collect();
    while let Some(node) = asked.pop() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match client.reopen(node, ChainId(chain), left).await {
            Ok(Ok(reopened)) => {
                let by = routing.nodes.get(&reopened.by.node);
                let name = by.map_or_else(|| reopened.by.node.to_string(), |by| by.name.clone());
                show(&reopened, &name, output);
                return Ok(exit::DONE);
            }
            Ok(Err(NotReopened::NotLeading { leader })) => {
                asked.extend(leader.map(|leader| leader.node).filter(|&leader| leader != node));
            }
            Ok(Err(why)) => return Err(Failure::failed(why)),
            // Another node may know the leader.
            Err(_) => {}
        }
        if asked.is_empty() {
            asked.extend(routing.nodes.keys());
            sleep(PAUSE).await;
        }
    }
    Err(Failure::failed("no node that decides was reached in time"))
}

fn show(reopened: &Reopened, name: &str, output: Output) {
    let Reopened { chain, epoch, by: _, last, known } = reopened;
    match output.json {
        true => output.object(&json!({
            "chain": chain.0,
            "epoch": epoch.0,
            "node": name,
            "last": last.to_string(),
            "known": known.0,
            "text": reopened.to_string(),
        })),
        false => output.bytes(format!("{reopened}. {name} serves it").as_bytes()),
    };
}
