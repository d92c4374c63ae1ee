//! What nodes say to whoever leads the configuration log's group, and what they hear.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Founder,
    log::{Configs, LogIndex},
};
use crate::{ChainId, Epoch, MemberId};

/// What a node says again and again: that it lives, what it is by its own knowledge, and what it asks for. Cumulative: a
/// later one says all that an earlier one said.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Renewal {
    /// Counts the renewals of this life of the node; the lease that answers it runs from the moment it was sent.
    pub number: u64,
    /// The highest renewal that was answered: shows that this one was said after that answer came (trap 42).
    pub answered: u64,
    /// Who, in which life, and where it listens.
    pub me: Founder,
    /// The last entry of the configuration log that all of its chains act by.
    pub applied: LogIndex,
    /// It serves nothing any more and never will in this life: it may be removed without waiting for its lease.
    pub leaving: bool,
    /// What its chains ask for as tails.
    pub promotions: Vec<Promotion>,
}

/// The wish of a tail to have the member behind it serve (docs/DESIGN.md §5.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Promotion {
    /// Of which chain.
    pub chain: ChainId,
    /// In which epoch it was asked for: it counts in no other.
    pub epoch: Epoch,
    /// Who is to serve.
    pub member: MemberId,
}

/// The answer to a [`Renewal`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Renewed {
    /// The number of the renewal.
    pub number: u64,
    /// The lease, from the moment at which the renewal was sent; `None`: none is granted.
    pub lease: Option<Duration>,
    /// Who leads, as far as the answerer knows; `None`: it doesn't.
    pub leader: Option<MemberId>,
    /// What the log comes to, if the asker has applied less.
    pub configs: Option<Box<Configs>>,
    /// The answerer leads and knows this life of the asker, all members and all that keep the log are there, and nothing
    /// is about to change.
    pub settled: bool,
}
