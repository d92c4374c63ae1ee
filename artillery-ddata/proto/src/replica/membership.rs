//! This member, its settings, and the configuration that it entered last.

use std::{ops::Deref, sync::Arc};

use super::{Halt, ReplicaSettings, unhashed::Unhashed};
use crate::{
    ChainConfig, ChainId, Epoch, MemberId, Mode, Role, Timestamp,
    guards::Guards,
    message::{ChainFrame, ChainMessage},
};

/// The position of this member in the configuration that it has entered.
#[derive(Clone, Copy, Hash, Debug, Default)]
pub(super) struct ChainPosition {
    pub(super) role: Option<Role>,
    pub(super) head: Option<MemberId>,
    pub(super) tail: Option<MemberId>,
    pub(super) predecessor: Option<MemberId>,
    pub(super) successor: Option<MemberId>,
    pub(super) is_head: bool,
    pub(super) is_tail: bool,
}

impl ChainPosition {
    fn of(config: &ChainConfig, me: MemberId) -> Self {
        let (head, tail) = (config.head(), config.tail());
        Self {
            role: config.role(me),
            head,
            tail,
            predecessor: config.predecessor(me),
            successor: config.successor(me),
            is_head: head == Some(me),
            is_tail: tail == Some(me),
        }
    }

    pub(super) fn serves(&self) -> bool {
        self.role == Some(Role::Serving)
    }

    pub(super) fn is_syncing(&self) -> bool {
        self.role == Some(Role::Syncing)
    }

    pub(super) fn is_alone(&self) -> bool {
        self.is_head && self.is_tail
    }

    /// The joiner behind this tail.
    pub(super) fn joiner(&self) -> Option<MemberId> {
        self.successor.filter(|_| self.is_tail)
    }

    pub(super) fn serves_local_reads(&self, mode: Mode) -> bool {
        self.serves() && (self.is_tail || mode != Mode::Classic)
    }
}

/// State that every part of a replica may read and none of them changes.
#[derive(Clone, Hash, Debug)]
pub(super) struct Membership {
    me: MemberId,
    chain: ChainId,
    settings: Unhashed<ReplicaSettings>,
    config: Option<Arc<ChainConfig>>,
    /// The newest epoch that was entered, or whose configuration doesn't name this member. Older configurations are
    /// ignored.
    newest: Epoch,
    place: ChainPosition,
    halted: Option<Halt>,
}

/// The membership at the time of an input.
#[derive(Clone, Copy, Hash, Debug)]
pub(super) struct Context<'a> {
    pub(super) now: Timestamp,
    membership: &'a Membership,
}

impl Deref for Context<'_> {
    type Target = Membership;

    fn deref(&self) -> &Membership {
        self.membership
    }
}

impl Membership {
    /// A member that is in no configuration yet.
    pub(super) fn new(me: MemberId, chain: ChainId, settings: ReplicaSettings) -> Self {
        Self {
            me,
            chain,
            settings: Unhashed(settings),
            config: None,
            newest: Epoch(0),
            place: ChainPosition::default(),
            halted: None,
        }
    }

    pub(super) fn at(&self, now: Timestamp) -> Context<'_> {
        Context { now, membership: self }
    }

    pub(super) fn me(&self) -> MemberId {
        self.me
    }

    pub(super) fn chain(&self) -> ChainId {
        self.chain
    }

    pub(super) fn settings(&self) -> &ReplicaSettings {
        &self.settings
    }

    #[cfg(test)]
    pub(super) fn settings_mut(&mut self) -> &mut ReplicaSettings {
        &mut self.settings
    }

    pub(super) fn guards(&self) -> Guards {
        self.settings.guards
    }

    /// The configuration that was entered last; `None`: this node is not a member.
    pub(super) fn config(&self) -> Option<&Arc<ChainConfig>> {
        self.config.as_ref()
    }

    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.config.as_ref().map(|config| config.epoch)
    }

    pub(super) fn newest(&self) -> Epoch {
        self.newest
    }

    pub(super) fn place(&self) -> &ChainPosition {
        &self.place
    }

    pub(super) fn halted(&self) -> Option<&Halt> {
        self.halted.as_ref()
    }

    pub(super) fn is_halted(&self) -> bool {
        self.halted.is_some()
    }

    pub(super) fn halt(&mut self, why: Halt) {
        self.halted = Some(why);
    }

    /// Whether `config` is newer than the present one and names this member.
    pub(super) fn may_enter(&self, config: &ChainConfig) -> bool {
        config.chain == self.chain && config.epoch > self.newest && config.role(self.me).is_some()
    }

    pub(super) fn enter(&mut self, config: Arc<ChainConfig>) {
        self.newest = config.epoch;
        self.place = ChainPosition::of(&config, self.me);
        self.config = Some(config);
    }

    pub(super) fn expel(&mut self, epoch: Epoch) {
        (self.newest, self.config, self.place) = (epoch, None, ChainPosition::default());
    }

    pub(super) fn is_expelled(&self) -> bool {
        self.config.is_none() && self.newest > Epoch(0)
    }

    pub(super) fn role_of(&self, id: MemberId) -> Option<Role> {
        self.config.as_ref()?.role(id)
    }

    pub(super) fn serves(&self, id: MemberId) -> bool {
        self.serving().any(|serving| serving == id)
    }

    pub(super) fn serving(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.config.iter().flat_map(|config| config.serving())
    }

    pub(super) fn others(&self) -> impl Iterator<Item = MemberId> + '_ {
        let members = self.config.iter().flat_map(|config| &config.members);
        members.map(|member| member.id).filter(|&id| id != self.me)
    }

    pub(super) fn frame(&self, message: ChainMessage) -> Option<ChainFrame> {
        let config = self.config.as_ref()?;
        Some(ChainFrame { chain: self.chain, epoch: config.epoch, index: config.index, message })
    }
}
