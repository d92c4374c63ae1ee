use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32},
};

use artillery_core::{
    ClusterId,
    internal::{clock, simulated::Network},
};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    time::Instant,
};

use super::{Cluster, ClusterState, Lives, Trouble, Witness, interruptions, restart::form};
use crate::{
    Mode, Routing,
    config::ChainSettings,
    control::{Bootstrap, Configs, NodeInfo},
    replica::ReplicaSettings,
    testing::{disk::new_disk, node::TestMember, setup::NodeSetup},
};

/// Builds a [`Cluster`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `start` is awaited"]
pub struct Builder {
    nodes: u32,
    seed: u64,
    chains: ChainSettings,
    trouble: Trouble,
    settings: ReplicaSettings,
}

fn disk_seed(seed: u64, number: u32) -> u64 {
    seed.wrapping_mul(251).wrapping_add(number.into())
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            nodes: 3,
            seed: 0,
            chains: ChainSettings::default(),
            trouble: Trouble::none(),
            settings: ReplicaSettings::default(),
        }
    }

    /// The number of nodes (3). Also sets [`replicas`](Self::replicas) to this number, so that all of them serve each
    /// chain: set a lower number afterwards. The other nodes are spares, which forward requests to a member.
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
    /// simulated disks lose unsynced data: see [`Cluster::power_cut`] and [`Cluster::restart_all`].
    pub fn durable(mut self) -> Self {
        self.settings.durable = true;
        self
    }

    /// The seed (0). The same seed produces the same run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Random faults during the run ([`Trouble::none`]).
    pub fn trouble(mut self, trouble: Trouble) -> Self {
        self.trouble = trouble;
        self
    }

    #[cfg(test)]
    pub(in crate::testing) fn mutant(mut self, mutant: artillery_proto::guards::Mutant) -> Self {
        self.settings.guards = artillery_proto::guards::Guards::without(mutant);
        self
    }

    /// The size of the history that members keep, in bytes.
    #[cfg(test)]
    pub(in crate::testing) fn backlog(mut self, bytes: usize) -> Self {
        self.settings.backlog = bytes;
        self
    }

    /// Starts the nodes, and returns when all chains are open.
    ///
    /// # Panics
    /// Unless the runtime is a current-thread one with a paused clock: `#[tokio::test(start_paused = true)]`.
    pub async fn start(self) -> Cluster {
        assert_virtual();
        let clock = clock::Followed::new();
        let network = Network::new(self.seed, self.trouble.weather());
        let cluster = ClusterId(u128::from(self.seed) + 1);
        let setup = NodeSetup {
            network: network.clone(),
            cluster,
            seed: self.seed,
            chains: self.chains.chains,
            settings: self.settings.clone(),
        };
        let disk = |number| self.settings.durable.then(|| new_disk(disk_seed(self.seed, number)));
        let start = |number| TestMember::start(&setup, number, disk(number));
        let members: Vec<_> = (1..=self.nodes).map(|number| Arc::new(start(number))).collect();
        let routing = Arc::new(self.routing(cluster, &members));
        let witness = Witness::new(network);
        form(&members, &routing, &self.settings, &witness).await;
        let inner = Arc::new(ClusterState {
            setup,
            lives: Mutex::new(Lives { members, routing }),
            witness,
            clients: AtomicU32::new(101),
            crashed: Mutex::default(),
            calm: AtomicBool::new(false),
            _clock: clock,
        });
        let courier = inner.client("courier");
        inner.witness.employ(Arc::new(move |question, deadline| {
            let courier = courier.clone();
            // No caller waits for this answer.
            Box::pin(async move { drop(courier.call(question, deadline).await) })
        }));
        inner.set_trouble(&self.trouble);
        if self.trouble.interruptions {
            tokio::spawn(interruptions::interrupt(Arc::downgrade(&inner)));
        }
        Cluster { inner }
    }

    fn routing(&self, cluster: ClusterId, members: &[Arc<TestMember>]) -> Routing {
        let founder = |member: &Arc<TestMember>| NodeInfo {
            id: member.id,
            name: member.name().to_owned(),
            addrs: vec![member.endpoint.advertised_addr()],
            host: None,
        };
        let founding = Bootstrap {
            settings: self.chains,
            // A static configuration never changes, and its leases never expire.
            ..Bootstrap::new(cluster, "test", members.iter().map(founder).collect())
        };
        Routing::of(cluster, &Configs::of(&founding))
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
