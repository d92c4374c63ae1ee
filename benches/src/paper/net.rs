//! The network of a run: a namespace for each node and each client, and a switch between them.
//!
//! Every namespace has one link, to a bridge in another namespace. Both ends of a link are shaped, so it carries the
//! same number of bits per second in each direction, like a port of a switch.

use std::{
    io,
    net::Ipv4Addr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use artillery_processes::namespaces::{self, Maker, batch};

/// Tests create namespaces too: their program is named after the library.
const MAKER: Maker = Maker { prefix: "artillery-paper-", programs: &["paper", "artillery_bench"] };

/// The name of a link's end in its own namespace.
const LINK: &str = "link";
const BRIDGE: &str = "bridge";
/// Bytes that may wait at either end of a link. Further ones are dropped.
pub const QUEUE_BYTES: u32 = 512 << 10;

/// The namespaces of this process. They are removed when it exits, even on SIGINT or SIGTERM.
static MADE: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn made() -> MutexGuard<'static, Vec<String>> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all namespaces created by this process, and ends the processes in them.
pub fn remove_all() {
    made().drain(..).for_each(|namespace| namespaces::remove(&namespace));
}

/// The owner of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The node with this number, from 0 up.
    Node(usize),
    /// The client with this number, from 0 up.
    Client(usize),
}

impl Place {
    /// The address of the place.
    pub fn address(self) -> Ipv4Addr {
        let (third, number) = match self {
            Self::Node(number) => (0, number),
            Self::Client(number) => (1, number),
        };
        Ipv4Addr::new(10, 79, third, u8::try_from(number + 1).unwrap_or(u8::MAX))
    }

    fn name(self) -> String {
        match self {
            Self::Node(number) => format!("n{}", number + 1),
            Self::Client(number) => format!("c{}", number + 1),
        }
    }
}

/// The namespaces of a run. Dropping it removes them, with all processes in them.
#[derive(Debug)]
pub struct Net {
    prefix: String,
    places: Vec<Place>,
}

impl Net {
    /// Creates the namespaces, after removing those of earlier runs that were killed.
    pub fn make(nodes: usize, clients: usize, mbit: u32) -> io::Result<Self> {
        let left = MAKER.leftovers();
        if !left.is_empty() {
            eprintln!("{} namespaces were left behind by an earlier run: removing them", left.len());
        }
        left.iter().for_each(|namespace| namespaces::remove(namespace));
        let places = (0..nodes).map(Place::Node).chain((0..clients).map(Place::Client)).collect();
        let net = Self { prefix: MAKER.own_prefix(), places };
        net.build()?;
        net.at_all_ends(|link| format!("qdisc add dev {link} root handle 1: htb default 1"))?;
        net.shape(mbit)?;
        let queue = |link: &str| format!("qdisc add dev {link} parent 1:1 handle 2: bfifo limit {QUEUE_BYTES}");
        net.at_all_ends(queue)?;
        Ok(net)
    }

    fn build(&self) -> io::Result<()> {
        let switch = self.switch();
        let mut names: Vec<_> = self.places.iter().map(|&place| self.namespace(place)).collect();
        names.push(switch.clone());
        made().extend(names.iter().cloned());
        batch("ip", None, names.iter().map(|name| format!("netns add {name}")))?;
        let bridge = [format!("link add name {BRIDGE} type bridge"), format!("link set dev {BRIDGE} up")];
        let links = self.places.iter().flat_map(|&place| {
            let (name, namespace) = (place.name(), self.namespace(place));
            [
                format!("link add name {name} type veth peer name {LINK} netns {namespace}"),
                format!("link set dev {name} master {BRIDGE} up"),
            ]
        });
        batch("ip", Some(&switch), bridge.into_iter().chain(links))?;
        self.places.iter().try_for_each(|&place| {
            let own = format!("addr add {}/16 dev {LINK}", place.address());
            let lines = ["link set dev lo up".to_owned(), own, format!("link set dev {LINK} up")];
            batch("ip", Some(&self.namespace(place)), lines)
        })
    }

    /// Sets the rate of each link, in megabits per second in each direction.
    pub fn shape(&self, mbit: u32) -> io::Result<()> {
        // HTB handles a train of segments as a whole; TBF would split it.
        let rate = format!("htb rate {mbit}mbit ceil {mbit}mbit burst 16k cburst 16k quantum 3000");
        self.at_all_ends(|link| format!("class replace dev {link} parent 1: classid 1:1 {rate}"))
    }

    /// Executes a `tc` command at both ends of every link.
    fn at_all_ends(&self, line: impl Fn(&str) -> String) -> io::Result<()> {
        batch("tc", Some(&self.switch()), self.places.iter().map(|place| line(&place.name())))?;
        self.places.iter().try_for_each(|&place| batch("tc", Some(&self.namespace(place)), [line(LINK)]))
    }

    /// The name of a namespace.
    pub fn namespace(&self, place: Place) -> String {
        format!("{}{}", self.prefix, place.name())
    }

    fn switch(&self) -> String {
        format!("{}switch", self.prefix)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        remove_all();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn addresses_differ() {
        let places: Vec<_> = (0..20).flat_map(|n| [Place::Node(n), Place::Client(n)]).collect();
        let addresses: std::collections::BTreeSet<_> = places.iter().map(|place| place.address()).collect();
        assert_eq!(addresses.len(), places.len());
    }

    #[test]
    fn namespaces_are_removed() {
        if let Some(missing) = namespaces::missing() {
            eprintln!("SKIPPED: {missing}");
            return;
        }
        assert!(MAKER.runs(std::process::id()), "a concurrent test would remove the namespaces of this one");
        let net = Net::make(1, 1, 10).unwrap();
        let names = [Place::Node(0), Place::Client(0)].map(|place| net.namespace(place));
        let exists = |name: &String| Path::new("/run/netns").join(name).exists();
        assert!(names.iter().all(exists));
        let bound = std::thread::scope(|scope| {
            let inside = || {
                namespaces::enter(&names[1])?;
                std::net::UdpSocket::bind((Place::Client(0).address(), 0)).map(drop)
            };
            scope.spawn(inside).join().unwrap()
        });
        assert!(bound.is_ok(), "{bound:?}");
        drop(net);
        assert!(!names.iter().any(exists));
    }
}
