//! Where a member stands in its chain.

use crate::{ChainConfig, MemberId, Mode, Role};

/// Where this member stands in the configuration that it entered.
#[derive(Clone, Copy, Debug, Default)]
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
    pub(super) fn of(config: &ChainConfig, me: MemberId) -> Self {
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

    /// Whether it is head and tail.
    pub(super) fn is_alone(&self) -> bool {
        self.is_head && self.is_tail
    }

    pub(super) fn serves_local_reads(&self, mode: Mode) -> bool {
        self.serves() && (self.is_tail || mode != Mode::Classic)
    }
}
