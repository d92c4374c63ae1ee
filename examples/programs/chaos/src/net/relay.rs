//! Makes a node that can dial, but can't be dialled: a relay in user space acts as address translation. Packets of the
//! node leave from a port of the relay, one port per peer, and only replies of that peer to this port reach the node.
//! Packets that peers send to the node's own address are dropped.
//!
//! Towards the node the relay has the addresses of the peers, so it needs a namespace of its own.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{Arc, OnceLock},
    thread,
};

use artillery_processes::namespaces;
use artillery_programs::exit::Failure;
use tokio::{net, task::JoinSet};

use super::{BEFORE_CUTS, Net, PREFERENCE, RELAY_TABLE, ROUTER, TO_RELAY, ip};

/// More than the size of any UDP payload.
const MAX_PACKET_BYTES: usize = 65_536;

/// The tasks that forward packets; dropping it aborts them.
pub(super) struct Relay {
    _tasks: JoinSet<()>,
    /// The addresses of the peers that the relay impersonates.
    peers: Vec<Ipv4Addr>,
}

impl Net {
    /// Lets peers reach this node only by replies to its packets. `peers` are the addresses where they listen.
    pub(in super::super) fn close_inbound(&mut self, node: usize, peers: &[SocketAddr]) -> Result<(), Failure> {
        let addresses: Vec<_> = (0..self.nodes).filter(|peer| *peer != node).map(|peer| self.address(peer)).collect();
        ip(Some(&self.relay()), addresses.iter().map(|peer| format!("addr add {peer}/32 dev lo")))?;
        let mut tasks = JoinSet::new();
        for peer in peers {
            let outside = bind(self.router(), SocketAddr::from((ROUTER, 0)), Some(*peer))?;
            let inside = bind(self.relay(), *peer, None)?;
            carry(&mut tasks, inside, outside);
        }
        for peer in (0..self.nodes).filter(|peer| *peer != node) {
            self.cut(peer, node)?;
        }
        ip(Some(&self.router()), self.detour("add", node, &addresses))?;
        self.relay = Some((node, Relay { _tasks: tasks, peers: addresses }));
        Ok(())
    }

    pub(super) fn open_inbound(&mut self) -> Result<(), Failure> {
        let Some((node, relay)) = self.relay.take() else { return Ok(()) };
        ip(Some(&self.router()), self.detour("del", node, &relay.peers))?;
        ip(Some(&self.relay()), relay.peers.iter().map(|peer| format!("addr del {peer}/32 dev lo")))
    }

    /// The rules that route a node's packets to the relay, and let the relay's packets bypass the cuts.
    fn detour(&self, verb: &str, node: usize, peers: &[Ipv4Addr]) -> Vec<String> {
        let own = self.address(node);
        let back = format!("rule {verb} pref {BEFORE_CUTS} iif {TO_RELAY} lookup main");
        let rule = |peer: &Ipv4Addr| format!("rule {verb} pref {PREFERENCE} from {own} to {peer} lookup {RELAY_TABLE}");
        [back].into_iter().chain(peers.iter().map(rule)).collect()
    }
}

/// Opens a socket in a namespace, in which it stays.
#[allow(clippy::disallowed_methods, reason = "entering a namespace affects the whole thread, which tasks share")]
fn bind(namespace: String, at: SocketAddr, peer: Option<SocketAddr>) -> Result<net::UdpSocket, Failure> {
    let make = move || -> io::Result<UdpSocket> {
        namespaces::enter(&namespace)?;
        let socket = UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        peer.map_or(Ok(()), |peer| socket.connect(peer))?;
        Ok(socket)
    };
    let made =
        thread::spawn(make).join().map_err(|_| Failure::failed("the thread that opens the relay's socket panicked"))?;
    made.and_then(net::UdpSocket::from_std).map_err(|error| Failure::failed(format!("the relay at {at}: {error}")))
}

fn carry(tasks: &mut JoinSet<()>, inside: net::UdpSocket, outside: net::UdpSocket) {
    let (inside, outside, node) = (Arc::new(inside), Arc::new(outside), Arc::new(OnceLock::new()));
    tasks.spawn(out(inside.clone(), outside.clone(), node.clone()));
    tasks.spawn(back(inside, outside, node));
}

async fn out(inside: Arc<net::UdpSocket>, outside: Arc<net::UdpSocket>, node: Arc<OnceLock<SocketAddr>>) {
    let mut packet = vec![0; MAX_PACKET_BYTES];
    loop {
        // Ignore errors: a peer that is down causes ICMP errors.
        if let Ok((bytes, from)) = inside.recv_from(&mut packet).await {
            node.get_or_init(|| from);
            let _ = outside.send(&packet[..bytes]).await;
        }
    }
}

async fn back(inside: Arc<net::UdpSocket>, outside: Arc<net::UdpSocket>, node: Arc<OnceLock<SocketAddr>>) {
    let mut packet = vec![0; MAX_PACKET_BYTES];
    loop {
        if let (Ok(bytes), Some(node)) = (outside.recv(&mut packet).await, node.get()) {
            let _ = inside.send_to(&packet[..bytes], *node).await;
        }
    }
}
