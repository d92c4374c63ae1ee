//! Links that break and recover.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use artillery_core::{
    NodeId,
    error::{BindError, CloseReason, ConnectError},
    identity::Identity,
    internal::LinkFilter,
    transport::{CloseCode, Connection, LinkState},
};

use tokio::net::UdpSocket;

use super::support::{Event, Node, SECRET, Spec, arrives, connected, within};

#[derive(Clone, Default)]
struct Cuts(Arc<Mutex<BTreeSet<SocketAddr>>>);

impl Cuts {
    fn filter(&self) -> LinkFilter {
        let cuts = self.clone();
        Arc::new(move |addr| !cuts.0.lock().unwrap().contains(&addr))
    }

    fn cut(&self, addr: SocketAddr) {
        self.0.lock().unwrap().insert(addr);
    }

    fn heal(&self) {
        self.0.lock().unwrap().clear();
    }
}

async fn works(connection: &Connection, to: &mut Node) {
    arrives(connection, to, "hello").await;
}

#[tokio::test]
async fn one_link_for_each_peer() {
    let (a, mut b) = (Spec::new("a").bind(), Spec::new("b").bind());
    let link = a.endpoint.link(NodeId::from_name("b"), vec![b.addr()]);
    let again = a.endpoint.link(NodeId::from_name("b"), vec![]);
    let connection = within(link.connected()).await.unwrap();
    works(&connection, &mut b).await;
    works(&within(again.connected()).await.unwrap(), &mut b).await;
    assert_eq!(a.endpoint.counters().dialled, 1);
}

#[tokio::test]
async fn a_link_ends_with_its_last_handle() {
    let (a, mut b) = (Spec::new("a").bind(), Spec::new("b").bind());
    let link = a.endpoint.link(NodeId::from_name("b"), vec![b.addr()]);
    let again = link.clone();
    within(link.connected()).await.unwrap();
    drop(link);
    works(&within(again.connected()).await.unwrap(), &mut b).await;
    let mut watch = again.watch();
    drop(again);
    within(async { while watch.changed().await.is_some() {} }).await;
    drop(watch);
    b.event_of(|event| matches!(event, Event::Disconnected(_)).then_some(())).await;
}

#[tokio::test]
async fn a_link_waits_for_an_address() {
    let (a, mut b) = (Spec::new("a").bind(), Spec::new("b").bind());
    let link = a.endpoint.link(NodeId::from_name("b"), vec![]);
    let mut watch = link.watch();
    within(async {
        while !matches!(watch.changed().await, Some(LinkState::Down(Some(error))) if *error == ConnectError::NoAddress)
        {
        }
    })
    .await;
    assert!(link.connection().is_none());
    link.set_addresses(vec![b.addr()]);
    works(&within(link.connected()).await.unwrap(), &mut b).await;
}

#[tokio::test]
async fn a_wrong_address_does_no_harm() {
    let (a, mut b, c) = (Spec::new("a").bind(), Spec::new("b").bind(), Spec::new("c").bind());
    let link = a.endpoint.link(NodeId::from_name("b"), vec![c.addr(), b.addr()]);
    works(&within(link.connected()).await.unwrap(), &mut b).await;
}

#[tokio::test]
async fn a_broken_connection_is_dialled_again() {
    let (a, mut b) = (Spec::new("a").bind(), Spec::new("b").bind());
    let link = a.endpoint.link(NodeId::from_name("b"), vec![b.addr()]);
    let first = within(link.connected()).await.unwrap();
    first.close(CloseCode::DONE, "");
    let second = within(link.connected()).await.unwrap();
    assert_eq!(second.close_reason(), None);
    works(&second, &mut b).await;
}

/// Binds a node at `addr`. Tries again until the former owner of the port has released it.
async fn rebind(addr: SocketAddr, spec: impl Fn() -> Spec) -> Node {
    within(async {
        loop {
            let mut spec = spec();
            spec.config.listen = addr;
            match spec.try_bind() {
                Ok(node) => return node,
                Err(BindError::Socket { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_peer_restarted_on_its_port_is_dialled_again() {
    let (a, b) = (Spec::new("a").bind(), Spec::new("b").bind());
    let (addr, former) = (b.addr(), b.endpoint.id());
    let link = a.endpoint.link(former.node, vec![addr]);
    assert_eq!(within(link.connected()).await.unwrap().peer().id, former);
    within(b.endpoint.shutdown()).await;
    drop(b);
    let mut b = rebind(addr, || Spec { store: 2, ..Spec::new("b") }).await;
    let connection = within(link.connected()).await.unwrap();
    assert_eq!(connection.peer().id, b.endpoint.id());
    assert_ne!(connection.peer().id, former);
    works(&connection, &mut b).await;
}

/// The peer dies silently and is restarted. The new process resets the connection, long before any timeout.
#[tokio::test]
async fn a_peer_that_died_silently_is_noticed_by_its_successor() {
    let cuts = Cuts::default();
    let mut spec = Spec::new("a");
    spec.config.idle_timeout = Duration::from_secs(600);
    let (a, b, connection) = connected(spec, Spec { filter: Some(cuts.filter()), ..Spec::new("b") }).await;
    let addr = b.addr();
    cuts.cut(a.addr());
    drop(b);
    let _b = rebind(addr, || Spec { store: 2, ..Spec::new("b") }).await;
    assert_eq!(within(connection.closed()).await, CloseReason::Reset);
}

/// The close reason of a connection to a node that replaced its secret and died silently, when a node with the identity
/// `successor` binds its port.
async fn ended_after_a_new_secret(successor: Identity, idle_timeout: Duration) -> CloseReason {
    let cuts = Cuts::default();
    let mut spec = Spec::with(new("a"));
    spec.config.idle_timeout = idle_timeout;
    let a = spec.bind();
    let b = Spec { filter: Some(cuts.filter()), ..Spec::new("b") }.bind();
    b.endpoint.set_identity(new("b")).unwrap();
    let addr = b.addr();
    let connection = within(a.endpoint.connect(addr)).await.unwrap();
    cuts.cut(a.addr());
    drop(b);
    let _successor = rebind(addr, || Spec { store: 2, ..Spec::with(successor.clone()) }).await;
    within(connection.closed()).await
}

fn new(name: &str) -> Identity {
    Identity::from_secret(b"another secret of some length", name).unwrap()
}

/// The former incarnation had already derived its tokens from the new secret.
#[tokio::test]
async fn a_successor_by_the_new_secret_is_noticed_too() {
    let ended = ended_after_a_new_secret(new("b"), Duration::from_secs(600)).await;
    assert_eq!(ended, CloseReason::Reset);
}

/// An intruder with the old secret knows the node's old key and sees the connection's id on the wire, but cannot close
/// the connection.
#[tokio::test]
async fn a_holder_of_the_old_secret_ends_no_connection() {
    let intruder = Identity::from_secret(SECRET, "b").unwrap();
    let ended = ended_after_a_new_secret(intruder, Duration::from_secs(2)).await;
    assert_eq!(ended, CloseReason::TimedOut, "its resets are not believed");
}

/// A restarted node sends a hello to a peer that still has a connection to its former process, which died silently.
#[tokio::test]
async fn a_hello_of_a_new_process_replaces_the_connection_to_the_old_one() {
    let mut a = Spec::new("a").bind();
    let cuts = Cuts::default();
    let old = Spec { filter: Some(cuts.filter()), ..Spec::new("b") }.bind();
    let link = a.endpoint.link(NodeId::from_name("b"), vec![old.addr()]);
    let connection = within(link.connected()).await.unwrap();
    cuts.cut(a.addr());
    let new = Spec { store: 2, ..Spec::new("b") }.bind();
    link.set_addresses(vec![new.addr()]);
    within(new.endpoint.connect(a.addr())).await.unwrap();
    assert_eq!(within(connection.closed()).await, CloseReason::Here);
    assert_eq!(within(link.connected()).await.unwrap().peer().id, new.endpoint.id());
    a.event_of(|event| matches!(event, Event::Admitted(_)).then_some(())).await;
}

/// Users of a link may each know another incarnation of its peer, and set its addresses repeatedly.
#[tokio::test]
async fn a_new_process_is_found_where_it_calls_from() {
    let a = Spec::new("a").bind();
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let link = a.endpoint.link(NodeId::from_name("b"), vec![nobody.local_addr().unwrap()]);
    let mut b = Spec { store: 2, ..Spec::new("b") }.bind();
    let _calling = within(b.endpoint.connect(a.addr())).await.unwrap();
    let connection = within(link.connected()).await.unwrap();
    assert_eq!(connection.peer().id, b.endpoint.id());
    works(&connection, &mut b).await;
}

/// The same, for a link that is created after the peer has connected.
#[tokio::test]
async fn a_process_that_has_called_is_found() {
    let mut a = Spec::new("a").bind();
    let mut b = Spec::new("b").bind();
    let _calling = within(b.endpoint.connect(a.addr())).await.unwrap();
    a.event_of(|event| matches!(event, Event::Admitted(_)).then_some(())).await;
    let link = a.endpoint.link(b.endpoint.id().node, vec![]);
    works(&within(link.connected()).await.unwrap(), &mut b).await;
}

#[tokio::test]
async fn a_cut_link_heals() {
    let cuts = Cuts::default();
    let a = Spec { filter: Some(cuts.filter()), ..Spec::new("a") }.bind();
    let (mut b, mut c) = (Spec::new("b").bind(), Spec::new("c").bind());
    let to_b = a.endpoint.link(NodeId::from_name("b"), vec![b.addr()]);
    let to_c = a.endpoint.link(NodeId::from_name("c"), vec![c.addr()]);
    let first = within(to_b.connected()).await.unwrap();
    let other = within(to_c.connected()).await.unwrap();
    cuts.cut(b.addr());
    assert_eq!(within(first.closed()).await, CloseReason::TimedOut);
    assert!(to_b.connection().is_none());
    works(&other, &mut c).await;
    cuts.heal();
    works(&within(to_b.connected()).await.unwrap(), &mut b).await;
}

#[tokio::test]
async fn the_end_of_the_endpoint_ends_its_links() {
    let (a, b) = (Spec::new("a").bind(), Spec::new("b").bind());
    let link = a.endpoint.link(NodeId::from_name("b"), vec![b.addr()]);
    let connection = within(link.connected()).await.unwrap();
    drop(a);
    within(connection.closed()).await;
    within(async { while link.connected().await.is_ok() {} }).await;
}

/// Relays packets between a dialler and a node with a delay, and drops all of them once `loses` is set.
async fn relay(node: SocketAddr, late: Duration) -> (SocketAddr, Arc<AtomicBool>) {
    let (outside, inside) = (udp().await, udp().await);
    let (addr, loses) = (outside.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
    let dialler = Arc::new(Mutex::new(None));
    for (from, to, there) in [(outside.clone(), inside.clone(), true), (inside, outside, false)] {
        let (loses, dialler) = (loses.clone(), dialler.clone());
        tokio::spawn(async move {
            let mut packet = vec![0; 65_536];
            while let Ok((len, sender)) = from.recv_from(&mut packet).await {
                if there {
                    *dialler.lock().unwrap() = Some(sender);
                }
                let target = if there { Some(node) } else { *dialler.lock().unwrap() };
                let (Some(target), false) = (target, loses.load(Ordering::SeqCst)) else { continue };
                let (to, packet) = (to.clone(), packet[..len].to_vec());
                tokio::spawn(async move {
                    tokio::time::sleep(late).await;
                    drop(to.send_to(&packet, target).await);
                });
            }
        });
    }
    (addr, loses)
}

async fn udp() -> Arc<UdpSocket> {
    Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap())
}

/// With round trips of 600 ms, QUIC takes several seconds to close a connection, whatever the idle timeout is.
#[tokio::test]
async fn a_long_wait_for_acknowledgements_ends_with_the_idle_timeout() {
    let (a, mut b) = (Spec::new("a").bind(), Spec::new("b").bind());
    let (addr, loses) = relay(b.addr(), Duration::from_millis(300)).await;
    let link = a.endpoint.link(NodeId::from_name("b"), vec![addr]);
    let mut watch = link.watch();
    works(&within(link.connected()).await.unwrap(), &mut b).await;
    loses.store(true, Ordering::SeqCst);
    within(async {
        loop {
            match watch.changed().await {
                Some(LinkState::Down(Some(why))) if *why == ConnectError::Lost(CloseReason::Unacknowledged) => return,
                Some(LinkState::Down(Some(why))) => panic!("{why}"),
                _ => {}
            }
        }
    })
    .await;
    loses.store(false, Ordering::SeqCst);
    works(&within(link.connected()).await.unwrap(), &mut b).await;
}
