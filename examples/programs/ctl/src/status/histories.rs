//! Diverged histories of one cluster, side by side. Which one to keep is an operator's decision.

use std::{collections::BTreeMap, fmt::Write};

use artillery_ddata::{
    ClusterId,
    admin::{Branch, History, Standing},
};
use serde_json::{Value, json};

use crate::output::plain_table;

/// The nodes that answered, grouped by history, the newest history first.
fn histories(cluster: ClusterId, standings: &[Standing]) -> Vec<(History, Vec<&Standing>)> {
    let mut found = BTreeMap::<_, (History, Vec<&Standing>)>::new();
    for standing in standings.iter().filter(|standing| standing.cluster == cluster) {
        let History { generation, id } = standing.history;
        found.entry((generation, id)).or_insert((standing.history, Vec::new())).1.push(standing);
    }
    let mut found: Vec<_> = found.into_values().rev().collect();
    found.iter_mut().for_each(|(_, nodes)| nodes.sort_by(|a, b| a.me.name.cmp(&b.me.name)));
    found
}

/// The point where this history left the previous one, as one of its nodes reports it.
fn branch<'a>(nodes: &[&'a Standing]) -> Option<&'a Branch> {
    nodes.iter().find_map(|standing| standing.branches.last())
}

/// The text for people; `None` if all nodes that answer belong to one history.
pub(super) fn text(cluster: ClusterId, standings: &[Standing]) -> Option<String> {
    let found = histories(cluster, standings);
    if found.len() < 2 {
        return None;
    }
    let mut text =
        "THE HISTORIES OF THIS CLUSTER HAVE DIVERGED: each may hold updates that the other doesn't have. An operator must \
         decide which one to keep: \"Parted histories\" in docs/operations.md\n"
            .to_owned();
    let mut table = plain_table(&["history", "node", "chain", "epoch", "last", "watermark", ""]);
    for (history, nodes) in &found {
        for standing in nodes {
            for held in &standing.chains {
                let chain = [held.config.chain.0.to_string(), held.config.epoch.0.to_string()];
                let held = [held.last.to_string(), held.watermark.0.to_string()];
                let note = if standing.yields { "waits for an operator" } else { "" };
                let node = [history.to_string(), standing.me.name.clone()];
                table.add_row(node.into_iter().chain(chain).chain(held).chain([note.to_owned()]));
            }
        }
    }
    // Writing to a string can't fail.
    let _ = writeln!(text, "{table}");
    for (history, nodes) in &found {
        let Some(Branch { from, chains }) = branch(nodes) else { continue };
        for kept in chains {
            let (chain, last, epoch) = (kept.chain.0, kept.last, kept.epoch.0);
            let _ =
                writeln!(text, "{history} left {from} at version {last} of chain {chain}, as served in epoch {epoch}");
        }
    }
    Some(text)
}

/// The objects that `docs/json.md` describes.
pub(super) fn objects(cluster: ClusterId, standings: &[Standing]) -> Vec<Value> {
    histories(cluster, standings)
        .into_iter()
        .map(|(history, nodes)| {
            let left = branch(&nodes).map(|branch| {
                let chains = branch
                    .chains
                    .iter()
                    .map(|kept| json!({ "chain": kept.chain.0, "epoch": kept.epoch.0, "last": kept.last.to_string() }));
                json!({ "from": branch.from.to_string(), "chains": chains.collect::<Vec<_>>() })
            });
            let nodes: Vec<_> = nodes.into_iter().map(node).collect();
            json!({ "history": history.to_string(), "left": left, "nodes": nodes })
        })
        .collect()
}

fn node(standing: &Standing) -> Value {
    let chains = standing.chains.iter().map(|held| {
        json!({
            "chain": held.config.chain.0, "epoch": held.config.epoch.0, "last": held.last.to_string(),
            "watermark": held.watermark.0,
        })
    });
    json!({
        "node": standing.me.name, "id": standing.me.id.to_string(), "waits": standing.yields,
        "chains": chains.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use artillery_ddata::{
        ChainConfig, ChainId, Incarnation, MemberId, Mode, NodeId, Version,
        admin::{ChainBranch, ChainStanding, NodeInfo},
    };

    use super::*;

    const CLUSTER: ClusterId = ClusterId(7);
    const FIRST: History = History { generation: 0, id: 7 };

    fn standing(name: &str, history: History, last: Version) -> Standing {
        let id = MemberId { node: NodeId::from_name(name), incarnation: Incarnation { store: 1, starts: 1 } };
        let config = ChainConfig {
            chain: ChainId(0),
            epoch: last.epoch,
            index: 1,
            mode: Mode::Craq,
            min_members: 1,
            members: vec![],
        };
        let watermark = last.sequence;
        let chain = ChainStanding { config, serves: None, whole: true, synced: true, last, watermark };
        Standing {
            me: NodeInfo { id, name: name.to_owned(), addrs: vec![], host: None },
            cluster: CLUSTER,
            history,
            applied: Default::default(),
            leads: false,
            log: None,
            voters: vec![],
            in_touch: None,
            heard: None,
            served: true,
            successor: None,
            yields: false,
            branches: vec![],
            member_heard: None,
            chains: vec![chain],
        }
    }

    fn parted() -> [Standing; 3] {
        let branch = Version::new(5, 100);
        let kept = ChainBranch { chain: ChainId(0), epoch: branch.epoch, last: branch, synced: true };
        let mut newer = standing("a", FIRST.next(9), Version::new(1_048_582, 103));
        newer.branches = vec![Branch { from: FIRST, chains: vec![kept] }];
        let mut waits = standing("b", FIRST, Version::new(6, 120));
        waits.yields = true;
        let elsewhere = Standing { cluster: ClusterId(8), ..standing("c", FIRST.next(1), branch) };
        [waits, newer, elsewhere]
    }

    #[test]
    fn parted_histories_stand_side_by_side() {
        let text = text(CLUSTER, &parted()).unwrap();
        let (newer, older) = (FIRST.next(9).to_string(), FIRST.to_string());
        assert!(
            text.contains(&format!("{newer} left {older} at version 5.100 of chain 0, as served in epoch 5")),
            "{text}"
        );
        let line = |history: &str| text.lines().find(|line| line.trim_start().starts_with(history)).unwrap().to_owned();
        assert!(line(&newer).contains("1048582.103"), "{text}");
        assert!(
            ["b", "6.120", "120", "waits for an operator"].iter().all(|part| line(&older).contains(part)),
            "{text}"
        );
        assert!(text.contains("An operator must decide") && text.contains("docs/operations.md"), "{text}");
    }

    #[test]
    fn one_history_needs_no_decision() {
        let nodes = ["a", "b"].map(|name| standing(name, FIRST, Version::new(5, 100)));
        assert_eq!(text(CLUSTER, &nodes), None);
        assert_eq!(objects(CLUSTER, &nodes).len(), 1);
    }

    #[test]
    fn scripts_get_the_newest_history_first() {
        let found = objects(CLUSTER, &parted());
        assert_eq!(found.len(), 2, "another cluster has no part in this: {found:?}");
        assert_eq!(found[0]["left"]["from"], FIRST.to_string());
        assert_eq!(found[0]["left"]["chains"][0]["last"], "5.100");
        assert_eq!((&found[1]["left"], &found[1]["nodes"][0]["waits"]), (&Value::Null, &json!(true)));
        assert_eq!(
            found[1]["nodes"][0]["chains"][0],
            json!({ "chain": 0, "epoch": 6, "last": "6.120", "watermark": 120 })
        );
    }
}
