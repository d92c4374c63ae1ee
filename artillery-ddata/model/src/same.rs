//! Verifies that worlds of equal fingerprint are equivalent. The exploration continues from only one of them: if they
//! differed, the states reachable from the other one would be missed.

use std::collections::{BTreeMap, btree_map::Entry};

use crate::{
    bounds::Bounds,
    world::{Action, World},
};

/// The number of worlds that were compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compared {
    /// The number of different states.
    pub states: usize,
    /// Worlds with the fingerprint of a known one.
    pub again: usize,
}

/// Visits every world within the bounds by every step that leads to it. Verifies that worlds of equal fingerprint are
/// equivalent: the same rules hold, the same steps are possible, and these lead to equal fingerprints again.
///
/// # Errors
/// The last step to a world that differs from a known one of equal fingerprint, and that fingerprint.
pub fn compare(bounds: Bounds) -> Result<Compared, (Option<Action>, u64)> {
    let mut known: BTreeMap<u64, Next> = BTreeMap::new();
    let mut again = 0;
    let mut waiting = vec![(None, World::new(bounds))];
    while let Some((last, world)) = waiting.pop() {
        let (next, worlds) = next(&world);
        match known.entry(world.fingerprint()) {
            Entry::Vacant(new) => {
                new.insert(next);
                waiting.extend(worlds);
            }
            Entry::Occupied(other) if *other.get() == next => again += 1,
            Entry::Occupied(other) => return Err((last, *other.key())),
        }
    }
    Ok(Compared { states: known.len(), again })
}

/// The rules that hold, the possible steps, and the resulting fingerprint of each step.
#[derive(PartialEq)]
struct Next {
    rules: [bool; 5],
    steps: Vec<(Action, u64)>,
}

fn next(world: &World) -> (Next, Vec<(Option<Action>, World)>) {
    let rules = [
        world.is_linearizable(),
        world.acknowledged_is_held(),
        world.committed_is_held(),
        world.has_one_history(),
        world.nobody_halted(),
    ];
    let mut actions = Vec::new();
    world.actions(&mut actions);
    let after = |action| {
        let mut next = world.clone();
        next.step(action);
        (Some(action), next)
    };
    let worlds: Vec<_> = actions.iter().copied().map(after).collect();
    let steps = actions.into_iter().zip(worlds.iter().map(|(_, world)| world.fingerprint())).collect();
    (Next { rules, steps }, worlds)
}
