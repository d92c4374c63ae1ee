use std::collections::{BTreeMap, BTreeSet};

use super::{
    CoordinatorSettings,
    accepted_loss::LossOrder,
    give_way::Sealing,
    known_node::KnownNode,
    suspicion::{Quarantine, Watched},
    wish::Wish,
};
use crate::{ChainId, MemberId, NodeId, Timestamp};

/// The leader's knowledge at the time of a decision.
pub(super) struct View<'a> {
    pub(super) now: Timestamp,
    pub(super) me: MemberId,
    pub(super) voters: &'a BTreeSet<MemberId>,
    /// When its term began.
    pub(super) since: Timestamp,
    pub(super) nodes: &'a BTreeMap<MemberId, KnownNode>,
    /// Per node: when the latest message of the log that it has answered was sent.
    pub(super) answered: &'a BTreeMap<MemberId, Timestamp>,
    pub(super) fenced: &'a BTreeMap<MemberId, u64>,
    /// The newest round in which a quorum has confirmed that this node leads.
    pub(super) confirmed: u64,
    pub(super) watched: &'a BTreeMap<ChainId, Watched>,
    pub(super) reorder: Option<&'a Wish>,
    pub(super) loss: Option<&'a LossOrder>,
    pub(super) sealing: &'a Sealing,
    pub(super) outside: &'a BTreeMap<NodeId, Quarantine>,
    pub(super) settings: &'a CoordinatorSettings,
}
