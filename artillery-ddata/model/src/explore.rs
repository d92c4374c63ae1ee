//! Runs the checker.

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use crate::{bounds::Bounds, world::Action};

/// What came of an exploration.
#[derive(Debug)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Steps to states, known ones too.
    pub steps: usize,
    /// Steps from the beginning, at most.
    pub depth: usize,
    /// What is wrong, and the steps to it.
    pub failure: Option<(&'static str, Vec<Action>)>,
    /// What no run has shown though one should.
    pub missing: Vec<&'static str>,
    /// All was explored.
    pub complete: bool,
}

/// Explores on so many threads, for so long at most: breadth first (the shortest failing run, much memory) or depth first.
#[allow(clippy::disallowed_methods, reason = "an exploration may be ended, and is then not complete")]
pub fn explore(bounds: Bounds, threads: usize, breadth: bool, at_most: Duration) -> Explored {
    let checker = bounds.checker().threads(threads).timeout(at_most).finish_when(HasDiscoveries::AnyFailures);
    let began = Instant::now();
    let explored = if breadth { result(checker.spawn_bfs().join()) } else { result(checker.spawn_dfs().join()) };
    Explored { complete: explored.failure.is_none() && began.elapsed() < at_most, ..explored }
}

fn result(checker: impl Checker<Bounds>) -> Explored {
    let mut found = checker.discoveries();
    let properties = checker.model().properties();
    let (always, sometimes): (Vec<_>, Vec<_>) =
        properties.iter().partition(|property| property.expectation.discovery_is_failure());
    let missing = sometimes.iter().map(|property| property.name).filter(|name| !found.contains_key(name)).collect();
    let failure = always.iter().find_map(|property| found.remove(property.name).map(|path| (property.name, path)));
    Explored {
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        failure: failure.map(|(name, path)| (name, path.into_actions())),
        missing,
        complete: false,
    }
}
