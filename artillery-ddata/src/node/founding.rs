//! An operator's order after a cluster has lost every incarnation that ever served: this node creates the next cluster,
//! or joins it (docs/DESIGN.md §5.13).

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use artillery_core::internal::{MAX_LINEAGE, clock};
use tokio::time::sleep;

use super::{data::Data, stage::Following};
use crate::{
    ClusterId, Timestamp,
    control::{
        NodeInfo,
        succession::{self, NotFounded},
    },
    driver::phase::Stopped,
};

/// The time in which the order's answer must reach the operator before the node stops.
const ANSWER_GRACE: Duration = Duration::from_millis(300);

impl Data {
    /// Decides whether this node may stop, to found or join the cluster that succeeds the named one. Refused if an
    /// incarnation that ever served is alive. Returns the nodes that answered, this one first.
    pub(super) async fn found(&self, cluster: ClusterId, founds: bool) -> Result<Vec<NodeInfo>, NotFounded> {
        let following = &*self.stage.following().ok_or(NotFounded::Static)?;
        let _turn = following.turn.lock().await;
        let begun = clock::now();
        self.may_give_up(following, cluster, founds, begun).await?;
        // By then every node that receives messages of a member has reported it, and that member's old leases have expired.
        self.outlast_leases(begun).await;
        let answered = self.may_give_up(following, cluster, founds, begun).await?;
        tracing::warn!(%cluster, founds, "an operator accepted losses: this node gives its cluster up for another one");
        Ok(answered)
    }

    /// Stops the node in favour of another cluster, once the operator's client has had time to receive the answer.
    pub(super) fn give_up(self: &Arc<Self>, founds: bool) {
        let data = self.clone();
        tokio::spawn(async move {
            sleep(ANSWER_GRACE).await;
            data.stop(if founds { Stopped::Founds } else { Stopped::Succeeded });
        });
    }

    async fn may_give_up(
        &self,
        following: &Following,
        cluster: ClusterId,
        founds: bool,
        begun: Timestamp,
    ) -> Result<Vec<NodeInfo>, NotFounded> {
        let standings = self.survey(following).await;
        let by = succession::found(cluster, &standings, clock::now() - begun, self.lease(), founds)?;
        // A node that is about to end creates nothing, and must not direct other nodes to a cluster that it won't join.
        if self.has_ended() || self.is_leaving.load(Ordering::Relaxed) {
            return Err(NotFounded::Stopped);
        }
        if founds && by.id != self.id() {
            return Err(NotFounded::Elsewhere { by: by.into() });
        }
        let mut answered: Vec<_> =
            standings.into_iter().filter(|standing| standing.cluster == cluster).map(|standing| standing.me).collect();
        answered.sort_by_key(|founder| founder.id != self.id());
        Ok(answered)
    }

    /// The lineage that a successor of this node's cluster must name, oldest first; empty until the node belongs to a
    /// cluster.
    pub(crate) fn lineage(&self) -> Vec<ClusterId> {
        let Some(formed) = self.stage.formed() else { return Vec::new() };
        let founding = &formed.founding;
        let line = [self.left_clusters(founding), founding.lineage()].concat();
        line[line.len().saturating_sub(MAX_LINEAGE)..].to_vec()
    }
}
