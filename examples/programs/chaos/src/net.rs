//! The network of a run: every node in a namespace, and two planes between them.
//!
//! *Between nodes* everything goes through a namespace with nothing but routes in it. To cut a direction is to route it into
//! nothing there: the sender's own routes, neighbours and links are as they were, so it gets no error and no answer.
//! *From clients* a link of its own leads to each node, which no cut touches, so that a node without peers can still
//! be asked. A node has one address in both planes; where a packet comes from decides which way the answer takes.

mod command;
mod leftovers;

use std::{collections::BTreeSet, fs::File, net::Ipv4Addr, os::fd::AsFd, path::Path, process};

use artillery_programs::exit::Failure;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use self::command::{in_namespace, ip, tc};

const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 77, 255, 254);
const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 78, 255, 254);
const PEERS: &str = "10.77.0.0/16";
/// Before the rule that has the main table looked at.
const PREFERENCE: &str = "100";

/// The namespaces of a run. Dropped: removed, with all that is in them.
pub(super) struct Net {
    prefix: String,
    nodes: usize,
    cuts: BTreeSet<(usize, usize)>,
    slow: BTreeSet<usize>,
}

impl Net {
    /// What this machine lacks for it, if anything.
    pub(super) fn missing() -> Option<&'static str> {
        if !rustix::process::geteuid().is_root() {
            return Some("network namespaces need root");
        }
        let there = command::exists("ip") && command::exists("tc");
        (!there).then_some("there is no iproute2 (`ip` and `tc`)")
    }

    /// Makes the namespaces, after removing those of earlier runs that came to a sudden end.
    pub(super) fn make(nodes: usize) -> Result<Self, Failure> {
        leftovers::remove();
        let prefix = format!("{}{}-", leftovers::PREFIX, process::id());
        let net = Self { prefix, nodes, cuts: BTreeSet::new(), slow: BTreeSet::new() };
        net.build()?;
        Ok(net)
    }

    fn build(&self) -> Result<(), Failure> {
        let (router, clients) = (self.router(), self.clients());
        for namespace in self.all() {
            ip(&["netns", "add", &namespace])?;
            ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
        }
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        command::run("ip", &["netns", "exec", &router, "sh", "-c", forward])?;
        for node in 0..self.nodes {
            self.link(node, &router, "peers", ROUTER)?;
            self.link(node, &clients, "clients", CLIENTS)?;
            let (address, router) = (address(node).to_string(), ROUTER.to_string());
            let route = ["route", "add", PEERS, "via", &router, "dev", "peers", "src", &address];
            in_namespace(&self.namespace(node), &route)?;
        }
        Ok(())
    }

    /// A link from a node to a namespace in the middle of one plane.
    fn link(&self, node: usize, middle: &str, plane: &str, hub: Ipv4Addr) -> Result<(), Failure> {
        let (namespace, there) = (self.namespace(node), link_name(node));
        let (own, hub) = (format!("{}/32", address(node)), format!("{hub}/32"));
        let peer = ["peer", "name", plane, "netns", &namespace];
        in_namespace(middle, &[&["link", "add", "name", &there, "type", "veth"][..], &peer].concat())?;
        in_namespace(middle, &["link", "set", &there, "up"])?;
        in_namespace(&namespace, &["link", "set", plane, "up"])?;
        in_namespace(middle, &["addr", "add", &hub, "dev", &there])?;
        in_namespace(&namespace, &["addr", "add", &own, "dev", plane])?;
        in_namespace(middle, &["route", "add", &own, "dev", &there])?;
        in_namespace(&namespace, &["route", "add", &hub, "dev", plane, "src", &address(node).to_string()])
    }

    /// Moves this thread, and those that it will start, into the namespace of the clients.
    pub(super) fn enter(&self) -> Result<(), Failure> {
        let path = Path::new("/run/netns").join(self.clients());
        let file = File::open(&path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(Failure::failed)
    }

    /// Drops from now on all packets that one node sends to another.
    pub(super) fn cut(&mut self, from: usize, to: usize) -> Result<(), Failure> {
        if self.cuts.insert((from, to)) {
            self.rule("add", from, to)?;
        }
        Ok(())
    }

    /// Limits the links of a node to so many kilobits a second from now on; they keep what waits for so long.
    pub(super) fn slow(&mut self, node: usize, kilobits: u64, ms: u64) -> Result<(), Failure> {
        self.slow.insert(node);
        let (rate, latency) = (format!("{kilobits}kbit"), format!("{ms}ms"));
        for (namespace, link) in self.ends(node) {
            let shape = ["root", "tbf", "rate", &rate, "burst", "16kb", "latency", &latency];
            tc(&namespace, &[&["qdisc", "replace", "dev", &link][..], &shape].concat())?;
        }
        Ok(())
    }

    /// Takes back all that was done to the network.
    pub(super) fn heal(&mut self) -> Result<(), Failure> {
        while let Some((from, to)) = self.cuts.pop_first() {
            self.rule("del", from, to)?;
        }
        while let Some(node) = self.slow.pop_first() {
            for (namespace, link) in self.ends(node) {
                tc(&namespace, &["qdisc", "del", "dev", &link, "root"])?;
            }
        }
        Ok(())
    }

    fn rule(&self, verb: &str, from: usize, to: usize) -> Result<(), Failure> {
        let (from, to) = (address(from).to_string(), address(to).to_string());
        // Unlike `unreachable` and `prohibit` it sends the peer no error.
        let rule = ["rule", verb, "pref", PREFERENCE, "from", &from, "to", &to, "blackhole"];
        in_namespace(&self.router(), &rule)
    }

    /// Both ends of a node's link to its peers.
    fn ends(&self, node: usize) -> [(String, String); 2] {
        [(self.router(), link_name(node)), (self.namespace(node), "peers".to_owned())]
    }

    /// The name of a node's namespace.
    pub(super) fn namespace(&self, node: usize) -> String {
        format!("{}n{}", self.prefix, node + 1)
    }

    fn router(&self) -> String {
        format!("{}router", self.prefix)
    }

    fn clients(&self) -> String {
        format!("{}clients", self.prefix)
    }

    fn all(&self) -> Vec<String> {
        let nodes = (0..self.nodes).map(|node| self.namespace(node));
        [self.router(), self.clients()].into_iter().chain(nodes).collect()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.all().iter().for_each(|namespace| leftovers::remove_namespace(namespace));
    }
}

/// The address of a node.
pub(super) fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, u8::try_from(node + 1).unwrap_or(u8::MAX))
}

fn link_name(node: usize) -> String {
    format!("to-n{}", node + 1)
}
