//! `ctl found`: has the nodes that are there form a new cluster, when no life is left that ever served.

use std::time::Duration;

use artillery_ddata::{
    Client, ClusterId,
    admin::{NodeInfo, NotFounded, plan_succession},
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

/// The longest wait for the new cluster. The founding node asks the others itself, twice, waits for a lease in between,
/// and starts again.
const FOUND_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two attempts to find the new cluster.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn run(
    client: &Client,
    cluster: ClusterId,
    find: &FindArgs,
    timeout: Duration,
    output: Output,
) -> Result<u8, Failure> {
    let survey = client.survey(timeout.min(SURVEY_TIMEOUT)).await;
    // The nodes know their lease, and check it themselves.
    let by = plan_succession(cluster, &survey.standings, Duration::ZERO, Duration::ZERO, false);
    let mut by = by.map_err(Failure::failed)?;
    eprintln!("nodes that answer: {}; silent: {}", names(&survey), list(&survey.silent));
    let patience = timeout.max(FOUND_TIMEOUT);
    let answered = loop {
        eprintln!("{} founds the new cluster, if no node that served answers it", by.name);
        match client.found(&by, cluster, true, patience).await {
            Ok(Ok(answered)) => break answered,
            // The node that was asked reaches more nodes than this program. It has named one that precedes it.
            Ok(Err(NotFounded::Elsewhere { by: other })) if other.id < by.id => by = *other,
            // An earlier order is being carried out, and may not have reached all nodes.
            Ok(Err(NotFounded::Succeeded { by: other })) => {
                eprintln!("{other} succeeds it already");
                break survey.standings.iter().map(|standing| standing.me.clone()).collect();
            }
            Ok(Err(why)) => return Err(Failure::failed(why)),
            // The answer may be lost: then the new cluster exists all the same.
            Err(error) => {
                eprintln!("{} gives no answer ({error}): it may have founded the new cluster", by.name);
                break survey.standings.iter().map(|standing| standing.me.clone()).collect();
            }
        }
    };
    let successor = successor(cluster, &by, find, patience).await;
    let others: Vec<_> = answered.into_iter().filter(|other| other.id != by.id).collect();
    // The others join also if the new cluster wasn't seen: the founding node has agreed, and those named by a seed may
    // be the ones that are to join it.
    let stay = join(client, cluster, &others, patience).await;
    let successor = successor?;
    match output.json {
        true => output.object(&json!({
            "cluster": cluster.to_string(),
            "successor": successor.to_string(),
            "node": by.name,
            "silent": survey.silent,
            "stay": stay,
        })),
        false => output.bytes(
            format!("cluster {cluster} is given up; {} has founded {successor} in its place, which is empty", by.name)
                .as_bytes(),
        ),
    };
    Ok(exit::DONE)
}

/// Has the other nodes join the new cluster. Returns the names of those that may not have received the order: they join
/// by themselves if they had no part in the old one, and otherwise once they are started again.
async fn join(client: &Client, cluster: ClusterId, others: &[NodeInfo], patience: Duration) -> Vec<String> {
    let mut asked = JoinSet::new();
    for other in others.iter().cloned() {
        let client = client.clone();
        asked.spawn(async move {
            match client.found(&other, cluster, false, patience).await {
                Ok(Ok(_)) => None,
                Ok(Err(why)) => Some(format!("{} ({why})", other.name)),
                Err(error) => Some(format!("{} ({error})", other.name)),
            }
        });
    }
    let stay: Vec<_> = asked.join_all().await.into_iter().flatten().collect();
    if !stay.is_empty() {
        eprintln!("not known to join: {}", list(&stay));
    }
    stay
}

/// Waits until the new cluster is there.
async fn successor(
    cluster: ClusterId,
    by: &NodeInfo,
    find: &FindArgs,
    patience: Duration,
) -> Result<ClusterId, Failure> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        // As a rule the founding node listens where it did before; otherwise it is found like any other node. Nodes may
        // still belong to the old cluster.
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
    Err(Failure::failed(format!("{} has given the cluster up, and the new one wasn't seen yet", by.name)))
}
