use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

use super::{
    hub::MemberHub,
    links::MembershipLinks,
    member::{MemberPrefix, wrap},
    record::DiscoveryRecord,
};
use crate::{
    clock,
    id::{ClusterId, MemberId, NodeId},
    membership::{Swim, SwimOutput, SwimPeer},
    transport::PeerInfo,
};

pub(super) const MAX_INPUTS: usize = 4096;

/// At most this many inputs, plus one, are handled before due timers run and outgoing packets are sent.
const MAX_INPUTS_PER_TURN: usize = 64;

/// How often unused links are closed and greetings are repeated.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

const FAREWELL_TIMEOUT: Duration = Duration::from_millis(500);

pub(super) enum MembershipInput {
    Packet(MemberId, Bytes),
    /// A connection with this peer was established, in either direction.
    Met(Arc<PeerInfo>),
    Payload(Bytes, oneshot::Sender<()>),
    ClusterId(ClusterId, oneshot::Sender<()>),
    /// The addresses at which other nodes can now dial this one.
    Moved(Vec<SocketAddr>),
    Leave(oneshot::Sender<()>),
    Stop(oneshot::Sender<()>),
}

pub(super) struct MembershipDriver {
    pub(super) swim: Swim,
    pub(super) links: MembershipLinks,
    pub(super) hub: Arc<MemberHub>,
    pub(super) record: Arc<DiscoveryRecord>,
    pub(super) payload: Bytes,
    pub(super) prefix: MemberPrefix,
    pub(super) pending: PendingGreetings,
}

/// Nodes that were met and are not yet active members, with the number of repetitions of the greeting left for each.
pub(super) type PendingGreetings = BTreeMap<NodeId, (SwimPeer, u32)>;

/// How many times the greeting of a pending node is repeated, once a second: greetings may get lost.
const MAX_GREETINGS: u32 = 10;

const MAX_GREETED_NODES: usize = 1024;

impl MembershipDriver {
    /// Runs until [`MembershipInput::Stop`], or until all senders are gone.
    pub(super) async fn run(mut self, mut inputs: mpsc::Receiver<MembershipInput>) {
        if self.prefix.cluster_id.is_some() {
            self.swim.belong();
        }
        let mut sweep_at = clock::now() + SWEEP_PERIOD;
        loop {
            let wake_at = self.swim.next_timer().map_or(sweep_at, |timer| timer.min(sweep_at));
            tokio::select! {
                // A fixed order keeps runs reproducible.
                biased;
                input = inputs.recv() => {
                    let Some(input) = input else { return };
                    let mut next = Some(input);
                    for _ in 0..MAX_INPUTS_PER_TURN {
                        let Some(input) = next else { break };
                        if self.handle(input).await.is_err() {
                            return;
                        }
                        next = inputs.try_recv().ok();
                    }
                    if let Some(input) = next && self.handle(input).await.is_err() {
                        return;
                    }
                }
                () = sleep(wake_at - clock::now()) => {}
            }
            let now = clock::now();
            self.swim.tick(now);
            self.flush();
            if now >= sweep_at {
                sweep_at = now + SWEEP_PERIOD;
                self.sweep();
            }
        }
    }

    /// `Err` if the driver must stop.
    async fn handle(&mut self, input: MembershipInput) -> Result<(), ()> {
        match input {
            MembershipInput::Packet(from, packet) => {
                if let Err(error) = self.swim.handle_packet(clock::now(), from, &packet) {
                    tracing::debug!(%from, %error, "a membership packet was dropped");
                }
            }
            MembershipInput::Met(peer) => self.on_met(&peer),
            MembershipInput::Payload(payload, done) => {
                self.payload = payload;
                self.publish();
                let _ = done.send(());
            }
            MembershipInput::ClusterId(id, done) => {
                self.prefix.cluster_id = Some(id);
                self.swim.belong();
                self.publish();
                let _ = done.send(());
            }
            MembershipInput::Moved(addrs) => {
                self.prefix.addrs = addrs;
                self.publish();
            }
            MembershipInput::Leave(done) => {
                self.leave().await;
                let _ = done.send(());
            }
            MembershipInput::Stop(done) => {
                let _ = done.send(());
                return Err(());
            }
        }
        Ok(())
    }

    /// Announces this node to a reachable peer, unless this incarnation of the peer already is an active member.
    fn on_met(&mut self, peer: &PeerInfo) {
        self.record.set_met(peer.id.node);
        let known = self.hub.member(peer.id.node).is_some_and(|member| member.id == peer.id);
        if !(known && self.hub.is_active(peer.id.node)) {
            let peer = SwimPeer { id: peer.id, addr: peer.addr };
            if self.pending.len() < MAX_GREETED_NODES {
                self.pending.insert(peer.id.node, (peer, MAX_GREETINGS));
            }
            self.swim.announce_to(clock::now(), peer);
        }
    }

    fn publish(&mut self) {
        if let Err(error) = self.swim.set_payload(wrap(&self.prefix, &self.payload)) {
            // The size was checked by the caller.
            tracing::debug!(%error, "the payload was not changed");
        }
    }

    async fn leave(&mut self) {
        self.flush();
        self.swim.leave();
        let mut farewells = Vec::new();
        while let Some(output) = self.swim.poll_output() {
            match output {
                SwimOutput::Packet { to, bytes } => farewells.push((to.id.node, self.present(&to), bytes)),
                SwimOutput::Event(event) => self.hub.on_event(event),
            }
        }
        let sending = self.links.send_reliably(clock::now(), farewells);
        // A member that misses the farewell is notified of the departure by other members.
        let _ = timeout(FAREWELL_TIMEOUT, sending.join_all()).await;
    }

    fn flush(&mut self) {
        while let Some(output) = self.swim.poll_output() {
            match output {
                SwimOutput::Packet { to, bytes } => {
                    let addrs = self.present(&to);
                    self.links.send(clock::now(), to.id.node, addrs, &bytes);
                }
                SwimOutput::Event(event) => self.hub.on_event(event),
            }
        }
    }

    /// The peer's current addresses. SWIM itself knows only the address with which the peer's process started.
    fn present(&self, to: &SwimPeer) -> Vec<SocketAddr> {
        let member = self.hub.member(to.id.node).filter(|member| member.id == to.id);
        member.map_or_else(|| vec![to.addr], |member| member.addrs)
    }

    fn sweep(&mut self) {
        let known: BTreeSet<_> = self.swim.members().iter().map(|member| member.id.node).collect();
        self.hub.retain(|node| known.contains(&node));
        let hub = Arc::clone(&self.hub);
        self.pending.retain(|node, (peer, left)| {
            let more = *left > 0 && !hub.is_active(*node);
            if more {
                *left -= 1;
                self.swim.announce_to(clock::now(), *peer);
            }
            more
        });
        self.flush();
        self.links.sweep(clock::now(), |node| hub.is_active(node));
    }
}
