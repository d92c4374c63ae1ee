//! The network of a run: each node has a namespace, and two planes connect them.
//!
//! *Between nodes* all packets pass a namespace that only routes. A cut of one direction is a blackhole rule there: the
//! sender's own routes, neighbours and links don't change, so it gets neither an error nor an answer. *From clients* a
//! separate link, which no cut affects, leads to each node, so that a node without peers can still be queried. A node
//! has the same address in both planes; the source of a packet decides which route the answer takes. That address may
//! be replaced while the node runs. The ports for Redis clients and for HTTP have another address, which never changes.
//!
//! An additional namespace belongs to no node: faults start further processes there.

mod readdress;
mod relay;

use std::{collections::BTreeSet, net::Ipv4Addr};

use artillery_processes::namespaces::{self, Maker, batch};
use artillery_programs::exit::Failure;

use self::relay::Relay;

const MAKER: Maker = Maker { prefix: "artillery-chaos-", programs: &["chaos"] };
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 77, 255, 254);
const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 78, 255, 254);
const PEERS: &str = "10.77.0.0/16";
const RELAY: Ipv4Addr = Ipv4Addr::new(10, 77, 255, 253);
const TO_RELAY: &str = "to-relay";
/// Precedes the rule for the main table.
const PREFERENCE: &str = "100";
/// Rules with this preference precede the cuts.
const BEFORE_CUTS: &str = "90";
const RELAY_TABLE: &str = "100";

/// The namespaces of a run. Dropping this removes the namespaces, and kills the other processes inside.
pub(super) struct Net {
    prefix: String,
    nodes: usize,
    cuts: BTreeSet<(usize, usize)>,
    slow: BTreeSet<usize>,
    /// Nodes that use their second address.
    moved: BTreeSet<usize>,
    /// The node that can't be dialled, and the relay between it and the others.
    relay: Option<(usize, Relay)>,
}

impl Net {
    /// Creates the namespaces, after removing leftovers of interrupted runs.
    pub(super) fn make(nodes: usize) -> Result<Self, Failure> {
        for namespace in MAKER.leftovers() {
            tracing::warn!(namespace, "removing a namespace that an earlier run has left");
            namespaces::remove(&namespace);
        }
        let (cuts, slow, moved) = Default::default();
        let net = Self { prefix: MAKER.own_prefix(), nodes, cuts, slow, moved, relay: None };
        net.build()?;
        Ok(net)
    }

    fn build(&self) -> Result<(), Failure> {
        let (router, clients) = (self.router(), self.clients());
        ip(None, self.all().iter().map(|namespace| format!("netns add {namespace}")))?;
        for namespace in self.all() {
            ip(Some(&namespace), ["link set lo up".to_owned()])?;
        }
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        namespaces::run("ip", &["netns", "exec", &router, "sh", "-c", forward]).map_err(Failure::failed)?;
        for node in 0..=self.nodes {
            let own = self.address(node);
            let (peers, clients) = ((&*router, "peers", ROUTER), (&*clients, "clients", CLIENTS));
            self.link(&self.namespace(node), &link_name(node), own, peers)?;
            self.link(&self.namespace(node), &link_name(node), own, clients)?;
            ip(Some(&self.namespace(node)), self.routes("add", own))?;
            self.add_service_address(node)?;
        }
        self.link(&self.relay(), TO_RELAY, RELAY, (&router, "peers", ROUTER))?;
        ip(Some(&self.relay()), [format!("route add default via {ROUTER} dev peers")])?;
        ip(Some(&router), [format!("route add default via {RELAY} dev {TO_RELAY} table {RELAY_TABLE}")])
    }

    /// Links a namespace with address `own` to the middle of one plane, where the link is named `there`.
    fn link(&self, namespace: &str, there: &str, own: Ipv4Addr, plane: (&str, &str, Ipv4Addr)) -> Result<(), Failure> {
        let (middle, plane, hub) = plane;
        let in_the_middle = [
            format!("link add name {there} type veth peer name {plane} netns {namespace}"),
            format!("link set {there} up"),
            format!("addr add {hub}/32 dev {there}"),
            format!("route add {own}/32 dev {there}"),
        ];
        let at_the_node = [
            format!("link set {plane} up"),
            format!("addr add {own}/32 dev {plane}"),
            format!("route add {hub}/32 dev {plane} src {own}"),
        ];
        ip(Some(middle), in_the_middle)?;
        ip(Some(namespace), at_the_node)
    }

    /// The routes from a node to its peers. For a node that listens on all addresses, the second one determines its own
    /// address.
    fn routes(&self, verb: &str, own: Ipv4Addr) -> [String; 2] {
        [PEERS, "default"].map(|to| format!("route {verb} {to} via {ROUTER} dev peers src {own}"))
    }

    fn add_service_address(&self, node: usize) -> Result<(), Failure> {
        let at = service_address(node);
        ip(Some(&self.namespace(node)), [format!("addr add {at}/32 dev clients")])?;
        ip(Some(&self.clients()), [format!("route add {at}/32 dev {}", link_name(node))])
    }

    /// Moves this thread, and threads that it starts later, into the clients' namespace.
    pub(super) fn enter(&self) -> Result<(), Failure> {
        namespaces::enter(&self.clients()).map_err(Failure::failed)
    }

    /// Drops all packets from one node to another.
    pub(super) fn cut(&mut self, from: usize, to: usize) -> Result<(), Failure> {
        if self.cuts.insert((from, to)) {
            self.rule("add", from, to)?;
        }
        Ok(())
    }

    /// Limits the bandwidth of a node's links to its peers; packets that would wait longer than `ms` are dropped.
    pub(super) fn slow(&mut self, node: usize, kilobits: u64, ms: u64) -> Result<(), Failure> {
        self.slow.insert(node);
        let shape = format!("root tbf rate {kilobits}kbit burst 16kb latency {ms}ms");
        self.at_both_ends(node, |link| format!("qdisc replace dev {link} {shape}"))
    }

    /// Reverts all changes to the network, except for changes of addresses.
    pub(super) fn heal(&mut self) -> Result<(), Failure> {
        self.open_inbound()?;
        while let Some((from, to)) = self.cuts.pop_first() {
            self.rule("del", from, to)?;
        }
        while let Some(node) = self.slow.pop_first() {
            self.at_both_ends(node, |link| format!("qdisc del dev {link} root"))?;
        }
        Ok(())
    }

    fn rule(&self, verb: &str, from: usize, to: usize) -> Result<(), Failure> {
        // Unlike `unreachable` and `prohibit`, `blackhole` sends the peer no error.
        let rule =
            format!("rule {verb} pref {PREFERENCE} from {} to {} blackhole", self.address(from), self.address(to));
        ip(Some(&self.router()), [rule])
    }

    /// Runs a `tc` line at both ends of a node's link to its peers.
    fn at_both_ends(&self, node: usize, line: impl Fn(&str) -> String) -> Result<(), Failure> {
        let ends = [(self.router(), link_name(node)), (self.namespace(node), "peers".to_owned())];
        let mut ends = ends.into_iter();
        ends.try_for_each(|(namespace, link)| batch("tc", Some(&namespace), [line(&link)])).map_err(Failure::failed)
    }

    pub(super) fn address(&self, node: usize) -> Ipv4Addr {
        if self.moved.contains(&node) { second_address(node) } else { address(node) }
    }

    /// The number of the namespace that belongs to no node.
    pub(super) fn spare(&self) -> usize {
        self.nodes
    }

    pub(super) fn namespace(&self, node: usize) -> String {
        format!("{}n{}", self.prefix, node + 1)
    }

    fn relay(&self) -> String {
        format!("{}relay", self.prefix)
    }

    fn router(&self) -> String {
        format!("{}router", self.prefix)
    }

    fn clients(&self) -> String {
        format!("{}clients", self.prefix)
    }

    fn all(&self) -> Vec<String> {
        let nodes = (0..=self.nodes).map(|node| self.namespace(node));
        [self.router(), self.clients(), self.relay()].into_iter().chain(nodes).collect()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.all().iter().for_each(|namespace| namespaces::remove(namespace));
    }
}

fn ip(namespace: Option<&str>, lines: impl IntoIterator<Item = String>) -> Result<(), Failure> {
    batch("ip", namespace, lines).map_err(Failure::failed)
}

pub(super) fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, place(node))
}

/// The address that a node gets in place of [`address`].
pub(super) fn second_address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 1, place(node))
}

/// The address of a node's ports for Redis clients and for HTTP.
pub(super) fn service_address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, place(node))
}

fn place(node: usize) -> u8 {
    u8::try_from(node + 1).unwrap_or(u8::MAX)
}

fn link_name(node: usize) -> String {
    format!("to-n{}", node + 1)
}
