//! Whether the cluster serves, and what is wrong. Pure.

use std::collections::BTreeSet;

use artillery_ddata::status::ChainStatus;

use super::gather::{ChainSeat, ClusterReport};

/// Whether a cluster serves.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) serves: bool,
    /// What is wrong, if anything is.
    pub(super) problem: Option<String>,
}

impl Verdict {
    pub(super) fn of(whole: &ClusterReport) -> Self {
        let seats: Vec<_> = whole.routing.chains.iter().map(|chain| (chain.chain.0, whole.seats(chain))).collect();
        let closed: Vec<_> =
            seats.iter().filter(|(_, seats)| !seats.iter().any(serves)).map(|(chain, _)| *chain).collect();
        let silent = silent(seats.iter().flat_map(|(_, seats)| seats));
        let silent = (!silent.is_empty()).then(|| format!("no answer from {}", silent.join(", ")));
        if closed.is_empty() {
            return Self { serves: true, problem: silent };
        }
        let reasons = reasons(whole);
        let chains = closed.iter().map(|chain| format!("chain {chain} is not served")).collect::<Vec<_>>().join(", ");
        let all = [Some(chains)].into_iter().chain([silent]).chain(reasons.into_iter().map(Some));
        Self { serves: false, problem: Some(all.flatten().collect::<Vec<_>>().join("; ")) }
    }

    /// The verdict in one line.
    pub(super) fn line(&self) -> String {
        match (self.serves, &self.problem) {
            (true, None) => "serving".to_owned(),
            (true, Some(problem)) => format!("serving; {problem}"),
            (false, problem) => format!("not serving: {}", problem.as_deref().unwrap_or("the reason is unknown")),
        }
    }
}

/// Whether a member can serve reads now.
fn serves(seat: &ChainSeat<'_>) -> bool {
    let is_leased = |view: &ChainStatus| view.lease_ms.is_none_or(|left| left > 0);
    seat.role != "syncing" && seat.view.is_ok_and(|view| view.open && view.halted.is_none() && is_leased(view))
}

/// The members that gave no answer, each once.
fn silent<'a>(seats: impl Iterator<Item = &'a ChainSeat<'a>>) -> Vec<String> {
    let silent = seats.filter(|seat| seat.view.is_err()).map(|seat| seat.name.clone());
    silent.collect::<BTreeSet<_>>().into_iter().collect()
}

/// What the nodes that answered wait for, each reason once.
fn reasons(whole: &ClusterReport) -> BTreeSet<String> {
    let told = whole.nodes.values().filter_map(|told| told.status.as_ref().ok());
    told.flat_map(|status| status.waiting_for.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_begins_with_the_verdict() {
        let line = |serves, problem: Option<&str>| Verdict { serves, problem: problem.map(str::to_owned) }.line();
        assert_eq!(line(true, None), "serving");
        assert_eq!(line(true, Some("no answer from b")), "serving; no answer from b");
        assert_eq!(line(false, Some("chain 0 is not served")), "not serving: chain 0 is not served");
    }
}
