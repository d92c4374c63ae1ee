//! The ends of a node that are due to the membership.

use std::{
    future::pending,
    sync::{Arc, Weak},
};

use artillery_core::{
    Cluster, MemberEvent, MemberEvents, MemberId, SeedState, SeedStatus,
    error::{ConnectError, Refusal},
};

use super::data::Data;
use crate::driver::phase::{NeverReady, Stopped};

enum MembershipEnd {
    Restarted,
    NameTaken(MemberId),
    Refused(Vec<SeedStatus>),
}

impl Data {
    /// Ends the node when a later incarnation replaces it, another living process has its name, or all seeds refuse it
    /// and it can't continue without them.
    pub(super) fn end_with_membership(self: &Arc<Self>, cluster: &Cluster) {
        let (data, cluster, events) = (Arc::downgrade(self), cluster.clone(), cluster.events());
        let mut phases = self.phases();
        let founds = self.after.as_ref().is_some_and(|after| after.founds);
        tokio::spawn(async move {
            let ended = async { while phases.changed().await.is_ok() && !phases.borrow().is_final() {} };
            let end = tokio::select! {
                biased;
                () = ended => return,
                () = superseded(events) => MembershipEnd::Restarted,
                by = cluster.name_taken() => MembershipEnd::NameTaken(by),
                // Refusals don't end a node that creates a cluster: its seeds may still belong to the former one.
                seeds = refused(&cluster, &data), if !founds => MembershipEnd::Refused(seeds),
            };
            if let Some(data) = data.upgrade() {
                data.end(end);
            }
        });
    }

    fn end(&self, end: MembershipEnd) {
        match end {
            MembershipEnd::Restarted => self.stop(Stopped::Restarted),
            MembershipEnd::NameTaken(by) => {
                tracing::error!(?by, name = self.name(), "another process with this name is running: this one stops");
                self.stop(Stopped::NameTaken);
            }
            MembershipEnd::Refused(seeds) => self.fail(NeverReady::refused(&seeds)),
        }
    }
}

async fn superseded(mut events: MemberEvents) {
    while let Some(event) = events.next().await {
        if matches!(event, MemberEvent::Superseded { .. }) {
            return;
        }
    }
    pending().await
}

/// Waits until all seeds have refused the node, and returns their states. Never returns if the node continues: it
/// belongs to a cluster, and is ready or was refused because a seed belongs to another cluster.
async fn refused(cluster: &Cluster, data: &Weak<Data>) -> Vec<SeedStatus> {
    let seeds = cluster.refused_by_all_seeds().await;
    let differs = seeds.iter().any(is_of_another_cluster);
    let continues = |data: Arc<Data>| data.has_cluster() && (differs || data.phase.borrow().is_ready());
    if data.upgrade().is_some_and(continues) { pending().await } else { seeds }
}

/// Whether a seed refused this node because the seed belongs to another cluster of the same name.
fn is_of_another_cluster(seed: &SeedStatus) -> bool {
    let SeedState::Refused { reason, .. } = &seed.state else { return false };
    matches!(
        reason,
        ConnectError::Refused(Refusal::DifferentCluster { .. })
            | ConnectError::Rejected(Refusal::DifferentCluster { .. })
    )
}
