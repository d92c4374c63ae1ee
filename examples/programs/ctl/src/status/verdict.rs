//! Decides whether the cluster serves, and names its problems, from the gathered reports alone.

use std::collections::BTreeSet;

use artillery_ddata::{
    ChainConfig,
    status::{ChainStatus, NodeStatus},
};

use super::gather::{ChainSeat, ClusterReport};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Writes {
    /// None, for example because too few members serve.
    None,
    /// Only deletes: the disk or memory of a serving member is full.
    Deletes,
    All,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) serves: bool,
    /// The writes that the least limited chain accepts.
    pub(super) writes: Writes,
    pub(super) problem: Option<String>,
}

impl Verdict {
    pub(super) fn of(whole: &ClusterReport) -> Self {
        let seats: Vec<_> = whole.routing.chains.iter().map(|chain| (chain.chain.0, whole.seats(chain))).collect();
        let closed: Vec<_> =
            seats.iter().filter(|(_, seats)| !seats.iter().any(serves)).map(|(chain, _)| *chain).collect();
        let silent = silent(seats.iter().flat_map(|(_, seats)| seats));
        let silent = (!silent.is_empty()).then(|| format!("no answer from {}", silent.join(", ")));
        let problems: Vec<_> = others(whole).into_iter().chain(silent).collect();
        if closed.is_empty() {
            let limits = whole.routing.chains.iter().zip(&seats).map(|(chain, (_, seats))| limit(chain, seats));
            return Self::of_limits(limits.collect(), problems);
        }
        let reasons = reasons(whole);
        let chains = closed.iter().map(|chain| format!("chain {chain} is not served")).collect::<Vec<_>>().join(", ");
        let all = [chains].into_iter().chain(problems).chain(reasons);
        Self { serves: false, writes: Writes::None, problem: Some(all.collect::<Vec<_>>().join("; ")) }
    }

    /// The verdict of a cluster whose chains all serve. A chain without a limit accepts all writes.
    fn of_limits(limits: Vec<Option<Limit>>, others: Vec<String>) -> Self {
        let writes = limits.iter().map(|limit| limit.as_ref().map_or(Writes::All, |limit| limit.writes)).max();
        let problems: Vec<_> = limits.into_iter().flatten().map(|limit| limit.why).chain(others).collect();
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        Self { serves: true, writes: writes.unwrap_or(Writes::All), problem }
    }

    pub(super) fn line(&self) -> String {
        match (self.serves, &self.problem) {
            (true, None) => "serving".to_owned(),
            (true, Some(problem)) => match self.writes {
                Writes::None => format!("serving reads only: {problem}"),
                Writes::Deletes => format!("serving reads and deletes only: {problem}"),
                Writes::All => format!("serving; {problem}"),
            },
            (false, problem) => format!("not serving: {}", problem.as_deref().unwrap_or("the reason is unknown")),
        }
    }
}

/// Whether a member can serve reads now.
fn serves(seat: &ChainSeat<'_>) -> bool {
    let is_leased = |view: &ChainStatus| view.lease_ms.is_none_or(|left| left > 0);
    seat.role != "syncing" && seat.view.is_ok_and(|view| view.open && view.halted.is_none() && is_leased(view))
}

struct Limit {
    writes: Writes,
    why: String,
}

/// The reason why the head of a chain refuses writes, from its configuration and its members' status; `None` if it
/// accepts all.
fn limit(chain: &ChainConfig, seats: &[ChainSeat<'_>]) -> Option<Limit> {
    let full = seats.iter().find_map(|seat| Some((seat.name.as_str(), seat.view.ok()?.full.as_ref()?.as_str())));
    if chain.is_sealed() {
        let why = format!(
            "chain {} accepts no writes: this cluster may be replaced by another one of the same name",
            chain.chain.0
        );
        return Some(Limit { writes: Writes::None, why });
    }
    limit_of(chain.chain.0, chain.serving().count(), chain.fewest(), full)
}

/// `full` is the name of a member and its full resource, `disk` or `memory`.
fn limit_of(chain: u32, have: usize, need: u32, full: Option<(&str, &str)>) -> Option<Limit> {
    if have < need as usize {
        let why = format!("chain {chain} accepts no writes: {have} of at least {need} members serve");
        return Some(Limit { writes: Writes::None, why });
    }
    let (name, what) = full?;
    Some(Limit {
        writes: Writes::Deletes,
        why: format!("chain {chain} accepts only deletes: the {what} of {name} is full"),
    })
}

fn silent<'a>(seats: impl Iterator<Item = &'a ChainSeat<'a>>) -> Vec<String> {
    let silent = seats.filter(|seat| seat.view.is_err()).map(|seat| seat.name.clone());
    silent.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The distinct reasons why nodes that answered are not ready.
fn reasons(whole: &ClusterReport) -> BTreeSet<String> {
    let others = others(whole);
    let all = statuses(whole).flat_map(|status| status.waiting_for.iter().cloned());
    all.filter(|reason| !others.contains(reason)).collect()
}

/// The other clusters of the same name that this cluster's nodes have met.
fn others(whole: &ClusterReport) -> BTreeSet<String> {
    statuses(whole).filter_map(|status| status.log.as_ref()?.another_cluster.clone()).collect()
}

fn statuses(whole: &ClusterReport) -> impl Iterator<Item = &NodeStatus> {
    whole.nodes.values().filter_map(|told| told.status.as_ref().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_begins_with_the_verdict() {
        let line = |serves, problem: Option<&str>| {
            Verdict { serves, writes: Writes::All, problem: problem.map(str::to_owned) }.line()
        };
        assert_eq!(line(true, None), "serving");
        assert_eq!(line(true, Some("no answer from b")), "serving; no answer from b");
        assert_eq!(line(false, Some("chain 0 is not served")), "not serving: chain 0 is not served");
    }

    #[test]
    fn a_cluster_that_refuses_writes_serves_reads_only() {
        let line = |limits, silent: Option<&str>| {
            Verdict::of_limits(limits, silent.map(str::to_owned).into_iter().collect()).line()
        };
        let few = || limit_of(0, 1, 2, Some(("a", "disk")));
        let full = || limit_of(1, 2, 2, Some(("b", "memory")));
        assert!(limit_of(0, 2, 2, None).is_none());
        assert_eq!(line(vec![None, None], None), "serving");
        let why = "chain 0 accepts no writes: 1 of at least 2 members serve";
        assert_eq!(line(vec![few()], Some("no answer from b")), format!("serving reads only: {why}; no answer from b"));
        let is_full = "chain 1 accepts only deletes: the memory of b is full";
        assert_eq!(line(vec![full()], None), format!("serving reads and deletes only: {is_full}"));
        assert_eq!(line(vec![few(), full()], None), format!("serving reads and deletes only: {why}; {is_full}"));
        assert_eq!(line(vec![few(), None], None), format!("serving; {why}"), "the other chain accepts writes");
    }
}
