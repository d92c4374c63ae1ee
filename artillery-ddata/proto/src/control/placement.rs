//! Placement: the chain of a key, and the nodes of a chain. These functions can never change, since they determine
//! where a cluster's data is stored.

mod hash;

use std::{cmp::Reverse, collections::BTreeMap};

use sha2::{Digest, Sha256};

use super::Bootstrap;
use crate::{ChainConfig, ChainId, ChainMember, ClusterId, Epoch, MemberId, NodeId, Role};

/// The chain of `key` among `chains` chains (at least 1).
///
/// The hash is XXH64 with seed 0 of the key's [`hash_tag`], scaled to the number of chains by `(hash × chains) >> 64`.
#[inline]
pub fn chain_of(key: &[u8], chains: u32) -> ChainId {
    if chains <= 1 {
        return ChainId(0);
    }
    let hash = hash::xxh64(hash_tag(key));
    ChainId(((u128::from(hash) * u128::from(chains)) >> 64) as u32)
}

/// The chain of all keys that begin with `prefix`, if the prefix has a [`hash_tag`] of its own, or if there is one chain.
pub fn chain_of_prefix(prefix: &[u8], chains: u32) -> Option<ChainId> {
    let has_tag = hash_tag(prefix).len() < prefix.len();
    (has_tag || chains <= 1).then(|| chain_of(prefix, chains))
}

/// The part of a key that decides its chain: the bytes between the first `{` and the next `}`, or the whole key if
/// there are no such bytes (Redis Cluster's rule).
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|&byte| byte == b'}').map(|close| &rest[..close])
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// All of `nodes`, in descending order of preference for `chain`: rendezvous hashing, highest score first.
///
/// In a new cluster the first nodes, one per replica, serve the chain; the others are its spares in this order. Adding
/// or removing a node moves only that node's share. The score depends on the node, not on its incarnation: a restart
/// moves nothing.
pub fn rank(cluster: ClusterId, chain: ChainId, nodes: impl IntoIterator<Item = MemberId>) -> Vec<MemberId> {
    let mut ranked: Vec<_> =
        nodes.into_iter().map(|member| (Reverse(score(cluster, chain, member.node)), member)).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, member)| member).collect()
}

/// The first eight bytes, big endian, of SHA-256 over `"artillery placement"`, a zero byte, the cluster id (16
/// bytes), the chain (4) and the node id (16), numbers in big endian.
fn score(cluster: ClusterId, chain: ChainId, node: NodeId) -> u64 {
    let digest = Sha256::new()
        .chain_update(b"artillery placement\0")
        .chain_update(cluster.0.to_be_bytes())
        .chain_update(chain.0.to_be_bytes())
        .chain_update(node.as_bytes())
        .finalize();
    digest[..8].iter().fold(0, |score, &byte| score << 8 | u64::from(byte))
}

/// The first configuration of every chain of a new cluster: epoch 1, at log index 1.
///
/// The first [`replicas`](super::ChainSettings::replicas) founders by [`rank`] serve; the others are unnamed spares.
/// Heads and tails are spread evenly over the nodes; the rank breaks ties.
pub fn first_configs(founding: &Bootstrap) -> Vec<ChainConfig> {
    let settings = founding.settings;
    let mut serving: Vec<_> = (0..settings.chains)
        .map(|chain| {
            let founders = founding.members.iter().map(|founder| founder.id);
            let mut ranked = rank(founding.cluster, ChainId(chain), founders);
            ranked.truncate(settings.replicas as usize);
            ranked
        })
        .collect();
    spread(&mut serving, 0);
    // The tail is chosen at the second place, so that the head keeps its place, and then moved to the end.
    if settings.replicas > 1 {
        spread(&mut serving, 1);
        serving.iter_mut().filter(|order| order.len() > 1).for_each(|order| order[1..].rotate_left(1));
    }
    let config = |(chain, order): (u32, Vec<MemberId>)| ChainConfig {
        chain: ChainId(chain),
        epoch: Epoch(1),
        index: 1,
        mode: settings.mode,
        min_members: settings.min_members,
        members: order.into_iter().map(|id| ChainMember { id, role: Role::Serving }).collect(),
    };
    (0..).zip(serving).map(config).collect()
}

/// Moves one member of each chain forward to `place`, so that the nodes hold that place about equally often. In each
/// round every chain chooses, from `place` on, the node that holds the place least often, until no choice changes or
/// `ROUNDS` are over.
fn spread(chains: &mut [Vec<MemberId>], place: usize) {
    const ROUNDS: usize = 16;
    let mut counts = BTreeMap::<MemberId, u32>::new();
    for round in 0..ROUNDS {
        let mut changed = false;
        for order in chains.iter_mut().filter(|order| order.len() > place) {
            let present = order[place];
            if round > 0 {
                counts.entry(present).and_modify(|count| *count -= 1);
            }
            let count = |at: usize| counts.get(&order[at]).copied().unwrap_or(0);
            let least = (place..order.len()).min_by_key(|&at| count(at)).unwrap_or(place);
            order[place..=least].rotate_right(1);
            changed |= order[place] != present;
            *counts.entry(order[place]).or_default() += 1;
        }
        if !changed {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
