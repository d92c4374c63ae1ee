//! A restart of all nodes: acknowledged writes must survive in the nodes' directories.

use std::time::Duration;

use artillery_ddata::{
    Node,
    node::{DataDirError, StartError},
};
use artillery_programs::{exit::Failure, story::Story};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use super::form::Admission;

const RESTART_TIMEOUT: Duration = Duration::from_secs(20);
/// The pause before retrying a directory that the stopped node has not released yet.
const RETRY: Duration = Duration::from_millis(20);

/// Stops all nodes, and restarts them from their directories at new addresses. Returns their number; 0 without
/// directories, when nothing is restarted.
pub(super) async fn provoke(story: &Story, nodes: &mut Vec<Node>, admission: &Admission) -> Result<usize, Failure> {
    let Some(dir) = admission.place() else { return Ok(0) };
    let names: Vec<_> = nodes.iter().map(|node| node.name().to_owned()).collect();
    story.say(&format!("Now {} are all stopped …", names.join(", ")));
    in_time(stop(nodes), "the nodes did not end in time").await?;
    nodes.clear();
    story.say(&format!("No node is left: the data is in the files below {}.", dir.display()));
    for name in &names {
        let node = in_time(start(admission, name), "a directory was not released in time").await??;
        story.say(&format!("  {name} starts again, listening at {}", node.addr()));
        nodes.push(node);
    }
    in_time(all_ready(nodes), "the nodes were not ready in time").await??;
    story.say(&format!("The chain is open again: all {} nodes are ready.", names.len()));
    Ok(names.len())
}

/// Stops all nodes concurrently. Nodes with directories can be restarted; others leave permanently.
pub(super) async fn stop(nodes: &[Node]) {
    let mut stopping = JoinSet::new();
    for node in nodes {
        let node = node.clone();
        stopping.spawn(async move { node.shutdown().await });
    }
    while stopping.join_next().await.is_some() {}
}

async fn start(admission: &Admission, name: &str) -> Result<Node, Failure> {
    loop {
        match admission.builder(name).start().await {
            Err(StartError::Data(DataDirError::InUse(_))) => sleep(RETRY).await,
            started => return started.map_err(Failure::failed),
        }
    }
}

async fn all_ready(nodes: &[Node]) -> Result<(), Failure> {
    for node in nodes {
        node.ready().await.map_err(Failure::failed)?;
    }
    Ok(())
}

async fn in_time<T>(work: impl Future<Output = T>, otherwise: &str) -> Result<T, Failure> {
    timeout(RESTART_TIMEOUT, work).await.map_err(|_| Failure::failed(otherwise))
}
