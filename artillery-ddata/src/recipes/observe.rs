//! Follows the leader of an election.

use std::fmt;

use artillery_proto::recipes::name::version_of;
use bytes::Bytes;

use super::{Election, FencingToken, Leader};
use crate::{
    ClusterId,
    view::{View, ViewError},
};

/// The successive leaders of an election, from a [view](crate::view) of its candidates. It may skip leaders that follow
/// each other quickly.
pub struct Observe {
    view: View,
    prefix: Bytes,
    cluster: ClusterId,
    /// `None`: it has returned nothing yet.
    last: Option<Option<Leader>>,
}

impl Election {
    /// Follows the leader: the present one first, then each change of the leader or of its value. All observers of an
    /// election in a process share one watch.
    ///
    /// # Errors
    /// Those of [`Kv::view`](crate::Kv::view).
    pub async fn observe(&self) -> Result<Observe, ViewError> {
        let (kv, prefix) = (self.kv(), self.prefix());
        let cluster = kv.router.routing(crate::rpc::router::from_now(kv.timeout())).await?.cluster;
        Ok(Observe { view: kv.view(&prefix).await?, prefix, cluster, last: None })
    }
}

impl Observe {
    /// Waits for the next leader, or the next value of the leader; `None`: the election has no candidate. Dropping the
    /// future loses nothing.
    ///
    /// # Errors
    /// The error with which the view ended. A view survives failovers and lost connections.
    pub async fn next(&mut self) -> Result<Option<Leader>, ViewError> {
        loop {
            let leader = self.leader();
            if self.last.as_ref() != Some(&leader) {
                self.last = Some(leader.clone());
                return Ok(leader);
            }
            self.view.changed().await?;
        }
    }

    /// The leader as this process knows it now. For a strong answer use [`Election::leader`].
    pub fn leader(&self) -> Option<Leader> {
        self.view.iter().find_map(|candidate| {
            let version = version_of(&self.prefix, &candidate.key)?;
            Some(Leader { value: candidate.value, token: FencingToken::new(self.cluster, version) })
        })
    }
}

impl fmt::Debug for Observe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observe").field("view", &self.view).finish_non_exhaustive()
    }
}
