//! The network of a run: every node in a namespace, and two planes between them.
//!
//! *Between nodes* everything goes through a namespace with nothing but routes in it. To cut a direction is to route it into
//! nothing there: the sender's own routes, neighbours and links are as they were, so it gets no error and no answer.
//! *From clients* a link of its own leads to each node, which no cut touches, so that a node without peers can still
//! be asked. A node has one address in both planes; where a packet comes from decides which way the answer takes.

use std::{collections::BTreeSet, net::Ipv4Addr};

use artillery_processes::namespaces::{self, Maker, batch};
use artillery_programs::exit::Failure;

const MAKER: Maker = Maker { prefix: "artillery-chaos-", programs: &["chaos"] };
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
    /// Makes the namespaces, after removing those of earlier runs that came to a sudden end.
    pub(super) fn make(nodes: usize) -> Result<Self, Failure> {
        for namespace in MAKER.leftovers() {
            tracing::warn!(namespace, "removing what an earlier run has left behind");
            namespaces::remove(&namespace);
        }
        let net = Self { prefix: MAKER.own_prefix(), nodes, cuts: BTreeSet::new(), slow: BTreeSet::new() };
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
        for node in 0..self.nodes {
            self.link(node, &router, "peers", ROUTER)?;
            self.link(node, &clients, "clients", CLIENTS)?;
            let route = format!("route add {PEERS} via {ROUTER} dev peers src {}", address(node));
            ip(Some(&self.namespace(node)), [route])?;
        }
        Ok(())
    }

    /// A link from a node to a namespace in the middle of one plane.
    fn link(&self, node: usize, middle: &str, plane: &str, hub: Ipv4Addr) -> Result<(), Failure> {
        let (namespace, there, own) = (self.namespace(node), link_name(node), address(node));
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
        ip(Some(&namespace), at_the_node)
    }

    /// Moves this thread, and those that it will start, into the namespace of the clients.
    pub(super) fn enter(&self) -> Result<(), Failure> {
        namespaces::enter(&self.clients()).map_err(Failure::failed)
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
        let shape = format!("root tbf rate {kilobits}kbit burst 16kb latency {ms}ms");
        self.at_both_ends(node, |link| format!("qdisc replace dev {link} {shape}"))
    }

    /// Takes back all that was done to the network.
    pub(super) fn heal(&mut self) -> Result<(), Failure> {
        while let Some((from, to)) = self.cuts.pop_first() {
            self.rule("del", from, to)?;
        }
        while let Some(node) = self.slow.pop_first() {
            self.at_both_ends(node, |link| format!("qdisc del dev {link} root"))?;
        }
        Ok(())
    }

    fn rule(&self, verb: &str, from: usize, to: usize) -> Result<(), Failure> {
        // Unlike `unreachable` and `prohibit` it sends the peer no error.
        let rule = format!("rule {verb} pref {PREFERENCE} from {} to {} blackhole", address(from), address(to));
        ip(Some(&self.router()), [rule])
    }

    /// Has `tc` execute a line at both ends of a node's link to its peers.
    fn at_both_ends(&self, node: usize, line: impl Fn(&str) -> String) -> Result<(), Failure> {
        let ends = [(self.router(), link_name(node)), (self.namespace(node), "peers".to_owned())];
        let mut ends = ends.into_iter();
        ends.try_for_each(|(namespace, link)| batch("tc", Some(&namespace), [line(&link)])).map_err(Failure::failed)
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
        self.all().iter().for_each(|namespace| namespaces::remove(namespace));
    }
}

fn ip(namespace: Option<&str>, lines: impl IntoIterator<Item = String>) -> Result<(), Failure> {
    batch("ip", namespace, lines).map_err(Failure::failed)
}

/// The address of a node.
pub(super) fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, u8::try_from(node + 1).unwrap_or(u8::MAX))
}

fn link_name(node: usize) -> String {
    format!("to-n{}", node + 1)
}
