//! The network of a run: a namespace for each node and each client, and a switch between them.
//!
//! Every namespace has one link, to a bridge in a namespace of its own. Both ends of a link are shaped, so it carries the
//! same number of bits per second in each direction, like a port of a switch.

mod command;
mod leftovers;

use std::{
    fs::File,
    net::Ipv4Addr,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use self::command::{batch, exists};
use crate::throughput::Failed;

/// The name of a link's end in its own namespace.
const LINK: &str = "link";
const BRIDGE: &str = "bridge";
/// Bytes that may wait at either end of a link. Further ones are dropped.
pub const QUEUE_BYTES: u32 = 512 << 10;

/// The namespaces of this process. They are removed when the process ends, also by a signal.
static MADE: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn made() -> MutexGuard<'static, Vec<String>> {
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all namespaces that this process made, and ends the processes in them.
pub fn remove_all() {
    made().drain(..).for_each(|namespace| leftovers::remove_namespace(&namespace));
}

/// The owner of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The node with this number, from 0 on.
    Node(usize),
    /// The client with this number, from 0 on.
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
    /// What this machine lacks for such a network, if anything.
    pub fn missing() -> Option<&'static str> {
        if !rustix::process::geteuid().is_root() {
            return Some("network namespaces need root");
        }
        (!exists("ip") || !exists("tc")).then_some("there is no iproute2 (`ip` and `tc`)")
    }

    /// Makes the namespaces, after removing those of earlier runs that were killed.
    ///
    /// # Errors
    /// An error of `ip` or `tc`.
    pub fn make(nodes: usize, clients: usize, mbit: u32) -> Result<Self, Failed> {
        leftovers::remove();
        let places = (0..nodes).map(Place::Node).chain((0..clients).map(Place::Client)).collect();
        let net = Self { prefix: format!("{}{}-", leftovers::PREFIX, process::id()), places };
        net.build()?;
        net.at_all_ends(|link| format!("qdisc add dev {link} root handle 1: htb default 1"))?;
        net.shape(mbit)?;
        let queue = |link: &str| format!("qdisc add dev {link} parent 1:1 handle 2: bfifo limit {QUEUE_BYTES}");
        net.at_all_ends(queue)?;
        Ok(net)
    }

    fn build(&self) -> Result<(), Failed> {
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
    ///
    /// # Errors
    /// An error of `tc`.
    pub fn shape(&self, mbit: u32) -> Result<(), Failed> {
        // HTB handles a train of segments as a whole; TBF would cut it.
        let rate = format!("htb rate {mbit}mbit ceil {mbit}mbit burst 16k cburst 16k quantum 3000");
        self.at_all_ends(|link| format!("class replace dev {link} parent 1: classid 1:1 {rate}"))
    }

    /// Has `tc` execute a line at both ends of every link.
    fn at_all_ends(&self, line: impl Fn(&str) -> String) -> Result<(), Failed> {
        batch("tc", Some(&self.switch()), self.places.iter().map(|place| line(&place.name())))?;
        self.places.iter().try_for_each(|&place| batch("tc", Some(&self.namespace(place)), [line(LINK)]))
    }

    /// The name of a namespace.
    pub fn namespace(&self, place: Place) -> String {
        format!("{}{}", self.prefix, place.name())
    }

    /// A handle with which threads can enter a namespace.
    pub fn door(&self, place: Place) -> Door {
        Door(Path::new("/run/netns").join(self.namespace(place)))
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

/// A namespace that a thread can move to.
#[derive(Debug, Clone)]
pub struct Door(PathBuf);

impl Door {
    /// Moves this thread, and those that it starts from now on, into the namespace.
    ///
    /// # Errors
    /// An error of the system.
    pub fn enter(&self) -> Result<(), Failed> {
        let file = File::open(&self.0).map_err(|error| format!("{}: {error}", self.0.display()))?;
        Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_differ() {
        let places: Vec<_> = (0..20).flat_map(|n| [Place::Node(n), Place::Client(n)]).collect();
        let addresses: std::collections::BTreeSet<_> = places.iter().map(|place| place.address()).collect();
        assert_eq!(addresses.len(), places.len());
    }

    #[test]
    fn namespaces_are_removed() {
        if let Some(missing) = Net::missing() {
            eprintln!("SKIPPED: {missing}");
            return;
        }
        let net = Net::make(1, 1, 10).unwrap();
        let paths = [net.door(Place::Node(0)).0, net.door(Place::Client(0)).0];
        assert!(paths.iter().all(|path| path.exists()));
        let door = net.door(Place::Client(0));
        let bound = std::thread::scope(|scope| {
            let inside = || {
                door.enter()?;
                Ok::<_, Failed>(std::net::UdpSocket::bind((Place::Client(0).address(), 0)).map(drop)?)
            };
            scope.spawn(inside).join().unwrap()
        });
        assert!(bound.is_ok(), "{bound:?}");
        drop(net);
        assert!(paths.iter().all(|path| !path.exists()));
    }
}
