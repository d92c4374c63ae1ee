//! Chains of node processes, each node in a network namespace, and the client side of the network.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering::Relaxed},
    },
};

use artillery_processes::{namespaces, token};

use super::net::{Net, Place};
use crate::throughput::{
    Failed,
    crew::Driver,
    processes::{Contact, Process, ReadyLine},
    results::System,
};

const FIRST_PORT: u16 = 4000;

/// The lease where no failure is measured: longer than any pause of a node on a busy machine.
const CALM_LEASE_MS: u32 = 5000;

/// The network, the program of a node, and a thread in each client's namespace.
pub struct Lab {
    net: Net,
    node: PathBuf,
    drivers: Vec<Arc<Driver>>,
    next_port: AtomicU16,
}

impl Lab {
    /// Creates namespaces for `nodes` nodes and `clients` clients.
    pub fn make(node: PathBuf, nodes: usize, clients: usize, mbit: u32) -> Result<Self, Failed> {
        let net = Net::make(nodes, clients, mbit)?;
        let driver = |client| {
            let namespace = net.namespace(Place::Client(client));
            Ok(Arc::new(Driver::start_where(0, move || Ok(namespaces::enter(&namespace)?))?))
        };
        let drivers = (0..clients).map(driver).collect::<Result<_, Failed>>()?;
        Ok(Self { net, node, drivers, next_port: AtomicU16::new(FIRST_PORT) })
    }

    /// Sets the rate of the links.
    pub fn shape(&self, mbit: u32) -> Result<(), Failed> {
        Ok(self.net.shape(mbit)?)
    }

    /// A runtime whose sockets are in a client's namespace.
    pub fn driver(&self, client: usize) -> Result<&Arc<Driver>, Failed> {
        self.drivers.get(client).ok_or_else(|| format!("there are {} clients", self.drivers.len()).into())
    }
}

/// A chain. The cluster chooses the places of its nodes.
#[derive(Debug)]
pub struct Chain {
    /// CR or CRAQ.
    pub system: System,
    /// What clients need to connect.
    pub contact: Arc<Contact>,
    lease_ms: u32,
    nodes: Vec<Option<Process>>,
    roles: Vec<String>,
}

impl Chain {
    /// Starts a chain in the first namespaces of the lab; [`ready`](Self::ready) waits for it.
    pub fn begin(lab: &Lab, system: System, members: usize) -> Result<Self, Failed> {
        Self::begin_with_lease(lab, system, members, CALM_LEASE_MS)
    }

    /// Like [`begin`](Self::begin), with the given lease duration.
    pub fn begin_with_lease(lab: &Lab, system: System, members: usize, lease_ms: u32) -> Result<Self, Failed> {
        let port = lab.next_port.fetch_add(1, Relaxed);
        let addrs = (0..members).map(|node| SocketAddr::from((Place::Node(node).address(), port))).collect();
        let contact = Contact { name: format!("paper-{}", token()), secret: token(), addrs };
        let mut chain = Self { system, contact: Arc::new(contact), lease_ms, nodes: Vec::new(), roles: Vec::new() };
        for node in 0..members {
            let process = chain.start_node(lab, node)?;
            chain.nodes.push(Some(process));
        }
        Ok(chain)
    }

    fn start_node(&self, lab: &Lab, node: usize) -> Result<Process, Failed> {
        let contact = &self.contact;
        let own = contact.addrs.get(node).ok_or("there is no such node")?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &lab.net.namespace(Place::Node(node))]).arg(&lab.node);
        // The name stays the same after a restart, so that clients treat it as the same node.
        command.args(["--name", &format!("node-{}", node + 1)]);
        command.args(["--cluster", &contact.name, "--no-mdns", "--listen", &own.to_string()]);
        for seed in contact.addrs.iter().filter(|seed| *seed != own) {
            command.args(["--seed", &seed.to_string()]);
        }
        let members = contact.addrs.len().to_string();
        let mode = if self.system == System::Cr { "cr" } else { "craq" };
        command.args(["--expect", &members, "--replicas", &members, "--mode", mode]);
        command.args(["--lease-ms", &self.lease_ms.to_string(), "--backlog-bytes", "16MiB", "--log", "error"]);
        // One thread for each node: there are more nodes than cores.
        command.env("ARTILLERY_SECRET", &contact.secret).env("TOKIO_WORKER_THREADS", "1");
        Ok(Process::start(&mut command)?)
    }

    /// Waits until every node serves strong reads.
    pub fn ready(&mut self) -> Result<(), Failed> {
        let role = |node: &Process| Ok(ReadyLine::parse(&node.said()?)?.role);
        self.roles = self.nodes.iter().flatten().map(role).collect::<Result<_, Failed>>()?;
        Ok(())
    }

    /// The node that had this role when it became ready: `head`, `middle` or `tail`.
    pub fn node_of(&self, role: &str) -> Option<usize> {
        self.roles.iter().position(|one| one == role)
    }

    /// The number of members.
    pub fn members(&self) -> usize {
        self.contact.addrs.len()
    }

    /// The number of members that serve strong reads.
    pub fn readable_members(&self) -> usize {
        if self.system == System::Cr { 1 } else { self.members() }
    }

    /// The ids of the running processes.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().flatten().map(Process::pid).collect()
    }

    /// Kills a node.
    pub fn kill(&mut self, node: usize) {
        if let Some(slot) = self.nodes.get_mut(node) {
            *slot = None;
        }
    }

    /// Restarts a killed node, empty, and waits until it is ready.
    pub fn restart(&mut self, lab: &Lab, node: usize) -> Result<(), Failed> {
        let process = self.start_node(lab, node)?;
        let slot = self.nodes.get_mut(node).ok_or("there is no such node")?;
        ReadyLine::parse(&slot.insert(process).said()?).map(drop)
    }
}
