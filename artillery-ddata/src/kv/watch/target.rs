//! The watched keys, and how a watch queries their chains.

use artillery_proto::follower::FollowerQuery;
use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    ChainId, Error, Frontier, Kv, Refusal, Routing, Sequence, Session,
    api::{Query, Reply, WatchQuery, WatchReply},
    control::chain_of_prefix,
    kv::{get::no_read, handle::how_to_read},
    rpc::router::{CallAnswer, HowToRead},
};

/// The keys that a watch is for, and how it asks for their changes.
#[derive(Clone, Debug)]
pub(super) struct WatchTarget {
    pub(super) kv: Kv,
    pub(super) how: HowToRead,
    pub(super) prefix: Bytes,
}

impl WatchTarget {
    pub(super) fn new(kv: &Kv, prefix: Bytes) -> Self {
        Self { kv: kv.clone(), how: how_to_read(kv), prefix }
    }

    /// The chains that the keys belong to.
    pub(super) fn chains(&self, routing: &Routing) -> Vec<ChainId> {
        let only = chain_of_prefix(&self.prefix, routing.chains.len() as u32);
        let chains = routing.chains.iter().map(|config| config.chain);
        chains.filter(|&chain| only.is_none_or(|only| only == chain)).collect()
    }

    /// The present position: a watermark of each chain. The answering members may lag behind, so that changes committed
    /// before may follow this position.
    pub(super) async fn present(&self, routing: &Routing, deadline: Instant) -> Result<Frontier, Error> {
        let mut position = Frontier::default();
        for chain in self.chains(routing) {
            let now = changes(self.ask(routing, chain, (None, 0), deadline).await?)?;
            position.raise(routing.history_id(), chain, now.upto);
        }
        Ok(position)
    }

    /// Queries one chain for the changes after a sequence, without the first `shown` of the next update; without a
    /// sequence, for its watermark.
    pub(super) async fn ask(
        &self,
        routing: &Routing,
        chain: ChainId,
        (after, shown): (Option<Sequence>, u32),
        deadline: Instant,
    ) -> Result<CallAnswer, Error> {
        let query = WatchQuery { prefix: self.prefix.clone(), after, shown };
        let mut how = HowToRead { mode: query.mode(), ..self.how.clone() };
        // A query for the changes after a position carries no floor of the session. Otherwise a member would answer it
        // without a change whenever the session has seen a later update.
        let session = after.and_then(|_| how.session.take());
        if let Some(session) = &session {
            session.floor(routing.history_id(), chain).ok_or(Error::refused(Refusal::OtherHistory, None))?;
        }
        let answer = self.kv.router.read_in(routing, chain, Query::Changes(query), &how, None, deadline).await?;
        if let (Some(session), Reply::Changes(changes)) = (session, &answer.reply) {
            session.raise(routing.history_id(), chain, changes.upto);
        }
        Ok(answer)
    }
}

/// Makes one read of a follower, in the history of `routing`.
pub(crate) async fn follow(
    kv: &Kv,
    routing: &Routing,
    chain: ChainId,
    asked: FollowerQuery,
    deadline: Instant,
) -> Result<Reply, Error> {
    let history = routing.history_id();
    let session = asked.floor.map(|floor| {
        let mut frontier = Frontier::default();
        frontier.raise(history, chain, floor);
        Session::resume(frontier)
    });
    let how = HowToRead { mode: asked.mode(), timeout: kv.timeout, session };
    let answer = kv.router.read_in(routing, chain, asked.query, &how, None, deadline).await?;
    match answer.reply {
        reply @ (Reply::Page(_) | Reply::Changes(_)) => Ok(reply),
        other => Err(no_read(&other, answer.node)),
    }
}

/// The changes in the answer to a query.
pub(super) fn changes(answer: CallAnswer) -> Result<WatchReply, Error> {
    match answer.reply {
        Reply::Changes(changes) => Ok(changes),
        other => Err(no_read(&other, answer.node)),
    }
}
