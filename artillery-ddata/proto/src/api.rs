//! What a client asks of a chain, and what it is answered.

mod expected;
mod read;
mod reply;
pub mod retry;
mod routing;
mod script;
mod write;

#[doc(hidden)]
pub use self::script::bytes_of;
pub use self::{
    expected::Expected,
    read::{Hashed, Query, ReadMode, Scan, Snapshot, Watch},
    reply::{Changes, Committed, Computed, Cut, HashedPage, Page, Read, Refusal, Reply, Way},
    routing::{NodeAddress, Routing},
    script::{Group, GroupFailure, GroupOutcome, Requirement, Script, ScriptStep, StepOutcome},
    write::{Step, Write},
};
