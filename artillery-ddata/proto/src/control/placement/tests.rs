use std::collections::BTreeSet;

use super::*;
use crate::{
    Incarnation,
    control::{ChainSettings, NodeInfo},
};

fn member(name: &str) -> MemberId {
    MemberId { node: NodeId::from_name(name), incarnation: Incarnation { store: 7, starts: 1 } }
}

fn nodes(count: usize) -> Vec<MemberId> {
    (0..count).map(|n| member(&format!("node-{n}"))).collect()
}

fn founding(count: usize, chains: u32, replicas: u32) -> Bootstrap {
    let members =
        nodes(count).into_iter().map(|id| NodeInfo { id, name: String::new(), addrs: vec![], host: None }).collect();
    let settings = ChainSettings { chains, replicas, ..ChainSettings::default() };
    Bootstrap { settings, ..Bootstrap::new(ClusterId(0xC1), "shop", members) }
}

#[test]
fn tags_by_the_rule_of_redis_cluster() {
    let cases: [(&str, &str); 9] = [
        ("{user1000}.following", "user1000"),
        ("cart{7}", "7"),
        ("foo{}{bar}", "foo{}{bar}"),
        ("foo{{bar}}zap", "{bar"),
        ("foo{bar}{zap}", "bar"),
        ("}x{y}", "y"),
        ("{unclosed", "{unclosed"),
        ("plain", "plain"),
        ("", ""),
    ];
    for (key, tag) in cases {
        assert_eq!(hash_tag(key.as_bytes()), tag.as_bytes(), "{key}");
    }
    assert_eq!(chain_of(b"cart{7}", 1000), chain_of(b"order{7}", 1000));
    assert_eq!(chain_of(b"cart{7}", 1000), chain_of(b"7", 1000));
}

/// If any of these values changed, existing clusters would lose their data. Another implementation computes the same
/// values.
#[test]
fn golden_chains() {
    let chains = |count| ["", "a", "greeting", "stock/7", "cart{7}"].map(|key| chain_of(key.as_bytes(), count).0);
    assert_eq!(chains(1), [0; 5]);
    assert_eq!(chains(7), [6, 5, 6, 6, 0]);
    assert_eq!(chains(256), [239, 210, 231, 241, 24]);
}

#[test]
fn golden_ranks() {
    let order = |chain| -> Vec<usize> {
        let nodes = nodes(5);
        let ranked = rank(ClusterId(0xC1), ChainId(chain), nodes.clone());
        ranked.iter().map(|member| nodes.iter().position(|node| node == member).unwrap()).collect()
    };
    assert_eq!([order(0), order(1), order(2)], [[3, 2, 0, 1, 4], [4, 3, 1, 0, 2], [4, 2, 0, 3, 1]]);
}

#[test]
fn keys_spread_over_all_chains() {
    let mut counts = [0u32; 16];
    for key in 0..16_000 {
        counts[chain_of(format!("key-{key}").as_bytes(), 16).0 as usize] += 1;
    }
    assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
}

#[test]
fn a_restart_moves_nothing() {
    let before = nodes(5);
    let after = before.iter().map(|&member| {
        let incarnation = Incarnation { store: member.incarnation.store + 1, starts: 9 };
        MemberId { incarnation, ..member }
    });
    let names = |ranked: Vec<MemberId>| ranked.into_iter().map(|member| member.node).collect::<Vec<_>>();
    for chain in (0..50).map(ChainId) {
        let cluster = ClusterId(3);
        assert_eq!(names(rank(cluster, chain, before.clone())), names(rank(cluster, chain, after.clone())));
    }
}

#[test]
fn the_order_of_nodes_does_not_matter() {
    let mut nodes = nodes(6);
    let ranked = rank(ClusterId(1), ChainId(2), nodes.clone());
    nodes.reverse();
    assert_eq!(rank(ClusterId(1), ChainId(2), nodes), ranked);
}

#[test]
fn one_node_more_takes_its_share_and_moves_nothing_else() {
    let (old, new) = (nodes(9), nodes(10));
    let mut moved = 0;
    for chain in (0..1000).map(ChainId) {
        let before: BTreeSet<_> = rank(ClusterId(1), chain, old.clone()).into_iter().take(3).collect();
        let after: BTreeSet<_> = rank(ClusterId(1), chain, new.clone()).into_iter().take(3).collect();
        let came: Vec<_> = after.difference(&before).collect();
        assert!(came.is_empty() || came == [&new[9]]);
        moved += came.len();
    }
    assert!((200..400).contains(&moved), "{moved} of 3000 places, 300 were expected");
}

#[test]
fn first_configurations_name_the_first_by_rank() {
    let founding = founding(5, 40, 3);
    let configs = first_configs(&founding);
    assert_eq!(configs.len(), 40);
    for (n, config) in configs.iter().enumerate() {
        assert_eq!((config.chain, config.epoch, config.index), (ChainId(n as u32), Epoch(1), 1));
        let serving: BTreeSet<_> = config.serving().collect();
        let first = rank(founding.cluster, config.chain, nodes(5)).into_iter().take(3).collect();
        assert_eq!(serving, first);
        assert_eq!(config.syncing(), None);
    }
}

#[test]
fn fewer_founders_than_replicas_all_serve() {
    assert_eq!(first_configs(&founding(1, 1, 3))[0].serving().count(), 1);
    assert_eq!(first_configs(&founding(2, 1, 3))[0].serving().count(), 2);
}

#[test]
fn heads_and_tails_are_spread_evenly() {
    for (count, chains, replicas) in [(3, 3, 3), (3, 64, 3), (5, 64, 3), (9, 256, 3), (4, 32, 2), (4, 8, 1)] {
        let configs = first_configs(&founding(count, chains, replicas));
        let spread = |end: fn(&ChainConfig) -> Option<MemberId>| {
            let mut counts = BTreeMap::<MemberId, u32>::new();
            configs.iter().for_each(|config| *counts.entry(end(config).unwrap()).or_default() += 1);
            assert!(replicas == 1 || counts.len() == count, "every node has one: {counts:?}");
            counts.values().max().unwrap() - counts.values().min().unwrap()
        };
        // With two members the head decides the tail; with one there is no choice at all.
        assert!(replicas == 1 || spread(ChainConfig::head) <= 1, "{count} nodes, {chains} chains");
        assert!(replicas <= 2 || spread(ChainConfig::tail) <= 1, "{count} nodes, {chains} chains");
    }
}
