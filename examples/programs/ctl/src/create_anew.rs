//! `ctl create-anew`: has the running nodes form a new cluster, when no node that ever held data survives.

use std::time::Duration;

use artillery_ddata::{
    Client, ClusterId,
    admin::{AdminError, NodeInfo, NotReplaced, Replacement, plan_succession},
    client::Spread,
};
use artillery_programs::exit::{self, Failure};
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    output::Output,
    recover::{SURVEY_TIMEOUT, list, names},
};
use crate::find::FindArgs;

/// The minimum timeout for the new cluster. The node that creates it queries the others itself, twice, waits for a
/// lease in between, and restarts.
const CREATE_TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn run(
    client: &Client,
    cluster: ClusterId,
    find: &FindArgs,
    timeout: Duration,
    output: Output,
) -> Result<u8, Failure> {
    let survey = client.survey(timeout.min(SURVEY_TIMEOUT)).await;
    // No lease needs to be waited out here: the nodes know theirs and check it themselves.
    let by = plan_succession(cluster, &survey.standings, Duration::ZERO, Duration::ZERO, Replacement::Join);
    let mut by = by.map_err(Failure::failed)?;
    eprintln!("nodes that answer: {}; no answer: {}", names(&survey), list(&survey.silent));
    let patience = timeout.max(CREATE_TIMEOUT);
    let mut unknown: Option<Failure> = None;
    let answered = loop {
        eprintln!("{} creates the new cluster, unless a node that held data answers it", by.name);
        match client.create_anew(&by, cluster, Replacement::Create, patience).await {
            Ok(answered) => break answered,
            // The node reaches more nodes than this program does, and has named one that precedes it.
            Err(AdminError::Rejected(NotReplaced::Elsewhere { by: other })) if other.id < by.id => by = *other,
            // An earlier order is in progress, and may not have reached all nodes yet.
            Err(AdminError::Rejected(NotReplaced::Succeeded { by: other })) => {
                eprintln!("the cluster was already replaced by {other}");
                break survey.standings.iter().map(|standing| standing.me.clone()).collect();
            }
            // The answer may be lost although the new cluster was created.
            Err(error) if error.is_outcome_unknown() => {
                eprintln!("no answer from {} ({error}): it may have created the new cluster", by.name);
                unknown = Some(error.into());
                break survey.standings.iter().map(|standing| standing.me.clone()).collect();
            }
            Err(error) => return Err(error.into()),
        }
    };
    let successor = successor(cluster, &by, find, patience).await;
    let others: Vec<_> = answered.into_iter().filter(|other| other.id != by.id).collect();
    // Order the others to join even if the new cluster wasn't reached: the nodes at the seeds may be the very ones
    // that must join.
    let stay = join(client, cluster, &others, patience).await;
    let successor = successor.map_err(|failure| match &unknown {
        Some(earlier) => failure.after_unknown(earlier),
        None => failure,
    })?;
    match output.json {
        true => output.object(&json!({
            "cluster": cluster.to_string(),
            "successor": successor.to_string(),
            "node": by.name,
            "silent": survey.silent,
            "stay": stay,
        })),
        false => output.bytes(
            format!(
                "cluster {cluster} is abandoned; {} has created the empty cluster {successor} in its place",
                by.name
            )
            .as_bytes(),
        ),
    };
    Ok(exit::DONE)
}

/// Orders the other nodes to join the new cluster. Returns the nodes, each with its error, that may not have received
/// the order: they join by themselves if they had no part in the old cluster, otherwise once they are restarted.
async fn join(client: &Client, cluster: ClusterId, others: &[NodeInfo], patience: Duration) -> Vec<String> {
    let mut asked = JoinSet::new();
    for other in others.iter().cloned() {
        let client = client.clone();
        asked.spawn(async move {
            let joined = client.create_anew(&other, cluster, Replacement::Join, patience).await;
            joined.err().map(|error| format!("{} ({error})", other.name))
        });
    }
    let stay: Vec<_> = asked.join_all().await.into_iter().flatten().collect();
    if !stay.is_empty() {
        eprintln!("these nodes may not have received the order to join: {}", list(&stay));
    }
    stay
}

/// Waits until a cluster other than `cluster` can be reached. Returns its id.
async fn successor(
    cluster: ClusterId,
    by: &NodeInfo,
    find: &FindArgs,
    patience: Duration,
) -> Result<ClusterId, Failure> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        // Usually the node that created the cluster listens at its previous address; otherwise it is found like any
        // other node. Nodes may still belong to the old cluster.
        let client = match find.connect_to(&by.addrs, SURVEY_TIMEOUT).await {
            Ok(client) => Ok(client),
            Err(_) => find.connect(Spread::Sticky, SURVEY_TIMEOUT).await,
        };
        if let Ok(client) = client {
            let found = client.routing().cluster;
            client.close().await;
            if found != cluster {
                return Ok(found);
            }
        }
        sleep(PAUSE).await;
    }
    Err(Failure::failed("the new cluster has not been reached yet"))
}
