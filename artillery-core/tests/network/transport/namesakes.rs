//! Two processes with one name.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use artillery_core::{
    MemberId, NodeId,
    error::{CloseReason, ConnectError, Refusal},
    transport::{Connection, Link},
};

use super::support::{Event, Node, Spec, arrives, within};

fn twin(store: u128) -> Spec {
    Spec { store, ..Spec::new("n") }
}

fn taken(by: &Node) -> Refusal {
    Refusal::NameTaken { by: by.endpoint.id() }
}

async fn dial(from: &Node, to: &Node) -> Result<Connection, ConnectError> {
    within(from.endpoint.connect(to.addr())).await
}

async fn name_taken(node: &mut Node) -> MemberId {
    node.event_of(|event| if let Event::NameTaken(by) = event { Some(by) } else { None }).await
}

/// The link from `from` to `to`, once it is connected.
async fn linked(from: &Node, to: &Node) -> (Link, Connection) {
    let link = from.endpoint.link(to.endpoint.id().node, vec![to.addr()]);
    let connection = within(link.connected()).await.unwrap();
    (link, connection)
}

/// Checks that the first process's connection works and that no other process of its name was admitted.
async fn is_unharmed(p: &mut Node, n: &Node, connection: &Connection) {
    assert_eq!(connection.close_reason(), None);
    arrives(connection, p, "still here").await;
    assert!(p.endpoint.accepted_from(n.endpoint.id().node).iter().all(|peer| peer.id == n.endpoint.id()));
}

#[tokio::test]
async fn the_second_process_is_refused_whichever_incarnation_is_later() {
    for (first, second) in [(1, 2), (2, 1)] {
        let (mut p, n) = (Spec::new("p").bind(), twin(first).bind());
        let (_link, connection) = linked(&n, &p).await;
        let mut other = twin(second).bind();
        assert_eq!(dial(&other, &p).await.unwrap_err(), ConnectError::Refused(taken(&n)));
        assert_eq!(name_taken(&mut other).await, n.endpoint.id());
        assert_eq!(p.refusal().await, taken(&n));
        is_unharmed(&mut p, &n, &connection).await;
    }
}

#[tokio::test]
async fn a_process_that_was_dialled_has_its_name_too() {
    let (mut p, n) = (Spec::new("p").bind(), twin(1).bind());
    let (link, connection) = linked(&p, &n).await;
    let other = twin(2).bind();
    assert_eq!(dial(&other, &p).await.unwrap_err(), ConnectError::Refused(taken(&n)));
    assert_eq!(p.refusal().await, taken(&n));
    assert_eq!(link.connection().map(|now| now.id()), Some(connection.id()));
}

#[tokio::test]
async fn a_second_process_that_is_dialled_is_refused() {
    let (mut p, n) = (Spec::new("p").bind(), twin(1).bind());
    let (_link, connection) = linked(&n, &p).await;
    let mut other = twin(2).bind();
    assert_eq!(dial(&p, &other).await.unwrap_err(), ConnectError::Rejected(taken(&n)));
    assert_eq!(name_taken(&mut other).await, n.endpoint.id());
    let closed = |event| if let Event::Disconnected(reason) = event { Some(reason) } else { None };
    assert_eq!(other.event_of(closed).await, CloseReason::Refused(taken(&n)));
    is_unharmed(&mut p, &n, &connection).await;
}

#[tokio::test]
async fn of_two_that_come_at_once_one_is_let_in() {
    let (p, n, other) = (Spec::new("p").bind(), twin(1).bind(), twin(2).bind());
    let (first, second) = tokio::join!(dial(&n, &p), dial(&other, &p));
    let refused = match (&first, &second) {
        (Ok(_), Err(error)) => (error, taken(&n)),
        (Err(error), Ok(_)) => (error, taken(&other)),
        both => panic!("{both:?}"),
    };
    assert_eq!(*refused.0, ConnectError::Refused(refused.1));
}

#[tokio::test]
async fn a_process_that_dials_the_owner_of_its_name_is_told() {
    let (n, mut other) = (twin(1).bind(), twin(2).bind());
    assert_eq!(dial(&other, &n).await.unwrap_err(), ConnectError::Refused(Refusal::Itself(n.endpoint.id())));
    assert_eq!(name_taken(&mut other).await, n.endpoint.id());
}

/// A node is not notified when it dials its own address or the second process.
#[tokio::test]
async fn the_owner_of_a_name_keeps_it() {
    let (mut n, other) = (twin(1).bind(), twin(2).bind());
    assert!(dial(&n, &n).await.is_err());
    dial(&other, &n).await.unwrap_err();
    assert_eq!(dial(&n, &other).await.unwrap_err(), ConnectError::Refused(Refusal::Itself(other.endpoint.id())));
    while let Ok(event) = n.events.try_recv() {
        assert!(!matches!(event, Event::NameTaken(_)), "{event:?}");
    }
}

/// A process whose packets vanish does not keep its successor out, and has lost its name when its packets arrive again.
#[tokio::test]
async fn a_silent_process_gives_way_and_is_refused_later() {
    let p = Spec::new("p").bind();
    let is_cut = Arc::new(AtomicBool::new(false));
    let cut = is_cut.clone();
    let mut former = twin(2);
    former.filter = Some(Arc::new(move |_| !cut.load(Ordering::Relaxed)));
    let mut n = former.bind();
    let (link, _connection) = linked(&n, &p).await;
    is_cut.store(true, Ordering::Relaxed);
    let successor = twin(1).bind();
    let connection = dial(&successor, &p).await.unwrap();
    let known: Vec<_> = p.endpoint.accepted_from(NodeId::from_name("n")).iter().map(|peer| peer.id).collect();
    assert_eq!(known, [successor.endpoint.id()]);
    is_cut.store(false, Ordering::Relaxed);
    assert_eq!(name_taken(&mut n).await, successor.endpoint.id());
    assert_eq!(connection.close_reason(), None);
    drop(link);
}

#[tokio::test]
async fn a_process_that_has_ended_gives_way_at_once() {
    let (p, n) = (Spec::new("p").bind(), twin(1).bind());
    let (link, _connection) = linked(&n, &p).await;
    drop(link);
    within(n.endpoint.shutdown()).await;
    let successor = twin(2).bind();
    dial(&successor, &p).await.unwrap();
}
