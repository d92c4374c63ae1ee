//! A network in this process, for tests: no socket, and all delays drawn from a seed.
//!
//! Its endpoints and connections are those of every other module, so what is built on them runs unchanged; only what is
//! below a stream differs. As with QUIC a stream loses nothing and keeps its order while its connection lasts: what
//! would be a lost packet is a delay, and what was on its way when a connection broke is lost. A connection breaks by
//! chance, or when nothing passed in one of its directions for the idle timeout.
//!
//! Streams move by tokio's timers. In a current-thread runtime with a paused clock a run is a function of its seed.

mod line;
mod pipe;
mod port;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

pub(super) use line::End;
pub(super) use pipe::{Inlet, Outlet};
pub(super) use port::Port;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Endpoint, LocalInfo, Service, endpoint, waiters::Waiters};
use crate::id::{MemberId, NodeId};

/// How a network treats what it carries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weather {
    /// The shortest time that a piece is on its way.
    pub shortest: Duration,
    /// The longest time, where nothing is lost.
    pub longest: Duration,
    /// The chance, from 0 to 1, that a piece is lost at first and comes after [`resent`](Self::resent) more.
    pub lost: f64,
    /// How much later what was lost comes.
    pub resent: Duration,
    /// The chance, from 0 to 1, that a piece finds its connection broken.
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

/// A network in this process. Clones are the same network.
#[derive(Debug, Clone)]
pub struct Network {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// Who waits until something may pass.
    waiters: Waiters,
}

#[derive(Debug)]
struct State {
    random: ChaCha8Rng,
    weather: Weather,
    listeners: BTreeMap<SocketAddr, Weak<endpoint::Shared>>,
    /// From whom to whom nothing passes.
    cut: BTreeSet<(NodeId, NodeId)>,
    /// From and to whom nothing passes.
    apart: BTreeSet<NodeId>,
    /// The same, for ever.
    dead: BTreeSet<NodeId>,
}

impl Network {
    /// A network without endpoints.
    pub fn new(seed: u64, weather: Weather) -> Self {
        let state = State {
            random: ChaCha8Rng::seed_from_u64(seed),
            weather,
            listeners: BTreeMap::new(),
            cut: BTreeSet::new(),
            apart: BTreeSet::new(),
            dead: BTreeSet::new(),
        };
        Self { inner: Arc::new(Inner { state: Mutex::new(state), waiters: Waiters::default() }) }
    }

    /// An endpoint of this name, at an address of its own. Call it within a tokio runtime.
    pub fn endpoint(&self, name: &str, local: LocalInfo, service: Arc<dyn Service>) -> Endpoint {
        let id = MemberId { node: NodeId::from_name(name), incarnation: local.incarnation };
        let addr = {
            let state = self.inner.lock();
            let [high, low] = (state.listeners.len() as u16 + 1).to_be_bytes();
            SocketAddr::from((Ipv4Addr::new(10, 0, high, low), 7400))
        };
        let port = Port::new(self.inner.clone(), name.to_owned(), id, addr);
        Endpoint::simulated(id, addr, local, service, port)
    }

    /// From now on nothing passes from one node to another; what is on its way waits.
    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.inner.change(|state| state.cut.insert((from, to)));
    }

    /// Takes [`cut`](Self::cut) back.
    pub fn mend(&self, from: NodeId, to: NodeId) {
        self.inner.change(|state| state.cut.remove(&(from, to)));
    }

    /// From now on nothing passes from or to a node; what is on its way waits.
    pub fn set_apart(&self, node: NodeId) {
        self.inner.change(|state| state.apart.insert(node));
    }

    /// Takes [`set_apart`](Self::set_apart) back.
    pub fn rejoin(&self, node: NodeId) {
        self.inner.change(|state| state.apart.remove(&node));
    }

    /// A node is gone without a word, for ever.
    pub fn kill(&self, node: NodeId) {
        self.inner.change(|state| state.dead.insert(node));
    }

    /// Takes back all cuts, and everybody who was set apart. The dead stay dead.
    pub fn heal(&self) {
        self.inner.change(|state| {
            state.cut.clear();
            state.apart.clear();
            true
        });
    }

    /// Changes how what is sent from now on is treated.
    pub fn set_weather(&self, weather: Weather) {
        self.inner.lock().weather = weather;
    }

    /// A number from 0 up to 1, from the network's seed.
    pub fn chance(&self) -> f64 {
        self.inner.lock().random.random()
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that holds it can panic halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State) -> bool) {
        if change(&mut self.lock()) {
            self.waiters.wake();
        }
    }

    fn is_open(&self, from: NodeId, to: NodeId) -> bool {
        let state = self.lock();
        let is_gone = |node| state.apart.contains(node) || state.dead.contains(node);
        !state.cut.contains(&(from, to)) && !is_gone(&from) && !is_gone(&to)
    }

    /// Waits until `wanted` is so.
    async fn until(&self, wanted: impl Fn(&Self) -> bool) {
        self.waiters.until(|| wanted(self).then_some(())).await;
    }

    /// How long the next piece is on its way, and whether it finds its connection broken.
    fn fortune(&self) -> (Duration, bool) {
        let state = &mut *self.lock();
        let Weather { shortest, longest, lost, resent, broken } = state.weather;
        let spread = longest.saturating_sub(shortest).mul_f64(state.random.random::<f64>());
        let late = if state.random.random::<f64>() < lost { resent } else { Duration::ZERO };
        (shortest + spread + late, state.random.random::<f64>() < broken)
    }
}
