//! Digests: sums over all records of a prefix, to compare members, clusters and backups.

use std::time::Duration;

use artillery_core::internal::random;
use bytes::Bytes;
use futures_util::future::join_all;

use super::{Call, get::no_read, handle::how_to_read};
use crate::{
    ChainConfig, ChainId, Error, Kv, MemberId, NodeId, Place, Refusal, Routing, Sequence,
    api::{DigestQuery, DigestReply, DigestStep, HashKey, Query, ReadMode, Reply, Sums},
    control::chain_of_prefix,
    rpc::router::{CallAnswer, HowToRead, from_now},
};

/// The longest time for which the newest configuration, and then the members' points, are waited for.
const LONGEST_BEGIN: Duration = Duration::from_secs(10);

/// The digest of the records of a prefix, as one member of each chain has them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Digest {
    /// The key of the hash: digests can be compared only if they were made with the same one.
    pub hash_key: HashKey,
    /// The sums over all chains.
    pub sums: Sums,
    /// The point of each chain's history that the digest shows.
    pub points: Vec<(ChainId, Sequence)>,
}

/// The digest of one member of a chain.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemberDigest {
    /// The chain.
    pub chain: ChainId,
    /// The member.
    pub node: NodeId,
    /// Its place in the chain.
    pub place: Place,
    /// The point of the chain's history that the digests of all members show. `None`: no member gave one.
    pub as_of: Option<Sequence>,
    /// The sums, or the reason why there are none.
    pub sums: Result<Sums, Error>,
}

/// A digest to be made. Set the options that differ from the handle's defaults, and await it for the digest of one
/// member of each chain, or call [`of_members`](Self::of_members).
///
/// Members read all bytes of the prefix, in parts of about 1 MiB, and keep old versions until the last part. Writes continue. If
/// more bytes are written than a member keeps for snapshots, the digest fails with
/// [`SnapshotGone`](crate::Refusal::SnapshotGone).
#[derive(Debug, Clone)]
#[must_use = "a call does nothing until it is awaited"]
pub struct ReadDigest {
    kv: Kv,
    prefix: Bytes,
    hash_key: HashKey,
    how: HowToRead,
}

/// A random key for digests.
pub fn random_hash_key() -> HashKey {
    HashKey(random::wide().to_be_bytes())
}

impl ReadDigest {
    pub(super) fn new(kv: &Kv, prefix: Bytes) -> Self {
        let hash_key = random_hash_key();
        Self { kv: kv.clone(), prefix, hash_key, how: how_to_read(kv) }
    }

    /// The key of the hash that this digest will be made with.
    pub const fn key(&self) -> HashKey {
        self.hash_key
    }

    /// Sets the key of the hash, by default a random one, to compare the digest with an earlier one. Writers that know the
    /// key can write different records with equal sums.
    pub fn hash_key(mut self, key: HashKey) -> Self {
        self.hash_key = key;
        self
    }

    /// Sets the mode in which the first request chooses the point of the history. [`of_members`](Self::of_members)
    /// ignores it.
    pub fn mode(mut self, mode: ReadMode) -> Self {
        self.how.mode = mode;
        self
    }

    /// Sets how long each request for a part may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.how.timeout = timeout;
        self
    }

    /// Makes the digest in a session: it shows no older state than the session has seen.
    pub fn session(mut self, session: &crate::Session) -> Self {
        self.how.session = Some(session.clone());
        self
    }

    /// Makes a digest of each serving member of each chain, all members of a chain at one point of its history. If the tail
    /// gave one, the point is no earlier than any write that was acknowledged before this call. Members whose sums differ
    /// hold different data.
    ///
    /// # Errors
    /// [`Error::Refused`] or [`Error::NotApplied`] if the members aren't known. A member's own error is in its
    /// [`sums`](MemberDigest::sums).
    pub async fn of_members(self) -> Result<Vec<MemberDigest>, Error> {
        self.kv.router.begin_call().await?;
        // An older configuration names other members. If there is no newer one, the known one will do.
        let _ = self.kv.router.refresh_within(self.how.timeout.min(LONGEST_BEGIN)).await;
        let (routing, configs) = self.chains().await?;
        let digests = configs.iter().map(|config| self.of_chain(&routing, config));
        Ok(join_all(digests).await.into_iter().flatten().collect())
    }

    async fn chains(&self) -> Result<(std::sync::Arc<Routing>, Vec<ChainConfig>), Error> {
        self.kv.router.begin_call().await?;
        let routing = self.kv.router.routing_of(self.how.history_id(), from_now(self.how.timeout)).await?;
        let only = chain_of_prefix(&self.prefix, routing.chains.len() as u32);
        let chains = routing.chains.iter().filter(|config| only.is_none_or(|only| only == config.chain));
        let chains = chains.cloned().collect();
        Ok((routing, chains))
    }

    async fn of_chain(&self, routing: &Routing, config: &ChainConfig) -> Vec<MemberDigest> {
        let members: Vec<MemberId> = config.serving().collect();
        let begun = members
            .iter()
            .map(|&member| self.step(routing, config.chain, DigestStep::Begin, ReadMode::Eventual, Some(member)));
        let begun = join_all(begun).await;
        // Each member keeps its own point and all later ones, and reads at the latest of them.
        let as_of = begun.iter().flatten().map(|(part, _)| part.as_of).max();
        let sums = members.iter().zip(begun).map(async |(&member, begun)| {
            let (begun, _) = begun?;
            let at = as_of.unwrap_or(begun.as_of);
            self.rest(routing, config.chain, begun, at, member).await
        });
        let sums = join_all(sums).await;
        let digest = |(&member, sums): (&MemberId, _)| MemberDigest {
            chain: config.chain,
            node: member.node,
            place: config.place(member),
            as_of,
            sums,
        };
        members.iter().zip(sums).map(digest).collect()
    }

    async fn run(self) -> Result<Digest, Error> {
        let (routing, configs) = self.chains().await?;
        let mut digest = Digest { hash_key: self.hash_key, sums: Sums::default(), points: Vec::new() };
        for ChainConfig { chain, .. } in configs {
            let (begun, member) = self.step(&routing, chain, DigestStep::Begin, self.how.mode, None).await?;
            let at = begun.as_of;
            digest.sums.add(&self.rest(&routing, chain, begun, at, member).await?);
            digest.points.push((chain, at));
        }
        Ok(digest)
    }

    /// The sums of the parts after the reply to the first step.
    async fn rest(
        &self,
        routing: &Routing,
        chain: ChainId,
        mut last: DigestReply,
        at: Sequence,
        member: MemberId,
    ) -> Result<Sums, Error> {
        let mut sums = Sums::default();
        while let Some(from) = last.next {
            let step = DigestStep::Part { number: last.number, at, from };
            last = self.step(routing, chain, step, ReadMode::Eventual, Some(member)).await?.0;
            sums.add(&last.sums);
        }
        Ok(sums)
    }

    async fn step(
        &self,
        routing: &Routing,
        chain: ChainId,
        step: DigestStep,
        mode: ReadMode,
        only: Option<MemberId>,
    ) -> Result<(DigestReply, MemberId), Error> {
        let query = Query::Digest(Box::new(DigestQuery { prefix: self.prefix.clone(), key: self.hash_key, step }));
        let how = HowToRead { mode, ..self.how.clone() };
        // A member keeps its point for a limited time, while a dead one is waited for.
        let is_first = matches!(&query, Query::Digest(digest) if digest.step == DigestStep::Begin);
        let deadline = from_now(if is_first { how.timeout.min(LONGEST_BEGIN) } else { how.timeout });
        match self.kv.router.read_in(routing, chain, query, &how, only, deadline).await? {
            // A node that isn't in the chain passes a request on.
            CallAnswer { node, .. } if only.is_some_and(|only| only != node) => {
                Err(Error::refused(Refusal::NoChain, Some(node.node)))
            }
            CallAnswer { reply: Reply::Digest(part), node, .. } => Ok((*part, node)),
            CallAnswer { reply, node, .. } => Err(no_read(&reply, node)),
        }
    }
}

impl IntoFuture for ReadDigest {
    type Output = Result<Digest, Error>;
    type IntoFuture = Call<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
