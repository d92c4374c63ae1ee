//! Shared code for small worlds of chains and links: members, their first input, and frame sizes.

use std::sync::Arc;

use artillery_proto::{
    ChainConfig, ChainId, ChainMember, ClusterId, Epoch, Incarnation, MemberId, Mode, NodeId, Role, Timestamp,
    control::log::LogIndex,
    message::{ChainFrame, ChainMessage},
    runner::{ChainOrder, Lease, LinkChange, ReadRequest, Turn, WriteRequest},
    types::update::Update,
};

pub(crate) const MEMBERS: usize = 3;
/// Number of frames that may wait for a stream, as in the driver.
pub(crate) const FRAMES: usize = 4;
/// Generous size of a frame without its updates, in bytes.
pub(crate) const FRAME: usize = 256;
pub(crate) const FAR: Timestamp = Timestamp::from_nanos(u64::MAX / 2);

pub(crate) type Received = Turn<ReadRequest<u64>, WriteRequest<u64>>;

pub(crate) fn member(n: usize) -> MemberId {
    MemberId { node: NodeId::from_name(&format!("n{n}")), incarnation: Incarnation { store: 1, starts: 1 } }
}

/// The first input of a member: a permanent lease, connections to all others, and the configuration.
pub(crate) fn beginning(n: usize, chain: ChainId) -> Received {
    let members = (0..MEMBERS).map(|n| ChainMember { id: member(n), role: Role::Serving }).collect();
    let config = ChainConfig { chain, epoch: Epoch(1), index: 1, mode: Mode::Craq, min_members: 1, members };
    let (config, history, upto) = (Arc::new(config), ClusterId(1), LogIndex(1));
    Received {
        lease: Some(Lease { until: Timestamp::MAX, ..Lease::default() }),
        links: (0..MEMBERS).filter(|&other| other != n).map(|other| LinkChange::Up(member(other))).collect(),
        orders: vec![ChainOrder::Enter { config, history, upto }],
        ..Received::default()
    }
}

pub(crate) fn size(frame: &ChainFrame) -> usize {
    FRAME
        + match &frame.message {
            ChainMessage::Updates(updates) => updates.updates.iter().map(Update::cost).sum(),
            ChainMessage::Chunk(chunk) => chunk.bytes.len(),
            ChainMessage::Snapshot(_) | ChainMessage::Control(_) | ChainMessage::Durable(_) | ChainMessage::Full(_) => {
                0
            }
        }
}
