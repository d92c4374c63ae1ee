//! A cluster of which no life is left that ever served: what has this node found the next one (docs/DESIGN.md §5.13).

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::{data::Data, phase::Stopped, recovering::Parts};
use crate::{
    ClusterId,
    control::{
        Founder,
        succession::{self, NotFounded},
    },
};

impl Data {
    /// Stops, to found the cluster that succeeds the named one, if no life that ever served is there.
    pub(super) async fn found(&self, cluster: ClusterId) -> Result<Founder, NotFounded> {
        let parts = self.recovery.get().ok_or(NotFounded::Static)?;
        let _turn = parts.turn().await;
        let begun = Instant::now();
        self.may_found(parts, cluster, Duration::ZERO).await?;
        // Nodes that hear a member say so by then; and what that one was granted before is out.
        sleep_until(begun + self.timing().unwrap_or_default().lease_and_drift()).await;
        let by = self.may_found(parts, cluster, begun.elapsed()).await?;
        tracing::warn!(%cluster, "an operator accepted losses: this node founds a cluster that succeeds its own");
        self.stop(Stopped::Founds);
        Ok(by)
    }

    async fn may_found(&self, parts: &Parts, cluster: ClusterId, waited: Duration) -> Result<Founder, NotFounded> {
        let by = succession::found(cluster, &self.survey(parts).await, waited)?;
        if self.phases().borrow().is_final() {
            return Err(NotFounded::Stopped);
        }
        if by.id == self.id() { Ok(by) } else { Err(NotFounded::Elsewhere { by }) }
    }

    /// The clusters that one is to name that succeeds this node's, the oldest first; empty: it belongs to none yet.
    pub(crate) fn lineage(&self) -> Vec<ClusterId> {
        self.founding.get().map(|founding| founding.lineage()).unwrap_or_default()
    }
}
