//! `ctl drain`: has a node leave its chains, and waits until no configuration names it.

use std::time::Duration;

use artillery_ddata::{Client, admin::AdminCommand};
use artillery_programs::exit::{self, Failure};
use tokio::time::{Instant, sleep};

use super::{output::Output, reorder};

const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(super) async fn run(client: &Client, node: &str, timeout: Duration, output: Output) -> Result<u8, Failure> {
    let deadline = Instant::now() + timeout;
    let routing = client.refresh(timeout).await.map_err(Failure::failed)?;
    let node = reorder::named(&routing, node)?;
    client.arrange(node, AdminCommand::Leave, timeout).await?;
    loop {
        let routing = client.refresh(timeout).await.map_err(Failure::failed)?;
        let members = routing.chains.iter().flat_map(|chain| &chain.members);
        if !members.into_iter().any(|member| member.id.node == node) {
            if output.json {
                output.object(&serde_json::json!({ "drained": node.to_string() }));
            }
            return Ok(exit::DONE);
        }
        if Instant::now() >= deadline {
            return Err(Failure::failed(
                "the node accepted the order, but is still a member: it leaves within ten leases of the order if the others can continue without it; check the status again",
            ));
        }
        sleep(POLL_INTERVAL).await;
    }
}
