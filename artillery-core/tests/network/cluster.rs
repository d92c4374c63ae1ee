//! Nodes that find and monitor each other over loopback sockets.

mod sources;
mod strangers;

use std::{
    collections::BTreeSet,
    net::{SocketAddr, UdpSocket},
    sync::{Arc, Mutex},
    time::Duration,
};

use artillery_core::{
    Cluster, ClusterBuilder, ClusterId, Incarnation, Member, MemberEvent, MemberEvents, MemberState, NodeId, SeedState,
    config::{SwimSettings, TransportConfig},
    discovery::Source,
    error::{ConnectError, IdentityError, Refusal, StartError},
    transport::{IncomingStream, PeerInfo, Service, StreamKind},
};
use tokio::sync::mpsc;

use crate::within::within;

const SECRET: &str = "a secret of some length";

fn node(name: &str) -> ClusterBuilder {
    let mut transport = TransportConfig::loopback();
    transport.keep_alive = Duration::from_millis(100);
    transport.idle_timeout = Duration::from_secs(1);
    transport.redial_max = Duration::from_millis(200);
    let mut membership = SwimSettings::loopback();
    membership.suspect_to_down = Duration::from_millis(500);
    Cluster::builder().cluster("test").name(name).secret(SECRET).transport(transport).membership(membership).mdns(false)
}

#[track_caller]
fn until(is_so: impl Fn() -> bool) -> impl Future<Output = ()> {
    within(async move {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
}

fn free_addr() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Waits until `wanted` holds for the members that `cluster` sees.
async fn see(cluster: &Cluster, mut wanted: impl FnMut(&[Member]) -> bool) {
    let mut events = cluster.events();
    within(async {
        while !wanted(&cluster.members()) {
            events.next().await.unwrap();
        }
    })
    .await;
}

async fn sees(cluster: &Cluster, other: &Cluster, state: MemberState) {
    see(cluster, |members| members.iter().any(|member| member.id == other.id() && member.state == state)).await;
}

async fn see_each_other(a: &Cluster, others: &[&Cluster], state: MemberState) {
    for other in others {
        sees(a, other, state).await;
        sees(other, a, state).await;
    }
}

async fn next_of<T>(events: &mut MemberEvents, mut pick: impl FnMut(MemberEvent) -> Option<T>) -> T {
    within(async {
        loop {
            if let Some(picked) = pick(events.next().await.unwrap()) {
                return picked;
            }
        }
    })
    .await
}

async fn trio() -> [Cluster; 3] {
    trio_around(node("a").payload("first")).await
}

/// Three nodes that see each other. Two of them have met the first one by a seed.
async fn trio_around(a: ClusterBuilder) -> [Cluster; 3] {
    let a = a.start().await.unwrap();
    let b = node("b").seed(a.addr().to_string()).start().await.unwrap();
    let c = node("c").seed(a.addr().to_string()).start().await.unwrap();
    let trio = [a, b, c];
    for one in &trio {
        for other in trio.iter().filter(|other| other.id() != one.id()) {
            sees(one, other, MemberState::Alive).await;
        }
    }
    trio
}

#[tokio::test]
async fn three_meet_by_a_seed() {
    let [a, b, c] = trio().await;
    let seen = c.member(a.id().node).unwrap();
    assert_eq!((seen.name.as_str(), seen.addr, &seen.payload[..]), ("a", a.addr(), &b"first"[..]));
    assert_eq!(c.found_by(a.id().node), Some(Source::Seed(a.addr().to_string())));
    assert_eq!(b.seeds()[0].state, SeedState::Met(a.id().node));
    // Applications can use the links that the membership has created.
    let link = b.endpoint().link(c.id().node, vec![]);
    assert_eq!(within(link.connected()).await.unwrap().peer().id, c.id());
}

#[tokio::test]
async fn a_crashed_member_is_reported_down() {
    let [a, b, c] = trio().await;
    let mut events = a.events();
    let gone = c.id();
    c.shutdown().await;
    drop(c);
    next_of(&mut events, |event| match event {
        MemberEvent::Down(member) if member.id == gone => Some(()),
        MemberEvent::Left(member) => panic!("{member:?} did not announce its departure"),
        _ => None,
    })
    .await;
    assert_eq!(events.members().find(|member| member.id == gone).unwrap().state, MemberState::Down);
    see(&b, |members| members.iter().any(|member| member.id == gone && member.state == MemberState::Down)).await;
    sees(&a, &b, MemberState::Alive).await;
}

#[tokio::test]
async fn a_farewell_is_reported_as_left() {
    let [a, b, c] = trio().await;
    let mut events = [a.events(), b.events()];
    let gone = c.id();
    within(c.leave()).await;
    for events in &mut events {
        next_of(events, |event| match event {
            MemberEvent::Left(member) if member.id == gone => Some(()),
            // Other members may report the farewell before it arrives from the member itself, but none may suspect the
            // member.
            MemberEvent::Suspect(member) => panic!("{member:?} announced its departure"),
            _ => None,
        })
        .await;
    }
    assert!(within(c.events().next()).await.is_none());
}

#[tokio::test]
async fn a_restarted_node_is_another_member() {
    let [a, b, c] = trio().await;
    let (former, seed) = (c.id(), b.addr());
    let mut events = a.events();
    c.shutdown().await;
    drop(c);
    let c = node("c").seed(seed.to_string()).start().await.unwrap();
    assert_eq!((c.id().node, c.id() == former), (former.node, false));
    sees(&a, &c, MemberState::Alive).await;
    // The former incarnation must be down before the new one joins.
    let mut over = false;
    next_of(&mut events, |event| match event {
        MemberEvent::Down(member) if member.id == former => {
            over = true;
            None
        }
        MemberEvent::Joined(member) if member.id == c.id() => Some(()),
        _ => None,
    })
    .await;
    assert!(over);
}

#[tokio::test]
async fn payloads_and_formations_get_about() {
    let [a, b, c] = trio().await;
    let mut events = c.events();
    a.set_payload("second").await.unwrap();
    let said = next_of(&mut events, |event| if let MemberEvent::Payload(member) = event { Some(member) } else { None });
    assert_eq!(said.await.payload, "second");
    for cluster in [&a, &b, &c] {
        cluster.set_cluster_id(ClusterId(7)).await;
    }
    see(&c, |members| members.iter().all(|member| member.cluster_id == Some(ClusterId(7)))).await;
    assert_eq!(c.member(a.id().node).unwrap().payload, "second");
    assert!(a.set_payload(vec![0; Member::MAX_PAYLOAD + 1]).await.is_err());
}

#[tokio::test]
async fn another_formation_refuses_a_node_at_all_seeds() {
    let [a, b, c] = trio().await;
    for cluster in [&a, &b, &c] {
        cluster.set_cluster_id(ClusterId(7)).await;
    }
    let d = node("d").cluster_id(Some(ClusterId(8))).seed(a.addr().to_string()).start().await.unwrap();
    let refused = within(d.refused_by_all_seeds()).await;
    let reason = ConnectError::Refused(Refusal::DifferentCluster { here: ClusterId(7), there: ClusterId(8) });
    assert_eq!(refused[0].state, SeedState::Refused { addr: a.addr(), reason });
    assert!(d.members().is_empty());
}

#[tokio::test]
async fn a_seed_that_refuses_is_reported() {
    let a = node("a").start().await.unwrap();
    let b = node("b").secret("another secret of some length").seed(a.addr().to_string()).start().await.unwrap();
    let mut events = b.events();
    let refused = within(b.refused_by_all_seeds()).await;
    assert!(
        matches!(&refused[0].state, SeedState::Refused { addr, reason: ConnectError::Untrusted(_) } if *addr == a.addr())
    );
    if b.seeds() != refused {
        next_of(&mut events, |event| matches!(event, MemberEvent::SeedRefused { .. }).then_some(())).await;
    }
    assert!(a.members().is_empty() && b.members().is_empty());
}

#[tokio::test]
async fn a_node_as_its_own_seed_recognises_itself() {
    let addr = free_addr();
    let a = node("a").listen(addr).seed(addr.to_string()).start().await.unwrap();
    let b = node("b").seed(addr.to_string()).start().await.unwrap();
    sees(&a, &b, MemberState::Alive).await;
    until(|| a.seeds()[0].state == SeedState::Itself).await;
}

#[tokio::test]
async fn a_second_process_of_one_name_is_refused() {
    let a = node("a").start().await.unwrap();
    let other = node("a").seed(a.addr().to_string()).start().await.unwrap();
    let refused = within(other.refused_by_all_seeds()).await;
    let reason = ConnectError::Refused(Refusal::Itself(a.id()));
    assert_eq!(refused[0].state, SeedState::Refused { addr: a.addr(), reason });
}

/// Every member refuses a second process with the name of a member, and does not treat it as a member.
#[tokio::test]
async fn a_second_process_ends_and_harms_none() {
    let [a, b, c] = trio().await;
    let mut events = a.events();
    for incarnation in [Incarnation { store: 0, starts: 0 }, Incarnation { store: u128::MAX, starts: u64::MAX }] {
        let other = node("c").incarnation(incarnation).seed(b.addr().to_string()).start().await.unwrap();
        assert_eq!(within(other.name_taken()).await, c.id());
        assert!(other.members().is_empty());
    }
    c.set_payload("still here").await.unwrap();
    next_of(&mut events, |event| match event {
        MemberEvent::Payload(member) if member.id == c.id() && member.payload == "still here" => Some(()),
        MemberEvent::Payload(_) | MemberEvent::Formed(_) => None,
        other => panic!("{other:?}"),
    })
    .await;
}

/// All members receive the new address, and none considers the node gone. A node that joins later receives it, too.
#[tokio::test]
async fn an_address_that_has_changed_reaches_all_members() {
    let a = node("a").start().await.unwrap();
    let joining = |name| node(name).seed(a.addr().to_string());
    let b = joining("b").start().await.unwrap();
    let moving = joining("c").listen("0.0.0.0:0".parse().unwrap()).advertise("127.0.0.2:0".parse().unwrap());
    let c = moving.start().await.unwrap();
    see_each_other(&b, &[&a, &c], MemberState::Alive).await;
    sees(&a, &c, MemberState::Alive).await;
    let mut events = a.events();
    let after = SocketAddr::new("127.0.0.3".parse().unwrap(), c.addr().port());
    c.endpoint().set_advertised_addrs(vec![after]);
    let is_there = |members: &[Member]| members.iter().any(|member| member.id == c.id() && member.addr == after);
    see(&a, is_there).await;
    see(&b, is_there).await;
    let moved = next_of(&mut events, |event| match event {
        MemberEvent::Moved(member) => Some((member.id, member.addr)),
        other => panic!("{other:?}"),
    })
    .await;
    assert_eq!(moved, (c.id(), after));
    assert_eq!(c.addr(), after);
    let d = node("d").seed(b.addr().to_string()).start().await.unwrap();
    see(&d, is_there).await;
}

#[tokio::test]
async fn invalid_settings_are_refused() {
    let error = |builder: ClusterBuilder| async { builder.start().await.unwrap_err() };
    assert!(matches!(
        error(node("a").secret("short")).await,
        StartError::Identity(IdentityError::SecretTooShort { len: 5, .. })
    ));
    assert!(matches!(error(Cluster::builder()).await, StartError::NoIdentity));
    assert!(matches!(error(node("A B")).await, StartError::Identity(IdentityError::BadName { .. })));
    assert!(matches!(error(node("a").seed("nowhere")).await, StartError::Seed(_)));
    assert!(matches!(error(node("a").payload(vec![0; 600])).await, StartError::Payload(_)));
    let mut membership = SwimSettings::lan();
    membership.probe_period = Duration::ZERO;
    assert!(matches!(error(node("a").membership(membership)).await, StartError::Membership(_)));
}

#[tokio::test]
async fn a_given_incarnation_is_used() {
    let incarnation = Incarnation { store: 5, starts: 9 };
    let a = node("a").incarnation(incarnation).start().await.unwrap();
    assert_eq!(a.id().incarnation, incarnation);
}

#[tokio::test]
async fn an_unspecified_address_is_not_advertised() {
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let a = node("a").listen(listen.parse().unwrap()).start().await.unwrap();
        let addrs = a.endpoint().advertised_addrs();
        assert!(
            !addrs.is_empty() && addrs.iter().all(|addr| !addr.ip().is_unspecified() && addr.port() != 0),
            "{addrs:?}"
        );
    }
    let advertised = node("b").listen("0.0.0.0:0".parse().unwrap()).advertise("127.0.0.1:0".parse().unwrap());
    let b = advertised.start().await.unwrap();
    assert_eq!(b.addr(), SocketAddr::from(([127, 0, 0, 1], b.endpoint().local_addr().port())));
}

/// A node advertises all addresses of its machine, and its socket supports both families.
#[tokio::test]
async fn nodes_on_all_addresses_see_each_other() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return eprintln!("SKIPPED: this host has no address ::1");
    }
    let on_all = |name: &str| node(name).listen("[::]:0".parse().unwrap());
    let a = on_all("a").start().await.unwrap();
    let port = a.addr().port();
    let b = on_all("b").seed(format!("127.0.0.1:{port}")).start().await.unwrap();
    let c = on_all("c").seed(format!("[::1]:{port}")).start().await.unwrap();
    see_each_other(&a, &[&b, &c], MemberState::Alive).await;
    see_each_other(&b, &[&c], MemberState::Alive).await;
    let told = b.endpoint().advertised_addrs();
    see(&c, |members| members.iter().any(|member| member.id == b.id() && member.addrs == told)).await;
}

#[derive(Clone, Default)]
struct Cuts(Arc<Mutex<BTreeSet<SocketAddr>>>);

impl Cuts {
    fn attach(&self, builder: ClusterBuilder) -> ClusterBuilder {
        let cuts = self.clone();
        builder.filter(Arc::new(move |addr| !cuts.0.lock().unwrap().contains(&addr)))
    }
}

#[tokio::test]
async fn a_partition_heals() {
    let cuts = Cuts::default();
    let [a, b, c] = trio_around(cuts.attach(node("a"))).await;
    *cuts.0.lock().unwrap() = [b.addr(), c.addr()].into();
    see_each_other(&a, &[&b, &c], MemberState::Down).await;
    cuts.0.lock().unwrap().clear();
    see_each_other(&a, &[&b, &c], MemberState::Alive).await;
}

/// If the link between two members is dead, the third member relays their probes.
#[tokio::test]
async fn one_dead_link_is_no_death() {
    let cuts = Cuts::default();
    let [a, b, _c] = trio_around(cuts.attach(node("a"))).await;
    let mut events = a.events();
    cuts.0.lock().unwrap().insert(b.addr());
    let link = a.endpoint().link(b.id().node, vec![]);
    let mut watch = link.watch();
    // Wait until the connection is closed, which takes several probes.
    within(async {
        while link.connection().is_some() {
            watch.changed().await.unwrap();
        }
    })
    .await;
    a.set_payload("still here").await.unwrap();
    see(&b, |members| members.iter().any(|member| member.payload == "still here")).await;
    while let Ok(Some(event)) = tokio::time::timeout(Duration::ZERO, events.next()).await {
        assert!(!matches!(event, MemberEvent::Down(_)), "{event:?}");
    }
}

struct Counting(mpsc::Sender<(String, StreamKind)>);

impl Service for Counting {
    fn stream(&self, peer: &Arc<PeerInfo>, stream: IncomingStream) {
        let _ = self.0.try_send((peer.name.clone(), stream.kind));
    }
}

#[tokio::test]
async fn a_service_gets_its_streams() {
    let (sender, mut seen) = mpsc::channel(16);
    let a = node("a").service(Arc::new(Counting(sender.clone()))).start().await.unwrap();
    let b = node("b").seed(a.addr().to_string()).start().await.unwrap();
    sees(&b, &a, MemberState::Alive).await;
    let connection = within(b.endpoint().link(a.id().node, vec![]).connected()).await.unwrap();
    let _stream = connection.open_uni(StreamKind(20), 0).await.unwrap();
    assert_eq!(within(seen.recv()).await, Some(("b".into(), StreamKind(20))));
    sees(&a, &b, MemberState::Alive).await;
    b.serve(Arc::new(Counting(sender)));
    let connection = within(a.endpoint().link(b.id().node, vec![]).connected()).await.unwrap();
    let _stream = connection.open_uni(StreamKind(21), 0).await.unwrap();
    assert_eq!(within(seen.recv()).await, Some(("a".into(), StreamKind(21))));
}

#[tokio::test]
async fn nodes_on_one_mdns_port_find_each_other() {
    let port = free_addr().port();
    let start = |name| node(name).mdns(true).mdns_port(port).start();
    let (a, b) = (start("a").await.unwrap(), start("b").await.unwrap());
    see_each_other(&a, &[&b], MemberState::Alive).await;
    assert!([a.found_by(b.id().node), b.found_by(a.id().node)].contains(&Some(Source::Mdns)));
    // A node with another secret is discovered, but ignored.
    let c = node("c").secret("another secret of some length").mdns(true).mdns_port(port).start().await.unwrap();
    until(|| a.endpoint().counters().refused + b.endpoint().counters().refused > 0).await;
    assert!(c.members().is_empty());
    assert_eq!(a.members().len(), 1);
}

#[tokio::test]
async fn the_last_handle_stops_the_node() {
    let a = node("a").start().await.unwrap();
    let b = node("b").seed(a.addr().to_string()).start().await.unwrap();
    see_each_other(&a, &[&b], MemberState::Alive).await;
    let clone = b.clone();
    let (b_id, b_addr) = (b.id(), b.addr());
    drop(b);
    assert_eq!(clone.id(), b_id);
    drop(clone);
    see(&a, |members| members.iter().any(|member| member.id == b_id && member.state == MemberState::Down)).await;
    // The port of the stopped node is free again.
    until(|| UdpSocket::bind(b_addr).is_ok()).await;
    assert_eq!(a.member(NodeId::from_name("b")).unwrap().state, MemberState::Down);
}
