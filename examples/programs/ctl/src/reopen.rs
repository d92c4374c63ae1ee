//! `ctl reopen`: reopens a chain from the best surviving store, when none of its last members comes back.

use std::time::Duration;

use artillery_ddata::{
    ChainId, Client,
    admin::{AdminError, NotReopened, Reopened},
};
use artillery_programs::exit::{self, Failure};
use serde_json::json;
use tokio::time::Instant;

use super::{
    leader::{self, Said},
    output::Output,
};

/// The minimum timeout. The leader waits until all running nodes have reported what they hold.
const REOPEN_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn run(client: &Client, chain: u32, timeout: Duration, output: Output) -> Result<u8, Failure> {
    let deadline = Instant::now() + timeout.max(REOPEN_TIMEOUT);
    let routing = client.refresh(timeout).await.unwrap_or_else(|_| client.routing());
    let reopened =
        leader::ask(&routing, deadline, async |node, left| match client.reopen(node, ChainId(chain), left).await {
            Err(AdminError::Rejected(NotReopened::NotLeading { leader })) => Said::Elsewhere(leader),
            outcome => Said::once(outcome),
        })
        .await?;
    let by = routing.nodes.get(&reopened.by.node);
    let name = by.map_or_else(|| reopened.by.node.to_string(), |by| by.name.clone());
    show(&reopened, &name, output);
    Ok(exit::DONE)
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
        false => output.bytes(format!("{reopened}. {name} serves the chain").as_bytes()),
    };
}
