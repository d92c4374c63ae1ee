//! Replaces a secret while connections are open.

use super::*;
use crate::error::{CloseReason, ConnectError, IdentityError};

const NEW: &[u8] = b"another secret, of some length too";

fn by(secret: &[u8], name: &str) -> Identity {
    Identity::from_secret(secret, name).unwrap()
}

fn bound(identity: Identity) -> Endpoint {
    let (sender, _events) = mpsc::channel(16);
    Endpoint::bind(config(), identity, local(), Arc::new(Recorder(sender))).unwrap()
}

#[tokio::test]
async fn one_secret_takes_the_place_of_another() {
    let (a, b) = (bound(by(SECRET, "a")), bound(by(SECRET, "b")));
    let first = within(a.connect(b.local_addr())).await.unwrap();
    for (name, endpoint) in [("a", &a), ("b", &b)] {
        endpoint.set_identity(by(SECRET, name).also_trust_secret(NEW).unwrap()).unwrap();
    }
    for (name, endpoint) in [("a", &a), ("b", &b)] {
        // In the first iteration, only `a` presents the new secret's certificate.
        endpoint.set_identity(by(NEW, name).also_trust_secret(SECRET).unwrap()).unwrap();
        within(a.connect(b.local_addr())).await.unwrap();
        within(b.connect(a.local_addr())).await.unwrap();
    }
    let second = within(a.connect(b.local_addr())).await.unwrap();
    assert_eq!(first.close_reason(), None, "nothing is closed while both are trusted");
    b.set_identity(by(NEW, "b")).unwrap();
    let reason = within(first.closed()).await;
    assert!(matches!(&reason, CloseReason::Peer { code, .. } if *code == CloseCode::REPLACED.0), "{reason:?}");
    assert_eq!(second.close_reason(), None, "it was established with the new secret");

    let (late, early) = (bound(by(SECRET, "late")), bound(by(NEW, "early")));
    let error = within(late.connect(b.local_addr())).await.unwrap_err();
    assert!(matches!(error, ConnectError::Untrusted(_)), "{error:?}");
    within(early.connect(b.local_addr())).await.unwrap();
    within(b.connect(early.local_addr())).await.unwrap();
    assert!(matches!(within(b.connect(late.local_addr())).await, Err(ConnectError::Untrusted(_))));
}

#[tokio::test]
async fn the_dialling_side_closes_untrusted_connections_too() {
    let (a, b) = (bound(by(SECRET, "a")), bound(by(SECRET, "b")));
    let connection = within(a.connect(b.local_addr())).await.unwrap();
    a.set_identity(by(NEW, "a")).unwrap();
    assert_eq!(within(connection.closed()).await, CloseReason::Here);
}

#[tokio::test]
async fn a_node_keeps_its_name() {
    let a = bound(by(SECRET, "a"));
    let refused = a.set_identity(by(NEW, "b"));
    assert_eq!(refused, Err(IdentityError::OtherName { here: "a".into(), given: "b".into() }));
    within(bound(by(SECRET, "c")).connect(a.local_addr())).await.unwrap();
}
