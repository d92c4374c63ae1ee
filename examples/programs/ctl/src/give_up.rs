//! `ctl give-up`: abandons the named cluster and its data, in favour of another cluster of the same name, which it has
//! met and which holds data. If both hold data, neither gives way by itself.

use std::time::Duration;

use artillery_ddata::{
    Client, ClusterId,
    admin::{AdminCommand, AdminError, ArrangeError, NotGivenUp},
};
use artillery_programs::exit::{self, Failure};
use tokio::time::Instant;

use super::{
    leader::{self, Said},
    output::Output,
};

pub(super) async fn run(client: &Client, cluster: ClusterId, timeout: Duration, output: Output) -> Result<u8, Failure> {
    let deadline = Instant::now() + timeout;
    let routing = client.refresh(timeout).await.map_err(Failure::failed)?;
    if routing.cluster != cluster {
        let found = routing.cluster;
        return Err(Failure::failed(format!(
            "the node that answered belongs to cluster {found}, not {cluster}: name a node of {cluster} (--seed)"
        )));
    }
    leader::ask(&routing, deadline, async |node, left| {
        match client.arrange(node, AdminCommand::GiveUp { cluster }, left).await {
            Err(AdminError::Rejected(ArrangeError::GiveUp(NotGivenUp::NotLeading { leader }))) => {
                Said::Elsewhere(leader)
            }
            outcome => Said::of(outcome),
        }
    })
    .await?;
    match output.json {
        true => output.object(&serde_json::json!({ "given_up": cluster.to_string() })),
        false => output.bytes(
            format!(
                "cluster {cluster} is abandoned: its nodes move their directories aside and join the other cluster"
            )
            .as_bytes(),
        ),
    };
    Ok(exit::DONE)
}
