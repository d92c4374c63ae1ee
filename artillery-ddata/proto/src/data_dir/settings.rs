use crate::{NodeId, guards::Guards, journal::SyncMode};

#[derive(Debug, Clone)]
pub struct OpenSettings {
    pub node: NodeId,
    /// When the journal is made durable.
    pub mode: SyncMode,
    /// A group that would make a segment of the journal longer than this, in bytes, begins a new segment.
    pub segment_bytes: u64,
    /// Bytes of updates that the journal may hold in addition to the data before it is shortened.
    pub room: u64,
    /// Bytes of the disk that clients' data never uses. A quarter of them is ballast, which other programs can't use
    /// either.
    pub reserve: u64,
    /// The maximum size of the journal in bytes before the disk is considered full.
    pub most: u64,
    /// Bytes of committed updates that each chain keeps for resends.
    pub backlog: usize,
    pub guards: Guards,
}

impl OpenSettings {
    /// The settings of a check, which writes nothing.
    pub const fn new(node: NodeId) -> Self {
        Self {
            node,
            mode: SyncMode::Batch,
            segment_bytes: u64::MAX,
            room: u64::MAX,
            reserve: 0,
            most: u64::MAX,
            backlog: 0,
            guards: Guards::ALL,
        }
    }
}
