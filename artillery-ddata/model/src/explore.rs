//! Runs the checker.

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use crate::{bounds::Bounds, world::Action};

/// The result of an exploration.
#[derive(Debug)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Steps taken, also those to known states.
    pub steps: usize,
    /// Most steps in a row from the beginning.
    pub depth: usize,
    /// The broken property, and the steps to it.
    pub failure: Option<(&'static str, Vec<Action>)>,
    /// Properties that some run should have shown and none has.
    pub missing: Vec<&'static str>,
    /// Whether everything within the bounds was explored.
    pub complete: bool,
}

/// Explores on `threads` threads for `at_most` that long, breadth first (finds the shortest failing run, takes much memory)
/// or depth first.
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
