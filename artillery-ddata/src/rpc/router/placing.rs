//! Determines the routing and the chain of a call.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::{MIN_ATTEMPT_TIME, Router};
use crate::{
    ChainId, ClusterId, Error, Routing, Sequence, Session,
    api::{Refusal, Reply, Write},
    control::{chain_of, chain_of_prefix},
    error::NotApplied,
};

impl Router {
    /// The routing. Waits until the cluster is formed: before that, keys have no chain.
    pub(crate) async fn routing(&self, deadline: Instant) -> Result<Arc<Routing>, Error> {
        match self.known() {
            Some(routing) => Ok(routing),
            None => Box::pin(self.routes.formed(deadline)).await.ok_or(Error::not_applied(NotApplied::NotFormed)),
        }
    }

    /// The routing, which must be of `history` if one is named.
    ///
    /// The known routing may be older than a recovery that the session or watch has observed elsewhere. So query newer
    /// routing before refusing the history.
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

    /// Newer routing, to retry a call in a session that had observed nothing. Such a session belongs to no history, so
    /// only the routing used here was outdated. `None` if no routing of another history is known, if the session now
    /// belongs to a different history, or if no time is left.
    pub(super) fn newer(&self, session: &Session, routing: &Routing, deadline: Instant) -> Option<Arc<Routing>> {
        let newer = self.known().filter(|newer| newer.history_id() != routing.history_id())?;
        let is_of = session.history_id().is_none_or(|history| history == newer.history_id());
        (is_of && Instant::now() + MIN_ATTEMPT_TIME < deadline).then_some(newer)
    }
}

pub(super) fn refused(reason: Refusal) -> Error {
    Error::refused(reason, None)
}

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

pub(super) fn chain_of_write(routing: &Routing, write: &Write) -> Result<ChainId, Error> {
    if let Write::PutSequential { prefix, .. } = write {
        let chain = chain_of_prefix(prefix, routing.chains.len() as u32);
        return chain.ok_or_else(|| refused(Refusal::ManyChains));
    }
    one_chain(routing, write.keys())
}

/// The sequence that the reply reflects, as a floor for later reads in the session.
pub(super) fn as_of(reply: &Reply) -> Option<Sequence> {
    match reply {
        Reply::Committed(done) => Some(done.version.sequence),
        Reply::Conflict { at, .. } => Some(at.sequence),
        Reply::Read(read) => Some(read.as_of),
        Reply::Cut(cut) => Some(cut.as_of),
        Reply::Page(page) => Some(page.as_of),
        Reply::Changes(changes) => Some(changes.upto),
        Reply::Hashed(page) => Some(page.as_of),
        Reply::Digest(part) => Some(part.as_of),
        Reply::Copied(part) => Some(part.watermark),
        Reply::Refused(_) | Reply::Expired => None,
    }
}
