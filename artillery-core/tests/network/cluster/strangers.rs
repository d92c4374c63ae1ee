//! Announcements that any host may have sent.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use artillery_core::discovery::{Announcement, Candidate, Candidates, Discovery};
use futures_core::Stream;

use super::*;

/// A source whose announcements the test supplies.
struct Rumours(Mutex<Option<mpsc::Receiver<Candidate>>>);

struct Heard(mpsc::Receiver<Candidate>);

impl Stream for Heard {
    type Item = Candidate;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Candidate>> {
        self.0.poll_recv(context)
    }
}

impl Discovery for Rumours {
    fn announce(&self, _: &Announcement) {}

    fn candidates(&self) -> Candidates {
        Box::pin(Heard(self.0.lock().unwrap().take().expect("asked for once")))
    }
}

fn rumours() -> (mpsc::Sender<Candidate>, Rumours) {
    let (sender, heard) = mpsc::channel(16);
    (sender, Rumours(Mutex::new(Some(heard))))
}

fn there(node: NodeId, addr: SocketAddr) -> Candidate {
    Candidate::new(Source::Mdns, Some(node), vec![addr])
}

/// An address at which no node answers.
fn silence() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

#[tokio::test]
async fn foreign_addresses_of_a_node_do_not_end_the_dialling_of_its_own() {
    let (sender, rumours) = rumours();
    let a = node("a").discovery(rumours).start().await.unwrap();
    let (place, addr) = silence();
    let foreign: Vec<_> = (0..3).map(|_| silence()).collect();
    let b = NodeId::from_name("b");
    for addr in [addr].into_iter().chain(foreign.iter().map(|&(_, addr)| addr)) {
        sender.send(there(b, addr)).await.unwrap();
    }
    let mut bye = there(b, foreign[0].1);
    bye.gone = true;
    sender.send(bye).await.unwrap();
    drop(place);
    let b = node("b").listen(addr).start().await.unwrap();
    sees(&a, &b, MemberState::Alive).await;
    assert_eq!(a.found_by(b.id().node), Some(Source::Mdns));
}

/// A host name may resolve to the addresses of all nodes.
#[tokio::test]
async fn a_seed_with_the_address_of_this_node_leads_to_the_other_one() {
    let (sender, rumours) = rumours();
    let a = node("a").discovery(rumours).start().await.unwrap();
    let (place, addr) = silence();
    sender.send(Candidate::new(Source::Seed("db:7400".into()), None, vec![a.addr(), addr])).await.unwrap();
    drop(place);
    let b = node("b").listen(addr).start().await.unwrap();
    sees(&a, &b, MemberState::Alive).await;
}

#[tokio::test]
async fn a_crowd_of_strangers_leaves_room_for_a_node() {
    let (sender, rumours) = rumours();
    let mut transport = TransportConfig::loopback();
    transport.hello_timeout = Duration::from_millis(500);
    let a = node("a").transport(transport).discovery(rumours).start().await.unwrap();
    let (_place, addr) = silence();
    for n in 0..1200 {
        sender.send(there(NodeId::from_name(&format!("stranger-{n}")), addr)).await.unwrap();
    }
    // Wait until a stranger was dialled.
    until(|| a.endpoint().counters().dial_failures > 0).await;
    let b = node("b").start().await.unwrap();
    sender.send(there(b.id().node, b.addr())).await.unwrap();
    sees(&a, &b, MemberState::Alive).await;
}
