//! Peers whose addresses change.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use artillery_core::internal::LinkFilter;
use tokio::{
    net::UdpSocket,
    sync::watch::{self, Sender},
};

use super::support::{Node, Spec, arrives, within};

const LONG: Duration = Duration::from_secs(600);

/// Two addresses of one machine.
const BEFORE: &str = "127.0.0.2";
const AFTER: &str = "127.0.0.3";

fn without(addr: &Arc<Mutex<Option<SocketAddr>>>) -> LinkFilter {
    let addr = addr.clone();
    Arc::new(move |other| *addr.lock().unwrap() != Some(other))
}

/// A node at both addresses, which advertises the first one.
fn mover() -> Node {
    let mut spec = Spec::new("n");
    spec.config.listen = "0.0.0.0:0".parse().unwrap();
    spec.config.advertise = Some(at(BEFORE, 0));
    spec.config.idle_timeout = LONG;
    spec.bind()
}

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// Relays packets between a dialler and a node. Their source is the first address until `true` is sent on the channel,
/// and then the second.
async fn relay(node: SocketAddr) -> (SocketAddr, Sender<bool>) {
    let inside = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let outside =
        [UdpSocket::bind((BEFORE, 0)).await.unwrap(), UdpSocket::bind((AFTER, 0)).await.unwrap()].map(Arc::new);
    let (addr, (moves, moved)) = (inside.local_addr().unwrap(), watch::channel(false));
    let dialler = Arc::new(Mutex::new(None));
    for outside in outside.clone() {
        let (inside, dialler) = (inside.clone(), dialler.clone());
        tokio::spawn(async move {
            let mut packet = vec![0; 65_536];
            while let Ok((len, _)) = outside.recv_from(&mut packet).await {
                let target: Option<SocketAddr> = *dialler.lock().unwrap();
                let Some(target) = target else { continue };
                drop(inside.send_to(&packet[..len], target).await);
            }
        });
    }
    tokio::spawn(async move {
        let mut packet = vec![0; 65_536];
        while let Ok((len, from)) = inside.recv_from(&mut packet).await {
            *dialler.lock().unwrap() = Some(from);
            let socket = &outside[usize::from(*moved.borrow())];
            drop(socket.send_to(&packet[..len], node).await);
        }
    });
    (addr, moves)
}

/// The connection that the peer dialled migrates with it, and thereby shows where the peer can be dialled.
#[tokio::test]
async fn a_peer_that_has_moved_is_dialled_where_it_is_now() {
    let gone = Arc::<Mutex<_>>::default();
    let mut spec = Spec { filter: Some(without(&gone)), ..Spec::new("p") };
    spec.config.idle_timeout = LONG;
    let (p, mut n) = (spec.bind(), mover());
    let (addr, moves) = relay(p.addr()).await;
    let from_n = n.endpoint.link(p.endpoint.id().node, vec![addr]);
    within(from_n.connected()).await.unwrap();
    let (before, after) = (n.endpoint.advertised_addr(), at(AFTER, n.addr().port()));
    let to_n = p.endpoint.link(n.endpoint.id().node, vec![before]);
    let connection = within(to_n.connected()).await.unwrap();
    assert_eq!(connection.peer().remote, before);

    *gone.lock().unwrap() = Some(before);
    moves.send_replace(true);
    within(connection.closed()).await;
    let connection = within(to_n.connected()).await.unwrap();
    assert_eq!(connection.peer().remote, after);
    arrives(&connection, &mut n, "here").await;
    assert_eq!(from_n.connection().and_then(|connection| connection.close_reason()), None);
}

/// A dial that still waits for an answer must not delay the dial to the new address.
#[tokio::test]
async fn a_link_that_dials_in_vain_finds_where_its_peer_is() {
    let gone = Arc::<Mutex<_>>::default();
    let mut spec = Spec { filter: Some(without(&gone)), ..Spec::new("p") };
    (spec.config.idle_timeout, spec.config.hello_timeout) = (LONG, LONG);
    let (p, mut n) = (spec.bind(), mover());
    *gone.lock().unwrap() = Some(n.endpoint.advertised_addr());
    let (addr, moves) = relay(p.addr()).await;
    let from_n = n.endpoint.link(p.endpoint.id().node, vec![addr]);
    within(from_n.connected()).await.unwrap();
    let to_n = p.endpoint.link(n.endpoint.id().node, vec![]);
    moves.send_replace(true);
    let connection = within(to_n.connected()).await.unwrap();
    assert_eq!(connection.peer().remote, at(AFTER, n.addr().port()));
    arrives(&connection, &mut n, "here").await;
}

/// An address that answers is found after one that does not, without waiting for the latter.
#[tokio::test]
async fn addresses_are_dialled_side_by_side() {
    let mut spec = Spec::new("p");
    (spec.config.idle_timeout, spec.config.hello_timeout) = (LONG, LONG);
    let (p, mut n) = (spec.bind(), Spec::new("n").bind());
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let link = p.endpoint.link(n.endpoint.id().node, vec![silent.local_addr().unwrap(), n.addr()]);
    arrives(&within(link.connected()).await.unwrap(), &mut n, "here").await;
}

#[tokio::test]
async fn hellos_state_the_address_as_it_is_now() {
    let (p, n) = (Spec::new("p").bind(), mover());
    let mut followed = n.endpoint.watch_advertised_addrs();
    n.endpoint.set_advertised_addrs(vec![at(AFTER, n.addr().port())]);
    assert!(within(followed.changed()).await.is_ok());
    within(n.endpoint.connect(p.addr())).await.unwrap();
    let stated: Vec<_> = p.endpoint.accepted_from(n.endpoint.id().node).iter().map(|peer| peer.addr).collect();
    assert_eq!(stated, [at(AFTER, n.addr().port())]);
}
