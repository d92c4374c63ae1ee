//! A cluster of which no life is left that ever served: what has this node found the next one (docs/DESIGN.md §5.13).

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use artillery_core::internal::clock;
use tokio::time::sleep;

use super::{data::Data, recovery_access::RecoveryAccess};
use crate::{
    ClusterId, Timestamp,
    control::{
        NodeInfo,
        succession::{self, NotFounded},
    },
    driver::phase::Stopped,
};

/// If an answer is lost, the operator doesn't hear what became of the order.
const ANSWER_GRACE: Duration = Duration::from_millis(300);

impl Data {
    /// Stops, to found the cluster that succeeds the named one or to join that, if no life that ever served is there. The nodes
    /// that answered, this one first.
    pub(super) async fn found(&self, cluster: ClusterId, founds: bool) -> Result<Vec<NodeInfo>, NotFounded> {
        let access = self.recovery.get().ok_or(NotFounded::Static)?;
        let _turn = access.turn().await;
        let begun = clock::now();
        self.may_give_up(access, cluster, founds, begun).await?;
        // Nodes that hear a member say so by then; and what that one was granted before is out.
        self.outlast_leases(begun).await;
        let answered = self.may_give_up(access, cluster, founds, begun).await?;
        tracing::warn!(%cluster, founds, "an operator accepted losses: this node gives its cluster up for another one");
        Ok(answered)
    }

    /// Ends for another cluster, once the operator's client has had time to hear the answer.
    pub(super) fn give_up(self: &Arc<Self>, founds: bool) {
        let data = self.clone();
        tokio::spawn(async move {
            sleep(ANSWER_GRACE).await;
            data.stop(if founds { Stopped::Founds } else { Stopped::Succeeded });
        });
    }

    async fn may_give_up(
        &self,
        access: &RecoveryAccess,
        cluster: ClusterId,
        founds: bool,
        begun: Timestamp,
    ) -> Result<Vec<NodeInfo>, NotFounded> {
        let standings = self.survey(access).await;
        let by = succession::found(cluster, &standings, clock::now() - begun, self.lease(), founds)?;
        // A node that is about to end founds nothing, and leads no node to where it doesn't go.
        if self.phases().borrow().is_final() || self.is_leaving.load(Ordering::Relaxed) {
            return Err(NotFounded::Stopped);
        }
        if founds && by.id != self.id() {
            return Err(NotFounded::Elsewhere { by });
        }
        let mut answered: Vec<_> =
            standings.into_iter().filter(|standing| standing.cluster == cluster).map(|standing| standing.me).collect();
        answered.sort_by_key(|founder| founder.id != self.id());
        Ok(answered)
    }

    /// The clusters that one is to name that succeeds this node's, the oldest first; empty: it belongs to none yet.
    pub(crate) fn lineage(&self) -> Vec<ClusterId> {
        self.founding.get().map(|founding| founding.lineage()).unwrap_or_default()
    }
}
