//! Log messages about the decisions of a node.

use std::collections::BTreeSet;

use artillery_proto::{
    ClusterId, MemberId,
    node::{LogWarning, NodeEvent},
};

pub(super) fn log(cluster: ClusterId, event: NodeEvent) {
    match event {
        NodeEvent::HandsOver => {
            tracing::info!(
                "this node alone serves a chain or keeps the configuration log: it hands that over before it ends"
            );
        }
        NodeEvent::Waits => {
            tracing::warn!(
                "this node alone serves a chain or keeps the configuration log, and no other node can replace it: it waits for a second signal to stop"
            );
        }
        NodeEvent::EndsChain => {
            tracing::warn!(
                "this node is the last that serves a chain, and no other node can replace it: the data ends with it"
            );
        }
        NodeEvent::ClosesChain => {
            tracing::warn!(
                "this node is the last that serves a chain: its disk keeps the chain, which reopens when a store that served it last returns"
            );
        }
        NodeEvent::GivesUp => {
            tracing::warn!("this node ends before its chains are known to continue without it");
        }
        NodeEvent::Orphaned => {
            tracing::warn!(
                "none of the nodes that served answers: if those nodes and their data are lost permanently, `artillery-ctl create-anew --accept-loss {cluster}` creates a new cluster of the running nodes; it is refused while one of them answers"
            );
        }
        NodeEvent::Over => {
            tracing::warn!(%cluster, "this node's cluster has given way to another one of its name: this node soon ends, and joins that");
        }
        NodeEvent::Refuses { by } => {
            tracing::warn!(%by, "another cluster was created to succeed this one, but nodes of this one answer: this node continues, and refuses the other");
        }
        NodeEvent::Yields { by } => {
            tracing::error!(%by, "this node's cluster gave way to another one, and no leader of it answers: this node keeps its data, and serves nothing. To have it join the other cluster, start it again, with an empty directory if it has one");
        }
        NodeEvent::GoesOn { by } => {
            tracing::warn!(%by, "a node of this node's cluster answers: this node serves again, and refuses the other cluster");
        }
        NodeEvent::Stays => tracing::warn!("this node can't leave its chains now: it stays"),
        NodeEvent::ServesAgain => {
            tracing::warn!("this node has resigned and can't be removed from its chains now: it serves again");
        }
        event => tracing::debug!(?event, "node"),
    }
}

/// Logs when the loss of voters puts the log at risk, stops it, or is over, with advice for operators.
pub(super) fn warn(cluster: ClusterId, warning: &LogWarning) {
    match warning {
        LogWarning::AtRisk { missing } => tracing::warn!(
            missing = %listed(missing),
            "voters of the configuration log are missing: if one more is lost, leases end and no configuration can change. Start them again, or start another node"
        ),
        LogWarning::Lost { missing } => tracing::error!(
            missing = %listed(missing),
            "most voters of the configuration log are missing: leases end, and no configuration can change. Start them again; if they are lost permanently, `artillery-ctl recover --accept-loss {cluster}` continues with the nodes that are left, and may lose writes"
        ),
        LogWarning::Safe => tracing::info!("the configuration log survives the loss of a voter again"),
    }
}

fn listed(nodes: &BTreeSet<MemberId>) -> String {
    nodes.iter().map(MemberId::to_string).collect::<Vec<_>>().join(", ")
}
