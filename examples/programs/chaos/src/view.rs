//! The state of the cluster as the nodes report it, and which nodes must not be removed in that state.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;

use super::{
    cluster::LEASE,
    fault::{Fault, Kind, minority, name},
    set::NodeSet,
};

#[derive(Debug, Default)]
pub(super) struct View {
    /// Serving members of the chain's newest configuration, head first.
    pub(super) members: Vec<String>,
    /// The members that serve by their own report.
    pub(super) serving: BTreeSet<String>,
    /// The leader of the configuration log.
    pub(super) leader: Option<String>,
    /// Voters of the configuration log.
    pub(super) voters: BTreeSet<String>,
    pub(super) ready: BTreeSet<String>,
    /// The remaining lease that each serving member reports: it doesn't lose its place before the lease ends.
    pub(super) leases: BTreeMap<String, Duration>,
    /// Whether the leader reports that no change of the configuration is pending.
    pub(super) settled: bool,
}

impl View {
    pub(super) fn of(all: &[Value]) -> Self {
        let chains = || all.iter().filter_map(|status| Some((status["node"].as_str()?, status["chains"].get(0)?)));
        let newest = chains().filter_map(|(_, chain)| chain["epoch"].as_u64()).max();
        let same = || chains().filter(|(_, chain)| chain["epoch"].as_u64() == newest && newest.is_some());
        let members = same().next().map(|(_, chain)| names(&chain["members"])).unwrap_or_default();
        let serves =
            |(node, chain): &(&str, &Value)| chain["role"] != "syncing" && members.iter().any(|member| member == node);
        let serving = same().filter(serves).map(|(node, _)| node.to_owned()).collect();
        let left = |chain: &Value| Some(Duration::from_millis(chain["lease_ms"].as_u64()?).min(LEASE));
        let leases = same().filter(serves).filter_map(|(node, chain)| Some((node.to_owned(), left(chain)?))).collect();
        let settles = |status: &Value| status["log"]["leader"] == status["node"] && status["log"]["settled"] == true;
        let settled = all.iter().any(settles);
        let log = all.iter().map(|status| &status["log"]).max_by_key(|log| log["applied"].as_u64());
        let leader = log.and_then(|log| Some(log["leader"].as_str()?.to_owned()));
        let voters = log.map(|log| names(&log["voters"]).into_iter().collect()).unwrap_or_default();
        let ready = all.iter().filter(|status| status["ready"] == true);
        let ready = ready.filter_map(|status| Some(status["node"].as_str()?.to_owned())).collect();
        Self { members, serving, leader, voters, ready, leases, settled }
    }

    /// The reason why the directories of these nodes must not be changed. At most a minority of the voters may lose
    /// theirs, unless an operator `recovers` the cluster, and a member that holds everything acknowledged must keep its
    /// own.
    pub(super) fn forbids_to_touch(&self, touched: NodeSet, recovers: bool) -> Option<&'static str> {
        let voters = touched.iter().filter(|node| self.voters.contains(&name(*node))).count();
        if !self.settled {
            return Some("changed directories while the configuration is about to change");
        }
        if voters > minority(self.voters.len()) && !recovers {
            return Some("changed directories of a majority of the voters");
        }
        self.keeps(touched).is_zero().then_some("changed directories of all members that hold a lease")
    }

    /// How long, from the time of this view, a member outside `touched` certainly serves. If all nodes end within that
    /// time, its store is one of the stores that served last.
    pub(super) fn keeps(&self, touched: NodeSet) -> Duration {
        let kept = self.leases.iter().filter(|(member, _)| !touched.iter().any(|node| name(node) == **member));
        kept.map(|(_, lease)| *lease).max().unwrap_or_default()
    }

    pub(super) fn are_all_members(&self, nodes: NodeSet) -> bool {
        self.members.iter().all(|member| nodes.iter().any(|node| name(node) == *member))
    }

    /// The reason why a node must not be removed. `away` are the other nodes that are unreachable or being removed.
    pub(super) fn forbids(&self, taking: Taking, node: usize, away: NodeSet) -> Option<&'static str> {
        let is_last = |of: &BTreeSet<String>| {
            let mut others = of.clone();
            away.iter().for_each(|away| _ = others.remove(&name(away)));
            let was_there = others.remove(&name(node));
            // If none is known, this node may be the only one.
            others.is_empty() && (was_there || of.is_empty())
        };
        match taking {
            Taking::Kill if is_last(&self.voters) => Some("kill of the only voter"),
            Taking::Kill if self.may_become_only_voter(node, away) => {
                Some("kill of a node that may be the only voter by then")
            }
            Taking::Kill if is_last(&self.serving) => Some("kill of the only serving member"),
            Taking::Stop if is_last(&self.serving) => Some("SIGTERM or drain of the only serving member"),
            Taking::Kill | Taking::Stop => None,
        }
    }

    /// When one of three voters leaves, a single voter remains, which may be any of the others.
    fn may_become_only_voter(&self, node: usize, away: NodeSet) -> bool {
        let leaving = away.iter().filter(|away| self.voters.contains(&name(*away))).count();
        self.voters.contains(&name(node)) && leaving > 0 && self.voters.len() - leaving <= 2
    }
}

fn names(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taking {
    Kill,
    Stop,
}

impl Fault {
    pub(super) fn taking(&self) -> Option<Taking> {
        match self.kind {
            Kind::Kill => Some(Taking::Kill),
            Kind::Young if self.instead => Some(Taking::Kill),
            Kind::Restart => Some(Taking::Stop),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn status(node: &str, epoch: u64, role: &str, members: &[&str]) -> Value {
        let chain = json!({"epoch": epoch, "role": role, "members": members, "lease_ms": 700});
        json!({"node": node, "ready": role != "syncing", "chains": [chain],
               "log": {"applied": epoch, "leader": "n3", "voters": ["n1", "n3"], "settled": node == "n3"}})
    }

    #[test]
    fn the_newest_epoch_says_which_members_serve() {
        let all = [
            status("n1", 4, "head", &["n1", "n2", "n3"]),
            status("n2", 5, "syncing", &["n2", "n3"]),
            status("n3", 5, "tail", &["n2", "n3"]),
            json!({"node": "n4", "ready": true, "chains": [], "log": {"applied": 2, "voters": ["n4"]}}),
        ];
        let view = View::of(&all);
        assert_eq!(view.members, ["n2", "n3"]);
        assert_eq!(view.serving, set(&["n3"]), "n2 has restarted empty under its old name");
        assert_eq!(view.voters, set(&["n1", "n3"]));
        assert_eq!(view.leader.as_deref(), Some("n3"));
        assert_eq!(view.ready, set(&["n1", "n3", "n4"]));
        assert!(view.settled);
        assert!(!View::of(&all[..2]).settled, "the leader doesn't answer");
        assert_eq!(view.keeps(NodeSet::of(0)), Duration::from_millis(700));
        assert_eq!(view.keeps(NodeSet::of(2)), Duration::ZERO, "n1 and n2 don't serve in the newest epoch");
        assert!(view.are_all_members(NodeSet::all(3)) && !view.are_all_members(NodeSet::all(2)));
        assert!(View::of(&[]).members.is_empty());
    }

    #[test]
    fn a_minority_of_the_voters_and_not_all_members_lose_their_directories() {
        let leases = [("n1".to_owned(), LEASE), ("n2".to_owned(), Duration::ZERO), ("n4".to_owned(), LEASE)].into();
        let view = View { voters: set(&["n1", "n2", "n3"]), settled: true, leases, ..View::default() };
        let touch = |nodes: &[usize]| view.forbids_to_touch(nodes.iter().copied().collect(), false);
        assert_eq!(touch(&[0]), None);
        assert_eq!(touch(&[0, 4]), None, "n5 is not a voter");
        assert!(touch(&[0, 1]).is_some_and(|why| why.contains("majority")));
        assert!(touch(&[0, 3]).is_some_and(|why| why.contains("lease")), "n2 may have lost its place");
        let view = View { settled: false, ..view };
        assert!(view.forbids_to_touch(NodeSet::of(0), true).is_some());
    }

    #[test]
    fn the_only_voter_and_the_only_serving_member_are_not_killed() {
        let view = View { serving: set(&["n1", "n2"]), voters: set(&["n1", "n3"]), ..View::default() };
        let kill = |node, away: &[usize]| view.forbids(Taking::Kill, node, away.iter().copied().collect());
        assert_eq!(kill(0, &[]), None);
        assert_eq!(kill(0, &[2]), Some("kill of the only voter"));
        assert_eq!(kill(0, &[1]), Some("kill of the only serving member"));
        assert_eq!(kill(3, &[0, 1, 2]), None, "a spare is neither");
    }

    #[test]
    fn no_voter_is_killed_while_three_become_one() {
        let serving = set(&["n4", "n5"]);
        let view = View { serving, voters: set(&["n1", "n2", "n3"]), ..View::default() };
        let kill = |node, away: &[usize]| view.forbids(Taking::Kill, node, away.iter().copied().collect());
        assert_eq!(kill(0, &[]), None);
        assert_eq!(kill(0, &[3]), None, "another node leaves");
        assert_eq!(kill(0, &[1]), Some("kill of a node that may be the only voter by then"));
        assert_eq!(kill(3, &[1]), None, "not a voter");
        let voters = ["n1", "n2", "n3", "n6", "n7"];
        let view = View { voters: set(&voters), ..view };
        assert_eq!(view.forbids(Taking::Kill, 0, NodeSet::of(1)), None, "five become three");
    }

    #[test]
    fn the_only_serving_member_is_not_stopped() {
        let view = View { serving: set(&["n1", "n2"]), voters: set(&["n1"]), ..View::default() };
        let stop = |node, away: &[usize]| view.forbids(Taking::Stop, node, away.iter().copied().collect());
        assert_eq!(stop(0, &[]), None, "the only voter may leave");
        assert_eq!(stop(0, &[1]), Some("SIGTERM or drain of the only serving member"));
        assert_eq!(stop(2, &[1]), None);
    }

    #[test]
    fn no_node_is_taken_away_while_none_is_known_to_serve() {
        let view = View::default();
        assert!(view.forbids(Taking::Stop, 0, NodeSet::default()).is_some());
        assert!(view.forbids(Taking::Kill, 0, NodeSet::default()).is_some());
    }
}
