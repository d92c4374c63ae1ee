//! The world as the model checker's state, and its properties.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use stateright::{Model, Property};

use crate::{
    bounds::Bounds,
    world::{Action, World},
};

/// A world and its fingerprint, by which states are compared.
#[derive(Clone, Debug)]
pub struct State {
    world: Arc<World>,
    fingerprint: u64,
}

impl State {
    fn of(world: World) -> Self {
        let fingerprint = world.fingerprint();
        Self { world: Arc::new(world), fingerprint }
    }

    /// The world of this state.
    pub fn world(&self) -> &World {
        &self.world
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.fingerprint);
    }
}

impl Model for Bounds {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::of(World::new(*self))]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        state.world.actions(actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut world = World::clone(&last.world);
        world.step(action);
        Some(State::of(world))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always("what clients saw is linearizable", |_: &Self, state: &State| {
                state.world.is_linearizable()
            }),
            Property::always("every serving member holds every acknowledged write", |_: &Self, state: &State| {
                state.world.acknowledged_is_held()
            }),
            Property::always("every serving member holds every committed update", |_: &Self, state: &State| {
                state.world.committed_is_held()
            }),
            Property::always("there is one committed history", |_: &Self, state: &State| state.world.has_one_history()),
            Property::always("no member halts", |_: &Self, state: &State| state.world.nobody_halted()),
            Property::always("no member joins", |_: &Self, state: &State| state.world.nobody_joins()),
            Property::sometimes("all operations are done", |_: &Self, state: &State| state.world.all_done()),
        ];
        if self.reads {
            all.push(Property::sometimes("the head serves the read at its gate", |_: &Self, state: &State| {
                state.world.read_at(0, true)
            }));
            all.push(Property::sometimes("the middle serves the read at its gate", |_: &Self, state: &State| {
                state.world.read_at(1, true)
            }));
            all.push(Property::sometimes("the tail serves the read at its gate", |_: &Self, state: &State| {
                state.world.read_at(2, true)
            }));
        }
        if self.reads && self.writes > 0 {
            all.push(Property::sometimes("the middle queries the tail for the read", |_: &Self, state: &State| {
                state.world.read_at(1, false)
            }));
        }
        if self.undialable {
            all.push(Property::always(
                "a leader that no node can dial removes no member",
                |_: &Self, state: &State| state.world.unreached_leader_removes_none(),
            ));
        }
        if self.undialable && self.ticks > 9 {
            all.push(Property::sometimes("a leader that no node can dial resigns", |_: &Self, state: &State| {
                state.world.unreached_leader_gave_up()
            }));
        }
        if self.reads && self.faults > 0 && !self.undialable {
            all.push(Property::sometimes("a node that is cut off serves the read", |_: &Self, state: &State| {
                state.world.read_cut_off()
            }));
        }
        if self.faults > 0 && !self.undialable && self.changes > 0 && self.writes > 0 && self.ticks > 5 {
            all.push(Property::sometimes("a write is acknowledged after the change", |_: &Self, state: &State| {
                state.world.acknowledged_after_change()
            }));
        }
        all
    }
}
