//! Which peers are accepted, and the reasons that refused peers receive.

use artillery_core::{
    ClusterId, NodeId,
    error::{CloseReason, ConnectError, IdentityError, Refusal, VersionRange},
    identity::Identity,
    transport::ForeignPeer,
};
use bytes::Bytes;

use super::support::{Event, Node, RECORD, SECRET, Spec, connected, within};

/// Dials from `from` to `to`, which must fail. Returns the error of each side.
async fn refused(from: &Node, to: &mut Node) -> (ConnectError, Refusal) {
    let error = within(from.endpoint.connect(to.addr())).await.unwrap_err();
    let refusal = to.refusal().await;
    assert_eq!(to.endpoint.counters().accepted, 0);
    assert_eq!(to.endpoint.counters().refused, 1);
    let counted: Vec<_> = to.endpoint.refused().filter(|(_, times)| *times > 0).collect();
    assert_eq!(counted, [(refusal.word(), 1)]);
    assert_eq!(from.endpoint.counters().dial_failures, 1);
    (error, refusal)
}

#[tokio::test]
async fn the_same_secret_and_cluster_are_accepted() {
    let (a, mut b) = (Spec::new("a").bind(), Spec::new("b").bind());
    let connection = within(a.endpoint.connect_to(NodeId::from_name("b"), b.addr())).await.unwrap();
    assert_eq!(connection.peer().name, "b");
    assert_eq!(connection.peer().id, b.endpoint.id());
    assert_eq!(connection.peer().addr, b.addr());
    let Event::Admitted(peer) = b.event().await else { panic!() };
    assert_eq!((peer.name.as_str(), peer.id, peer.addr), ("a", a.endpoint.id(), a.addr()));
    assert_eq!(b.endpoint.accepted_from(a.endpoint.id().node), [peer]);
}

#[tokio::test]
async fn a_wrong_secret_is_refused() {
    let other = Identity::from_secret(b"another secret of some length", "a").unwrap();
    let (a, mut b) = (Spec::with(other).bind(), Spec::new("b").bind());
    let (error, refusal) = refused(&a, &mut b).await;
    assert!(matches!(error, ConnectError::Untrusted(_)), "{error:?}");
    assert!(matches!(refusal, Refusal::Untrusted(_)), "{refusal:?}");
}

/// The dialling side trusts the other but is not trusted itself, which it discovers only after completing its own
/// handshake.
#[tokio::test]
async fn one_way_trust_is_refused() {
    let one_way = Identity::from_secret(b"another secret of some length", "a").unwrap();
    let one_way = one_way.also_trust_secret(SECRET).unwrap();
    let (a, mut b) = (Spec::with(one_way).bind(), Spec::new("b").bind());
    let (error, refusal) = refused(&a, &mut b).await;
    assert!(matches!(error, ConnectError::Untrusted(_)), "{error:?}");
    assert!(matches!(refusal, Refusal::Untrusted(_)), "{refusal:?}");
}

#[tokio::test]
async fn peers_that_trust_both_secrets_connect() {
    let new = b"the secret of next year";
    let a = Identity::from_secret(SECRET, "a").unwrap().also_trust_secret(new).unwrap();
    let b = Identity::from_secret(new, "b").unwrap().also_trust_secret(SECRET).unwrap();
    let (a, b) = (Spec::with(a).bind(), Spec::with(b).bind());
    within(a.endpoint.connect(b.addr())).await.unwrap();
    within(b.endpoint.connect(a.addr())).await.unwrap();
}

#[test]
fn a_short_secret_is_refused() {
    let error = Identity::from_secret(b"fifteen bytes..", "a").unwrap_err();
    assert_eq!(error, IdentityError::SecretTooShort { len: 15, min: 16 });
}

#[tokio::test]
async fn another_cluster_name_is_refused() {
    let (a, mut b) = (Spec { cluster: "other".into(), ..Spec::new("a") }.bind(), Spec::new("b").bind());
    let expected = Refusal::DifferentClusterName { here: "test".into(), there: "other".into() };
    assert_eq!(refused(&a, &mut b).await, (ConnectError::Refused(expected.clone()), expected));
}

#[tokio::test]
async fn another_formation_is_refused() {
    let with = |name, id| Spec { cluster_id: Some(ClusterId(id)), ..Spec::new(name) }.bind();
    let (a, mut b) = (with("a", 1), with("b", 2));
    let expected = Refusal::DifferentCluster { here: ClusterId(2), there: ClusterId(1) };
    assert_eq!(refused(&a, &mut b).await, (ConnectError::Refused(expected.clone()), expected));
    // A node without a formation may connect to both.
    let c = Spec::new("c").bind();
    within(c.endpoint.connect(a.addr())).await.unwrap();
    within(c.endpoint.connect(b.addr())).await.unwrap();
}

/// A node of a retired formation is notified of its successor, on either side of a connection, and refuses it like any
/// other.
#[tokio::test]
async fn a_succeeding_formation_is_reported_and_refused() {
    let with = |name, id| Spec { cluster_id: Some(ClusterId(id)), ..Spec::new(name) }.bind();
    let (mut old, new, mut stranger) = (with("old", 1), with("new", 3), with("stranger", 4));
    new.endpoint.set_predecessors(vec![ClusterId(1), ClusterId(2)]);
    assert!(within(new.endpoint.connect(old.addr())).await.is_err());
    old.event_of(|event| (event == Event::Succeeded(ClusterId(3))).then_some(())).await;
    assert_eq!(old.refusal().await, Refusal::DifferentCluster { here: ClusterId(1), there: ClusterId(3) });
    assert!(within(old.endpoint.connect(new.addr())).await.is_err());
    old.event_of(|event| (event == Event::Succeeded(ClusterId(3))).then_some(())).await;
    assert!(within(new.endpoint.connect(stranger.addr())).await.is_err());
    let met = stranger.event_of(met).await;
    assert_eq!((met.cluster, met.name.as_str()), (ClusterId(3), "new"), "formation 4 is not a predecessor");
}

fn met(event: Event) -> Option<ForeignPeer> {
    match event {
        Event::MetForeign(peer) => Some(peer),
        _ => None,
    }
}

/// When nodes of two formations with the same name and secret meet, each reports the other with its statements,
/// whichever side dialled.
#[tokio::test]
async fn another_formation_is_reported_with_its_data() {
    let with = |name, id| Spec { cluster_id: Some(ClusterId(id)), ..Spec::new(name) }.bind();
    let (mut a, mut b) = (with("a", 1), with("b", 2));
    b.endpoint.set_holds_data();
    for dials in [true, false] {
        let dialled = if dials { a.endpoint.connect(b.addr()).await } else { b.endpoint.connect(a.addr()).await };
        assert!(dialled.is_err());
        let (by_a, by_b) = (a.event_of(met).await, b.event_of(met).await);
        assert_eq!((by_a.cluster, by_a.holds_data, by_a.name.as_str()), (ClusterId(2), true, "b"));
        assert_eq!((by_b.cluster, by_b.holds_data, by_b.name.as_str()), (ClusterId(1), false, "a"));
        assert_eq!((by_a.addr, by_b.addr), (b.addr(), a.addr()));
    }
}

/// Neither a formation nor its successor is a stranger to the other.
#[tokio::test]
async fn a_successor_is_no_stranger() {
    let with = |name, id| Spec { cluster_id: Some(ClusterId(id)), ..Spec::new(name) }.bind();
    let (mut old, mut new) = (with("old", 1), with("new", 3));
    new.endpoint.set_predecessors(vec![ClusterId(1)]);
    assert!(within(old.endpoint.connect(new.addr())).await.is_err());
    assert_eq!(old.event().await, Event::Succeeded(ClusterId(3)));
    assert!(matches!(new.event().await, Event::Refused(_)));
}

/// Two nodes meet, then join different formations. The connection is closed, whichever joins second.
#[tokio::test]
async fn peers_that_join_different_formations_part() {
    for dialler_first in [true, false] {
        let (a, mut b, connection) = connected(Spec::new("a"), Spec::new("b")).await;
        if dialler_first {
            a.endpoint.set_cluster_id(ClusterId(1));
            b.event_of(|event| (event == Event::Joined(ClusterId(1))).then_some(())).await;
            b.endpoint.set_cluster_id(ClusterId(2));
        } else {
            b.endpoint.set_cluster_id(ClusterId(2));
            a.endpoint.set_cluster_id(ClusterId(1));
        }
        let expected = Refusal::DifferentCluster { here: ClusterId(2), there: ClusterId(1) };
        assert_eq!(b.refusal().await, expected);
        assert_eq!(within(connection.closed()).await, CloseReason::Refused(expected));
    }
}

#[tokio::test]
async fn peers_that_join_one_formation_stay_connected() {
    let (a, mut b, connection) = connected(Spec::new("a"), Spec::new("b")).await;
    b.endpoint.set_cluster_id(ClusterId(1));
    a.endpoint.set_cluster_id(ClusterId(1));
    b.event_of(|event| (event == Event::Joined(ClusterId(1))).then_some(())).await;
    let mut writer = connection.open_uni(RECORD, 0).await.unwrap();
    writer.send(b"still", &[Bytes::from_static(b"here")]).await.unwrap();
    assert_eq!(b.frame().await.body, "here");
}

#[tokio::test]
async fn versions_that_do_not_meet_are_refused() {
    let (old, new) = (VersionRange { min: 1, max: 2 }, VersionRange { min: 3, max: 4 });
    let (a, mut b) = (Spec { versions: new, ..Spec::new("a") }.bind(), Spec { versions: old, ..Spec::new("b") }.bind());
    let expected = Refusal::VersionMismatch { here: old, there: new };
    assert_eq!(refused(&a, &mut b).await, (ConnectError::Refused(expected.clone()), expected));
}

#[tokio::test]
async fn versions_that_meet_yield_the_newest_common_one() {
    let (a, b) = (VersionRange { min: 1, max: 3 }, VersionRange { min: 2, max: 4 });
    let (a, b) = (Spec { versions: a, ..Spec::new("a") }.bind(), Spec { versions: b, ..Spec::new("b") }.bind());
    assert_eq!(within(a.endpoint.connect(b.addr())).await.unwrap().peer().version, 3);
}

#[tokio::test]
async fn another_node_at_the_address_is_refused() {
    let (a, b) = (Spec::new("a").bind(), Spec::new("b").bind());
    let expected = NodeId::from_name("c");
    let error = within(a.endpoint.connect_to(expected, b.addr())).await.unwrap_err();
    assert_eq!(error, ConnectError::WrongPeer { expected, found: NodeId::from_name("b") });
}

#[tokio::test]
async fn dialling_itself_is_refused() {
    let mut a = Spec::new("a").bind();
    let error = within(a.endpoint.connect(a.addr())).await.unwrap_err();
    assert_eq!(error, ConnectError::Refused(Refusal::Itself(a.endpoint.id())));
    assert_eq!(a.refusal().await, Refusal::Itself(a.endpoint.id()));
}

#[tokio::test]
async fn a_service_can_refuse_a_peer() {
    let (a, mut b) = (Spec::new("a").bind(), Spec { unwanted: Some("a"), ..Spec::new("b") }.bind());
    let expected = Refusal::Other("unwanted".into());
    assert_eq!(refused(&a, &mut b).await, (ConnectError::Refused(expected.clone()), expected));
}

#[tokio::test]
async fn excess_connections_of_one_peer_are_refused() {
    let mut spec = Spec::new("b");
    spec.config.max_connections_per_peer = 2;
    let (a, b, first) = connected(Spec::new("a"), spec).await;
    let _second = within(a.endpoint.connect(b.addr())).await.unwrap();
    let third = within(a.endpoint.connect(b.addr())).await.unwrap_err();
    assert_eq!(third, ConnectError::Refused(Refusal::Busy));
    drop(first);
    while within(a.endpoint.connect(b.addr())).await.is_err() {}
}

#[tokio::test]
async fn a_dial_to_a_free_port_times_out() {
    let a = Spec::new("a").bind();
    let free = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let error = within(a.endpoint.connect(free.local_addr().unwrap())).await.unwrap_err();
    assert_eq!(error, ConnectError::TimedOut);
}

#[tokio::test]
async fn undialable_addresses_are_refused() {
    let a = Spec::new("a").bind();
    for addr in ["127.0.0.1:0", "[::1]:7400"] {
        let error = within(a.endpoint.connect(addr.parse().unwrap())).await.unwrap_err();
        assert!(matches!(error, ConnectError::BadAddress { .. }), "{error:?}");
    }
}

struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: rcgen::Issuer::new(params, key), pem }
    }

    fn issue(&self, names: &[&str], expired: bool) -> Result<Identity, IdentityError> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        if expired {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        let key = rcgen::KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Identity::from_pem(self.pem.as_bytes(), cert.pem().as_bytes(), key.serialize_pem().as_bytes())
    }
}

#[tokio::test]
async fn own_certificates_are_accepted() {
    let authority = Authority::new();
    let a = authority.issue(&["db1.example.com", "alias"], false).unwrap();
    assert_eq!(a.name(), "db1.example.com");
    let b = authority.issue(&["db2"], false).unwrap();
    let (_a, mut b, connection) = connected(Spec::with(a), Spec::with(b)).await;
    assert_eq!(connection.peer().name, "db2");
    let Event::Admitted(peer) = b.event().await else { panic!() };
    assert_eq!(peer.name, "db1.example.com");
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let authority = Authority::new();
    let fresh = || Spec::with(authority.issue(&["fresh"], false).unwrap()).bind();
    let old = || Spec::with(authority.issue(&["old"], true).unwrap()).bind();
    let (from, mut to) = (old(), fresh());
    let (error, refusal) = refused(&from, &mut to).await;
    assert!(matches!(error, ConnectError::Untrusted(_)), "{error:?}");
    assert!(matches!(refusal, Refusal::Untrusted(reason) if reason.contains("xpired")));
    let (from, mut to) = (fresh(), old());
    let (error, refusal) = refused(&from, &mut to).await;
    assert!(matches!(error, ConnectError::Untrusted(reason) if reason.contains("xpired")));
    assert!(matches!(refusal, Refusal::Untrusted(_)), "{refusal:?}");
}

#[tokio::test]
async fn a_foreign_certificate_is_refused() {
    let foreign = Authority::new().issue(&["a"], false).unwrap();
    let (a, mut b) = (Spec::with(foreign).bind(), Spec::with(Authority::new().issue(&["b"], false).unwrap()).bind());
    let (error, refusal) = refused(&a, &mut b).await;
    assert!(matches!(error, ConnectError::Untrusted(_)), "{error:?}");
    assert!(matches!(refusal, Refusal::Untrusted(_)), "{refusal:?}");
}

#[test]
fn unusable_certificates_are_refused() {
    let authority = Authority::new();
    assert_eq!(authority.issue(&[], false).unwrap_err(), IdentityError::NoNodeName);
    assert!(matches!(authority.issue(&["*.example.com"], false), Err(IdentityError::BadName { .. })));
    let key = rcgen::KeyPair::generate().unwrap();
    let other = rcgen::KeyPair::generate().unwrap();
    let cert = rcgen::CertificateParams::new(vec!["a".into()]).unwrap().signed_by(&key, &authority.issuer).unwrap();
    let mixed = Identity::from_pem(authority.pem.as_bytes(), cert.pem().as_bytes(), other.serialize_pem().as_bytes());
    assert!(matches!(mixed, Err(IdentityError::Unusable(_))), "{mixed:?}");
}
