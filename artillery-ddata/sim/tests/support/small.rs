//! What small worlds of replicas and links have in common: their members, how these begin, and what frames weigh.

use std::sync::Arc;

use artillery_proto::{
    ChainConfig, ChainId, ChainMember, Epoch, Incarnation, MemberId, Mode, NodeId, Role, Timestamp,
    replica::Input,
    update::Update,
    wire::message::{ChainFrame, ChainMessage},
};

pub(crate) const MEMBERS: usize = 3;
/// As many frames wait for a stream as in the driver.
pub(crate) const FRAMES: usize = 4;
/// What a frame takes up besides its updates, generously.
pub(crate) const FRAME: usize = 256;
pub(crate) const FAR: Timestamp = Timestamp::from_nanos(u64::MAX / 2);

pub(crate) fn member(n: usize) -> MemberId {
    MemberId { node: NodeId::from_name(&format!("n{n}")), incarnation: Incarnation { store: 1, starts: 1 } }
}

/// What a member is told first: that its lease never ends, that all others are connected, and who serves the chain.
pub(crate) fn beginning(n: usize, chain: ChainId) -> Vec<Input> {
    let members = (0..MEMBERS).map(|n| ChainMember { id: member(n), role: Role::Serving }).collect();
    let config = ChainConfig { chain, epoch: Epoch(1), index: 1, mode: Mode::Craq, min_members: 1, members };
    let others = (0..MEMBERS).filter(|&other| other != n).map(|other| Input::Connected(member(other)));
    [Input::Lease(Timestamp::MAX)].into_iter().chain(others).chain([Input::Enter(Arc::new(config))]).collect()
}

/// The bytes that a frame takes up on a link.
pub(crate) fn size(frame: &ChainFrame) -> usize {
    FRAME
        + match &frame.message {
            ChainMessage::Updates(updates) => updates.updates.iter().map(Update::cost).sum(),
            ChainMessage::Chunk(chunk) => chunk.bytes.len(),
            ChainMessage::Snapshot(_) | ChainMessage::Control(_) => 0,
        }
}
