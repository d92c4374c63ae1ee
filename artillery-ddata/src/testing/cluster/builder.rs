use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU32},
};

use artillery_core::internal::{clock, random, simulated::Network};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    time::Instant,
};

use super::{
    Cluster, ClusterState, Trouble, Witness, interruptions,
    machine::{Setup, TestMachine, name},
};
use crate::{
    Mode,
    config::{ChainSettings, Config, Threads},
    node::machine::Machine,
    rpc::Candidates,
};

/// Builds a [`Cluster`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `start` is awaited"]
pub struct Builder {
    nodes: u32,
    seed: u64,
    chains: ChainSettings,
    trouble: Trouble,
    durable: bool,
    machine: Machine,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            nodes: 3,
            seed: 0,
            chains: ChainSettings::default(),
            trouble: Trouble::none(),
            durable: false,
            machine: Machine::default(),
        }
    }

    /// The number of nodes (3). Also sets [`replicas`](Self::replicas) to this number, so that all of them serve each
    /// chain: set a lower number afterwards. The other nodes are spares, which forward requests to a member, and replace a
    /// dead one.
    ///
    /// # Panics
    /// If the number isn't from 1 to 250.
    pub fn nodes(mut self, nodes: u32) -> Self {
        assert!((1..=250).contains(&nodes), "the number of nodes must be from 1 to 250");
        (self.nodes, self.chains.replicas) = (nodes, nodes);
        self
    }

    /// The number of nodes that serve each chain (all).
    ///
    /// # Panics
    /// If the number is 0.
    pub fn replicas(mut self, replicas: u32) -> Self {
        assert!(replicas > 0, "a chain needs at least one member");
        self.chains.replicas = replicas;
        self
    }

    /// The number of chains over which the keys are spread (1).
    ///
    /// # Panics
    /// If the number isn't from 1 to 1000.
    pub fn chains(mut self, chains: u32) -> Self {
        assert!((1..=1000).contains(&chains), "the number of chains must be from 1 to 1000");
        self.chains.chains = chains;
        self
    }

    /// Where strong reads are served ([`Mode::Craq`]).
    pub fn mode(mut self, mode: Mode) -> Self {
        self.chains.mode = mode;
        self
    }

    /// Gives each node a disk (none): a write is answered once it is on the disk of each member of its chain. The
    /// simulated disks lose unsynced data: see [`Cluster::power_cut`].
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// The seed (0). The same seed produces the same run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Random faults once the cluster is formed ([`Trouble::none`]).
    pub fn trouble(mut self, trouble: Trouble) -> Self {
        self.trouble = trouble;
        self
    }

    #[cfg(test)]
    pub(in crate::testing) fn mutant(mut self, mutant: artillery_proto::guards::Mutant) -> Self {
        self.machine.guards = artillery_proto::guards::Guards::without(mutant);
        self
    }

    /// The size of the history that members keep, in bytes.
    #[cfg(test)]
    pub(in crate::testing) fn backlog(mut self, bytes: usize) -> Self {
        self.machine.backlog = Some(bytes);
        self
    }

    /// Starts the nodes. They find each other, form a cluster, and choose a leader of their configuration log. Returns
    /// when all of them serve.
    ///
    /// # Panics
    /// Unless the runtime is a current-thread one with a paused clock: `#[tokio::test(start_paused = true)]`.
    pub async fn start(self) -> Cluster {
        assert_virtual();
        let (clock, random) = (clock::Followed::new(), random::Seeded::new(self.seed));
        let network = Network::new(self.seed, Trouble::none().weather());
        let setup = self.setup(&network);
        let machines: Vec<_> = (1..=self.nodes).map(|number| Arc::new(TestMachine::new(&setup, number))).collect();
        let witness = Witness::new(network);
        for machine in &machines {
            let started = machine.start(&setup, false, &witness).await;
            started.unwrap_or_else(|error| panic!("{} can't start: {error}", machine.name()));
        }
        let candidates = Candidates::new();
        let addresses = machines.iter().map(|machine| setup.network.address(machine.name()));
        addresses.for_each(|address| candidates.add(address));
        let inner = Arc::new(ClusterState {
            setup,
            machines: Mutex::new(machines),
            candidates,
            witness,
            clients: AtomicU32::new(101),
            known: Mutex::default(),
            calm: AtomicBool::new(false),
            interruptions: Mutex::default(),
            trouble: Mutex::new(Trouble::none()),
            _clock: clock,
            _random: random,
        });
        let cluster = Cluster { inner };
        cluster.settle().await;
        let inner = &cluster.inner;
        let courier = inner.client("courier");
        inner.witness.employ(Arc::new(move |question, deadline| {
            let courier = courier.clone();
            // No caller waits for this answer.
            Box::pin(async move { drop(courier.call(question, deadline).await) })
        }));
        inner.set_trouble(&self.trouble);
        if self.trouble.interruptions || self.trouble.crashes {
            let interruptions = tokio::spawn(interruptions::interrupt(Arc::downgrade(inner)));
            // No code that holds the lock can panic halfway through a change.
            *inner.interruptions.lock().unwrap_or_else(PoisonError::into_inner) = Some(interruptions);
        }
        cluster
    }

    fn setup(&self, network: &Network) -> Setup {
        let mut config =
            Config { cluster: "test".to_owned(), expect: self.nodes, chains: self.chains, ..Config::default() };
        config.threads = Threads::Shared;
        config.discovery.mdns = false;
        config.discovery.seeds = (1..=self.nodes).map(|number| network.address(&name(number)).to_string()).collect();
        let machine = Machine { network: Some(network.clone()), ..self.machine.clone() };
        Setup { network: network.clone(), seed: self.seed, config, machine, durable: self.durable }
    }
}

/// A run is a function of its seed only if one thread runs all tasks, and time advances only when all of them wait.
fn assert_virtual() {
    let advice = "a test's cluster needs a paused clock and one thread: #[tokio::test(start_paused = true)]";
    assert!(Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread, "{advice}");
    #[allow(clippy::disallowed_methods, reason = "whether tokio's clock moves with the system's")]
    let real = std::time::Instant::now;
    let (since, virtually) = (real(), Instant::now());
    while real() == since {
        std::hint::spin_loop();
    }
    assert!(Instant::now() == virtually, "{advice}");
}
