//! By which routing a call is made, and in which chain.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::{MIN_ATTEMPT_TIME, Router};
use crate::{
    ChainId, ClusterId, Error, Routing, Sequence, Session,
    api::{Refusal, Reply},
    control::chain_of,
    error::NotApplied,
};

impl Router {
    /// Waits for the cluster to be formed, since until then no key belongs anywhere.
    pub(crate) async fn routing(&self, deadline: Instant) -> Result<Arc<Routing>, Error> {
        match self.known() {
            Some(routing) => Ok(routing),
            None => Box::pin(self.routes.formed(deadline)).await.ok_or(Error::not_applied(NotApplied::NotFormed)),
        }
    }

    /// The routing of this history, if one is named.
    ///
    /// What is known here may lag behind a recovery of which the session or watch has heard elsewhere; so it is asked for anew
    /// before the history is refused.
    pub(crate) async fn routing_of(
        &self,
        history: Option<ClusterId>,
        deadline: Instant,
    ) -> Result<Arc<Routing>, Error> {
        let is_of = |routing: &Routing| history.is_none_or(|history| history == routing.history_id());
        let routing = self.routing(deadline).await?;
        if is_of(&routing) {
            return Ok(routing);
        }
        Box::pin(self.refresh_routing(deadline)).await;
        let routing = Box::pin(self.routing(deadline)).await?;
        if is_of(&routing) { Ok(routing) } else { Err(refused(Refusal::OtherHistory)) }
    }

    /// The routing by which to ask again what was asked by `routing` in a session that had seen nothing. Such a session belongs
    /// to no history, so only the routing here lagged behind a recovery. `None`: nothing newer is known, the session belongs to a
    /// history by now, or no time is left.
    pub(super) fn newer(&self, session: &Session, routing: &Routing, deadline: Instant) -> Option<Arc<Routing>> {
        let newer = self.known().filter(|newer| newer.history_id() != routing.history_id())?;
        let is_of = session.history_id().is_none_or(|history| history == newer.history_id());
        (is_of && Instant::now() + MIN_ATTEMPT_TIME < deadline).then_some(newer)
    }
}

pub(super) fn refused(reason: Refusal) -> Error {
    Error::refused(reason, None)
}

/// The chain that all of these keys belong to.
pub(super) fn one_chain<'a>(routing: &Routing, keys: impl IntoIterator<Item = &'a Bytes>) -> Result<ChainId, Error> {
    let mut chain = None;
    for key in keys {
        let of_key = chain_of(key, routing.chains.len() as u32);
        if *chain.get_or_insert(of_key) != of_key {
            return Err(refused(Refusal::ManyChains));
        }
    }
    Ok(chain.unwrap_or_default())
}

/// How far the history was certainly committed when this was said.
pub(super) fn as_of(reply: &Reply) -> Option<Sequence> {
    match reply {
        Reply::Committed(done) => Some(done.version.sequence),
        Reply::Conflict { at, .. } => Some(at.sequence),
        Reply::Read(read) => Some(read.as_of),
        Reply::Cut(cut) => Some(cut.as_of),
        Reply::Page(page) => Some(page.as_of),
        Reply::Changes(changes) => Some(changes.upto),
        Reply::Hashed(page) => Some(page.as_of),
        Reply::Refused(_) | Reply::Expired => None,
    }
}
