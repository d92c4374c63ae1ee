//! Bounds of the exploration.

use std::fmt;

use artillery_proto::guards::Guards;

/// Number of nodes. All of them serve at first.
pub const NODES: usize = 3;
/// Maximum number of writes, all to one key.
pub const WRITES: usize = 2;

/// The bounds of the exploration, and the guards that are removed.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Number of writes: 0 to [`WRITES`]. The second begins after the first has begun.
    pub writes: usize,
    /// Whether there is a read of the same key.
    pub reads: bool,
    /// Steps of the clock after the chain has opened.
    pub ticks: u64,
    /// Maximum number of nodes that crash or are cut off.
    pub faults: u32,
    /// Whether a fault makes a node or the leader undialable, and does not crash it or cut it off. An undialable node
    /// can still dial others.
    pub undialable: bool,
    /// Maximum number of reorders, each to any other order. The head isn't closed before them, since safety must not
    /// depend on its closing.
    pub reorders: u32,
    /// Maximum number of entries that the configuration log accepts.
    pub changes: u32,
    /// Maximum number of elections. Each begins another term of the coordinator.
    pub elections: u32,
    /// Maximum number of frames in flight on each ordered link.
    pub in_flight: usize,
    /// Whether renewals and their answers may be late. If not, each one is processed in the step in which it is sent.
    pub late_renewals: bool,
    /// The guards of the coordinator.
    pub coordinator: Guards,
    /// The guards of the replicas.
    pub replica: Guards,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            writes: WRITES,
            reads: true,
            ticks: 6,
            faults: 1,
            undialable: false,
            reorders: 0,
            changes: 1,
            elections: 0,
            in_flight: 1,
            late_renewals: false,
            coordinator: Guards::default(),
            replica: Guards::default(),
        }
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { writes, reads, ticks, faults, undialable, reorders, changes, elections, in_flight, .. } = self;
        let faulty = if *undialable { "undialable" } else { "crashed or cut off" };
        let late = if self.late_renewals { "may be late" } else { "are never late" };
        write!(f, "{NODES} nodes, {writes} writes, {} read, {faults} {faulty}, ", u8::from(*reads))?;
        write!(f, "{reorders} reorders, {changes} reconfigurations, ")?;
        write!(f, "{elections} elections, {ticks} steps of the clock, {in_flight} frames in flight on each link, ")?;
        write!(f, "renewals {late}")
    }
}
