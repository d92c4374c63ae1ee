mod healing;
mod incarnations;
mod profiles;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    net::SocketAddr,
};

use bytes::Bytes;
use foca::{Foca, Message, NoCustomBroadcast, State};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use tracing::debug;

use super::{
    MemberState, PacketError, SwimMember, SwimOutput, SwimPeer,
    effects::{Effects, Timers},
    identity::{SwimIdentity, canonical},
    profile::{MAX_MEMBER_NAME_BYTES, MAX_MEMBER_PAYLOAD_BYTES, Profile, ProfileVersion, Profiles},
    settings::foca_config,
    view::MemberViews,
    wire::{MembershipPacket, PacketWriter, SwimCodec, get_header},
};
use crate::{MemberId, NodeId, Timestamp, config::SwimSettings, error::ConfigError};

/// How many times an incarnation that no member has accepted may claim a later start than the known one.
const MAX_CLAIMS: u8 = 3;

/// Maximum number of remembered peers to which this node announced itself before any member accepted it.
const MAX_REMEMBERED_PEERS: usize = 64;

/// Describes the local node for [`Swim::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalMember {
    /// The node's id in this incarnation.
    pub id: MemberId,
    /// The node's stable name: at most [`MAX_MEMBER_NAME_BYTES`] bytes.
    pub name: String,
    /// The address at which other members dial this node.
    pub addr: SocketAddr,
    /// The payload that this node publishes about itself: at most [`MAX_MEMBER_PAYLOAD_BYTES`] bytes.
    pub payload: Bytes,
    /// Wall clock at the start of this incarnation, in milliseconds since 1970. It orders the incarnations of one node.
    /// If the clock was set back between two of them, the new one may claim a later start.
    pub started_at_ms: u64,
}

/// An invalid name, payload or setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SwimError {
    /// The node's name is too long.
    #[error("a node name of {len} bytes exceeds the limit of {limit}")]
    NameTooLong {
        /// The length of the name in bytes.
        len: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The payload is too large.
    #[error("a payload of {len} bytes exceeds the limit of {limit}")]
    PayloadTooLarge {
        /// The size of the payload in bytes.
        len: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A setting is invalid.
    #[error("membership setting {0}")]
    Settings(#[from] ConfigError),
}

/// SWIM as a state machine. See the module's documentation for how to drive it.
pub struct Swim {
    settings: SwimSettings,
    foca: Foca<SwimIdentity, SwimCodec, ChaCha8Rng, NoCustomBroadcast>,
    effects: Effects,
    timers: Timers,
    /// When to announce this node to members that are down. Set only while there are such members.
    heal_at: Option<Timestamp>,
    /// The last member that such an announcement was sent to.
    healed: Option<NodeId>,
    me: Profile,
    profiles: Profiles,
    views: MemberViews,
    /// Whether a member has addressed a packet to this incarnation, other than the notice that it is considered down.
    accepted: bool,
    /// The peers to which this node announced itself before `accepted`.
    greeted: BTreeMap<NodeId, SwimPeer>,
    claims: u8,
    /// Whether this node belongs to a formed cluster.
    belongs: bool,
    stopped: bool,
    outputs: VecDeque<SwimOutput>,
}

impl fmt::Debug for Swim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Swim").field("me", &self.me.member).field("stopped", &self.stopped).finish_non_exhaustive()
    }
}

impl Swim {
    /// Creates a member that knows no others. `seed` determines all its random choices.
    ///
    /// # Errors
    /// [`SwimError`]: the name is too long, the payload too large, or a setting invalid.
    pub fn new(local: LocalMember, settings: SwimSettings, seed: u64) -> Result<Self, SwimError> {
        settings.validate()?;
        if local.name.len() > MAX_MEMBER_NAME_BYTES {
            return Err(SwimError::NameTooLong { len: local.name.len(), limit: MAX_MEMBER_NAME_BYTES });
        }
        check_payload(&local.payload)?;
        let LocalMember { id: member, name, addr, payload, started_at_ms } = local;
        let identity = SwimIdentity { member, addr: canonical(addr), started_at_ms, renewals: 0 };
        Ok(Self {
            foca: Foca::new(identity, foca_config(&settings), ChaCha8Rng::seed_from_u64(seed), SwimCodec),
            settings,
            effects: Effects::default(),
            timers: Timers::default(),
            heal_at: None,
            healed: None,
            me: Profile { member, started_at_ms, version: 1, left: false, name, payload },
            profiles: Profiles::default(),
            views: MemberViews::default(),
            accepted: false,
            greeted: BTreeMap::new(),
            claims: 0,
            belongs: false,
            stopped: false,
            outputs: VecDeque::new(),
        })
    }

    /// This node, as other members see it.
    pub fn local(&self) -> SwimMember {
        SwimMember {
            id: self.me.member,
            name: self.me.name.clone(),
            addr: self.foca.identity().addr,
            payload: self.me.payload.clone(),
            payload_version: self.me.version,
            state: if self.me.left { MemberState::Left } else { MemberState::Alive },
        }
    }

    /// All other members whose profile is known and that were active, ordered by node id. Members that are down or have
    /// left stay listed until they are forgotten.
    pub fn members(&self) -> Vec<SwimMember> {
        self.views.members().cloned().collect()
    }

    /// Whether this node has left or was superseded. It then no longer does anything.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// The next action. After each call of another method, call this until it returns `None`.
    pub fn poll_output(&mut self) -> Option<SwimOutput> {
        self.outputs.pop_front()
    }

    /// When [`Swim::tick`] is due. Every other call may change it.
    pub fn next_timer(&self) -> Option<Timestamp> {
        self.timers.next().into_iter().chain(self.heal_at).min()
    }

    /// Advances the time. Call it at [`Swim::next_timer`]; additional calls are harmless.
    ///
    /// A call that is late by more than a probe period shows that this process was stalled, so the silence of other
    /// members proves nothing. All of foca's timers are then delayed, so that queued answers are handled first.
    pub fn tick(&mut self, now: Timestamp) {
        if self.stopped {
            return;
        }
        let late = self.timers.next().map_or_else(Default::default, |due| now - due);
        if late > self.settings.probe_period {
            self.timers.delay(late);
        }
        while let Some(timer) = self.timers.pop(now) {
            if let Err(error) = self.foca.handle_timer(timer, &mut self.effects) {
                debug!(%error, "foca rejected a timer");
            }
            self.apply_effects(now);
        }
        if self.heal_at.is_some_and(|at| at <= now) {
            self.heal(now);
        }
    }

    /// Announces this node to `peer` and requests the members that `peer` knows. The call may be repeated at any time,
    /// for instance when discovery finds the peer again or a connection to it is established.
    pub fn announce_to(&mut self, now: Timestamp, peer: SwimPeer) {
        if self.stopped || peer.id.node == self.me.member.node {
            return;
        }
        if !self.accepted && self.greeted.len() < MAX_REMEMBERED_PEERS {
            self.greeted.insert(peer.id.node, peer);
        }
        self.announce(SwimIdentity::of_peer(peer));
        self.apply_effects(now);
    }

    /// Handles a packet. `from` is its sender, as authenticated by the transport.
    ///
    /// # Errors
    /// [`PacketError`]: drop the packet. No other action is needed. A packet of an outdated incarnation, or one
    /// received after this node has stopped, is ignored without an error.
    pub fn handle_packet(&mut self, now: Timestamp, from: MemberId, packet: &[u8]) -> Result<(), PacketError> {
        if self.stopped {
            return Ok(());
        }
        if packet.len() > self.settings.max_packet {
            return Err(PacketError::TooLarge { len: packet.len(), max: self.settings.max_packet });
        }
        if from.node == self.me.member.node {
            return Err(PacketError::FromOurselves(from));
        }
        let packet = MembershipPacket::read(packet)?;
        let taken = if packet.swim.is_empty() { Ok(true) } else { self.handle_swim(now, from, packet.swim) };
        if !matches!(taken, Ok(true)) || self.stopped {
            return taken.map(drop);
        }
        for profile in packet.profiles {
            self.on_profile(profile);
        }
        self.apply_effects(now);
        self.on_versions(from, &packet.entries);
        Ok(())
    }

    /// Changes the payload of this node, unless the node has stopped. It is sent to active members at once. Members
    /// that miss it request it later.
    ///
    /// # Errors
    /// [`SwimError::PayloadTooLarge`]: the previous payload stays.
    pub fn set_payload(&mut self, payload: Bytes) -> Result<(), SwimError> {
        check_payload(&payload)?;
        if !self.stopped && self.me.payload != payload {
            self.me.payload = payload;
            self.me.version += 1;
            self.push_profile();
        }
        Ok(())
    }

    /// Announces the departure of this node. Send the resulting packets. Afterwards the state machine does nothing.
    pub fn leave(&mut self) {
        if self.stopped {
            return;
        }
        // The profile suffices: its receivers declare this node down, to foca and to other members, with the reason. A
        // farewell of foca's own might arrive before it.
        self.me.left = true;
        self.me.version += 1;
        self.push_profile();
        self.stop();
    }

    fn stop(&mut self) {
        self.stopped = true;
        self.timers.clear();
        self.heal_at = None;
        self.effects = Effects::default();
    }
}

impl Swim {
    /// Handles the SWIM part of a packet. Returns `false` if the sender is an outdated incarnation, whose packet is
    /// ignored.
    fn handle_swim(&mut self, now: Timestamp, from: MemberId, packet: &[u8]) -> Result<bool, PacketError> {
        let header = get_header(&mut &*packet)?;
        if header.src.member != from {
            return Err(PacketError::Impostor { from, claimed: header.src.member });
        }
        let later = self.views.get(&from.node).map(|view| view.identity);
        if let Some(later) =
            later.filter(|known| known.member != from && known.incarnation_order() > header.src.incarnation_order())
        {
            // The sender is an outdated incarnation: send it the profile of the later one, and ignore its packet.
            if let Some(profile) = self.profiles.of(&later.member) {
                let mut writer = PacketWriter::new(self.settings.max_packet);
                writer.profile(profile);
                self.push(header.src.peer(), writer.finish(&[]));
            }
            return Ok(false);
        }
        if header.dst == *self.foca.identity() && header.message != Message::TurnUndead {
            self.accepted = true;
            self.greeted.clear();
        }
        let handled = self.foca.handle_data(packet, &mut self.effects);
        self.apply_effects(now);
        handled.map(|()| true).map_err(|error| PacketError::Protocol(error.to_string()))
    }

    fn announce(&mut self, to: SwimIdentity) {
        if let Err(error) = self.foca.announce(to, &mut self.effects) {
            debug!(%error, "foca rejected an announcement");
        }
    }

    fn apply_effects(&mut self, now: Timestamp) {
        self.apply_departures();
        for (after, timer) in std::mem::take(&mut self.effects.timers) {
            self.timers.insert(now + after, timer);
        }
        let ours = self.me.member.node;
        let others = self.foca.iter_membership_state().filter(|known| known.id().member.node != ours);
        let outputs = &mut self.outputs;
        self.views.update(others, &self.profiles, |event| outputs.push_back(SwimOutput::Event(event)));
        let views = &self.views;
        self.profiles.retain(|member| views.knows(member));
        for (to, packet) in std::mem::take(&mut self.effects.packets) {
            self.send(to, &packet);
        }
        self.plan_healing(now);
    }

    /// Reports members that have announced their departure to foca as down.
    fn apply_departures(&mut self) {
        let departed: Vec<_> = self
            .foca
            .iter_members()
            .filter(|known| self.profiles.of(&known.id().member).is_some_and(|profile| profile.left))
            .map(|known| foca::Member::new(*known.id(), known.incarnation(), State::Down))
            .collect();
        if let Err(error) = self.foca.apply_many(departed.into_iter(), true, &mut self.effects) {
            debug!(%error, "foca rejected an update");
        }
    }

    /// Sends one of foca's packets together with profile versions.
    fn send(&mut self, to: SwimIdentity, packet: &[u8]) {
        let mut writer = PacketWriter::new(self.settings.max_packet - packet.len());
        writer.entry(self.me.entry());
        writer.entry(ProfileVersion { member: to.member, version: self.profiles.version(&to.member) });
        if let Some(entry) = self.profiles.next_version(to.member.node) {
            writer.entry(entry);
        }
        self.push(to.peer(), writer.finish(packet));
    }

    fn push(&mut self, to: SwimPeer, bytes: Bytes) {
        self.outputs.push_back(SwimOutput::Packet { to, bytes });
    }
}

fn check_payload(payload: &[u8]) -> Result<(), SwimError> {
    if payload.len() > MAX_MEMBER_PAYLOAD_BYTES {
        Err(SwimError::PayloadTooLarge { len: payload.len(), limit: MAX_MEMBER_PAYLOAD_BYTES })
    } else {
        Ok(())
    }
}
