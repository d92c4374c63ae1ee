//! Requests of clients to a chain, and the replies.

mod copy;
mod decimal;
mod digest;
mod expected;
mod read;
mod reply;
pub mod retry;
mod routing;
mod script;
mod ttl;
mod write;

pub(crate) use self::decimal::MAX_DECIMAL_BYTES;
#[doc(hidden)]
pub use self::script::bytes_of;
pub use self::{
    copy::{CopyMessage, CopyReply, CopyStep},
    decimal::decimal_sum,
    digest::{DigestCursor, DigestQuery, DigestReply, DigestStep, HashKey, NotAHashKey, PIECE, Sums, pieces},
    expected::Expected,
    read::{HashedQuery, Query, ReadMode, ScanQuery, Snapshot, WatchQuery},
    reply::{
        Computed, HashedReply, MultiGetReply, ReadPath, ReadReply, Refusal, Reply, ScanReply, WatchReply, WriteReply,
    },
    routing::{NodeAddress, Routing},
    script::{GroupFailure, GroupOutcome, Requirement, ScriptGroup, ScriptStep, ScriptWrite, StepOutcome},
    ttl::{ExpireIf, Ttl, millis},
    write::{SEQUENTIAL, Step, Write, sequential_key},
};
