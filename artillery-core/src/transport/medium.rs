//! A simulated network below its endpoints: what carries streams, how long a piece is on its way, and what breaks.

mod end;
mod line;
mod pipe;
mod port;

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub(super) use end::{Accept, LineEnd, PipeReader, PipeWriter};
pub(super) use line::SimulatedLine;
pub(super) use port::SimulatedPort;

use super::waiters::Waiters;
use crate::id::NodeId;

/// How a network treats what it carries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weather {
    /// The shortest time that a piece is on its way.
    pub shortest: Duration,
    /// The longest time, where nothing is lost.
    pub longest: Duration,
    /// The chance, from 0 to 1, that a piece is lost and sent again, which takes [`resent`](Self::resent) longer.
    pub lost: f64,
    /// By how much a loss delays a piece.
    pub resent: Duration,
    /// The chance, from 0 to 1, that a connection breaks when a piece is sent over it.
    pub broken: f64,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            shortest: Duration::from_micros(200),
            longest: Duration::from_millis(3),
            lost: 0.02,
            resent: Duration::from_millis(50),
            broken: 0.0,
        }
    }
}

/// What all connections of a simulated network run over.
#[derive(Debug)]
pub(super) struct Medium {
    state: Mutex<MediumState>,
    /// Tasks that wait until something may pass.
    waiters: Waiters,
}

#[derive(Debug)]
pub(super) struct MediumState {
    random: ChaCha8Rng,
    pub(super) weather: Weather,
    /// Directions in which nothing passes: from the first node to the second.
    pub(super) cut: BTreeSet<(NodeId, NodeId)>,
    /// Nodes from and to which nothing passes.
    pub(super) apart: BTreeSet<NodeId>,
    /// Nodes from and to which nothing passes, also after all others were brought back.
    pub(super) dead: BTreeSet<NodeId>,
}

impl Medium {
    pub(super) fn new(seed: u64, weather: Weather) -> Self {
        let state = MediumState {
            random: ChaCha8Rng::seed_from_u64(seed),
            weather,
            cut: BTreeSet::new(),
            apart: BTreeSet::new(),
            dead: BTreeSet::new(),
        };
        Self { state: Mutex::new(state), waiters: Waiters::default() }
    }

    fn lock(&self) -> MutexGuard<'_, MediumState> {
        // A poisoned lock is still consistent: no code that holds it can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes the waiting tasks if `change` says that anything has changed for them.
    pub(super) fn change(&self, change: impl FnOnce(&mut MediumState) -> bool) {
        if change(&mut self.lock()) {
            self.waiters.wake();
        }
    }

    pub(super) fn is_open(&self, from: NodeId, to: NodeId) -> bool {
        let state = self.lock();
        let is_gone = |node| state.apart.contains(node) || state.dead.contains(node);
        !state.cut.contains(&(from, to)) && !is_gone(&from) && !is_gone(&to)
    }

    /// Waits until `wanted` holds.
    pub(super) async fn until(&self, wanted: impl Fn(&Self) -> bool) {
        self.waiters.until(|| wanted(self).then_some(())).await;
    }

    /// A random number from 0 up to 1, from the network's seed.
    pub(super) fn chance(&self) -> f64 {
        self.lock().random.random()
    }

    /// How long the next piece is on its way, and whether its connection breaks now.
    pub(super) fn draw_delay(&self) -> (Duration, bool) {
        let state = &mut *self.lock();
        let Weather { shortest, longest, lost, resent, broken } = state.weather;
        let spread = longest.saturating_sub(shortest).mul_f64(state.random.random::<f64>());
        let late = if state.random.random::<f64>() < lost { resent } else { Duration::ZERO };
        (shortest + spread + late, state.random.random::<f64>() < broken)
    }
}
