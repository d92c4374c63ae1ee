//! Runs the checker.

use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use crate::{bounds::Bounds, world::Action};

/// The result of an exploration.
#[derive(Debug)]
pub struct Explored {
    /// The number of different states.
    pub states: usize,
    /// Steps taken, including those to known states.
    pub steps: usize,
    /// The longest sequence of steps from the initial state.
    pub depth: usize,
    /// The broken property, and the steps that lead to it.
    pub failure: Option<(&'static str, Vec<Action>)>,
    /// Properties that some run should reach, but none did.
    pub missing: Vec<&'static str>,
    /// Whether everything within the bounds was explored.
    pub complete: bool,
}

/// Explores for at most `at_most` on `threads` threads, breadth first (which finds the shortest failing run but needs
/// much memory) or depth first. A single thread never checks the time.
#[allow(clippy::disallowed_methods, reason = "an exploration may time out, and is then incomplete")]
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
