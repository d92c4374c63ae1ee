//! A node that can dial, and can't be dialled: a relay in user space does what address translation does. Every packet of
//! the node leaves from a port of the relay's own, one for each peer, and only what that peer sends back to this port
//! reaches the node. What peers send to the node's own address is lost.
//!
//! The relay poses as the peers towards the node, so a namespace of its own has their addresses.

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

/// More than any packet has.
const MAX_PACKET_BYTES: usize = 65_536;

/// The tasks that carry packets. Dropped: they end.
pub(super) struct Relay {
    _tasks: JoinSet<()>,
    /// The addresses that the relay poses as.
    peers: Vec<Ipv4Addr>,
}

impl Net {
    /// From now on no peer reaches this node but in answer to it. `peers`: where each of them listens.
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

    /// Takes the relay away.
    pub(super) fn open_inbound(&mut self) -> Result<(), Failure> {
        let Some((node, relay)) = self.relay.take() else { return Ok(()) };
        ip(Some(&self.router()), self.detour("del", node, &relay.peers))?;
        ip(Some(&self.relay()), relay.peers.iter().map(|peer| format!("addr del {peer}/32 dev lo")))
    }

    /// Rules that lead packets of a node to the relay, and those of the relay past the cuts.
    fn detour(&self, verb: &str, node: usize, peers: &[Ipv4Addr]) -> Vec<String> {
        let own = self.address(node);
        let back = format!("rule {verb} pref {BEFORE_CUTS} iif {TO_RELAY} lookup main");
        let rule = |peer: &Ipv4Addr| format!("rule {verb} pref {PREFERENCE} from {own} to {peer} lookup {RELAY_TABLE}");
        [back].into_iter().chain(peers.iter().map(rule)).collect()
    }
}

/// A socket in a namespace. It stays there, unlike the thread that makes it.
#[allow(clippy::disallowed_methods, reason = "a namespace is one of a thread, and tasks share theirs")]
fn bind(namespace: String, at: SocketAddr, peer: Option<SocketAddr>) -> Result<net::UdpSocket, Failure> {
    let make = move || -> io::Result<UdpSocket> {
        namespaces::enter(&namespace)?;
        let socket = UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        peer.map_or(Ok(()), |peer| socket.connect(peer))?;
        Ok(socket)
    };
    let made = thread::spawn(make).join().map_err(|_| Failure::failed("the relay has no socket"))?;
    made.and_then(net::UdpSocket::from_std).map_err(|error| Failure::failed(format!("the relay at {at}: {error}")))
}

/// Carries packets between the node and one peer.
fn carry(tasks: &mut JoinSet<()>, inside: net::UdpSocket, outside: net::UdpSocket) {
    let (inside, outside, node) = (Arc::new(inside), Arc::new(outside), Arc::new(OnceLock::new()));
    tasks.spawn(out(inside.clone(), outside.clone(), node.clone()));
    tasks.spawn(back(inside, outside, node));
}

async fn out(inside: Arc<net::UdpSocket>, outside: Arc<net::UdpSocket>, node: Arc<OnceLock<SocketAddr>>) {
    let mut packet = vec![0; MAX_PACKET_BYTES];
    loop {
        // A peer that is down answers with errors.
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
