//! The medium of a simulated network: delays, losses, cuts and broken connections.

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

/// How a network treats the pieces that it carries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weather {
    /// Minimum delay of a piece.
    pub shortest: Duration,
    /// Maximum delay of a piece that is not lost.
    pub longest: Duration,
    /// The probability, from 0 to 1, that a piece is lost and sent again, which delays it by [`resent`](Self::resent).
    pub lost: f64,
    /// The additional delay of a lost piece.
    pub resent: Duration,
    /// The probability, from 0 to 1, that a connection breaks when a piece is sent over it.
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

#[derive(Debug)]
pub(super) struct Medium {
    state: Mutex<MediumState>,
    /// Tasks that wait for a path to open.
    waiters: Waiters,
}

#[derive(Debug)]
pub(super) struct MediumState {
    random: ChaCha8Rng,
    pub(super) weather: Weather,
    /// Cut directions, from the first node to the second.
    pub(super) cut: BTreeSet<(NodeId, NodeId)>,
    pub(super) apart: BTreeSet<NodeId>,
    /// Killed nodes. They stay isolated when all other nodes are reconnected.
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

    /// Changes the state, and wakes waiting tasks if `change` returns `true`.
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

    pub(super) fn is_whole(&self) -> bool {
        let state = self.lock();
        state.cut.is_empty() && state.apart.is_empty()
    }

    pub(super) async fn until(&self, wanted: impl Fn(&Self) -> bool) {
        self.waiters.until(|| wanted(self).then_some(())).await;
    }

    /// A random number in `[0, 1)`, derived from the network's seed.
    pub(super) fn chance(&self) -> f64 {
        self.lock().random.random()
    }

    /// Draws the delay of the next datagram; `None` if it is lost.
    fn draw_datagram(&self) -> Option<Duration> {
        let state = &mut *self.lock();
        let Weather { shortest, longest, lost, .. } = state.weather;
        let spread = longest.saturating_sub(shortest).mul_f64(state.random.random::<f64>());
        (state.random.random::<f64>() >= lost).then_some(shortest + spread)
    }

    /// Draws the delay of the next piece, and whether its connection breaks now.
    pub(super) fn draw_delay(&self) -> (Duration, bool) {
        let state = &mut *self.lock();
        let Weather { shortest, longest, lost, resent, broken } = state.weather;
        let spread = longest.saturating_sub(shortest).mul_f64(state.random.random::<f64>());
        let late = if state.random.random::<f64>() < lost { resent } else { Duration::ZERO };
        (shortest + spread + late, state.random.random::<f64>() < broken)
    }
}
