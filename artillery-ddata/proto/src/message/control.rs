//! Calls between nodes about the configuration, and their answers.

use bytes::Bytes;

use crate::control::{
    History,
    message::{Renewal, Renewed},
    recovery::Standing,
};

/// What one node asks of another one.
#[allow(clippy::large_enum_variant, reason = "a call is encoded where it is made")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlCall {
    /// The sender is alive, and asks for a lease; with its history, if it has one yet.
    Renewal(Option<History>, Renewal),
    /// A message of the group that keeps the log.
    Log(Bytes),
    /// Asks what the receiver has, in case the others are lost for good.
    Survey,
}

/// The answer of the other node. A node that has no answer ends the stream instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlAnswer {
    /// To [`ControlCall::Renewal`]; with the history of the answering node, if it has one yet.
    Renewed(Option<History>, Box<Renewed>),
    /// To [`ControlCall::Log`].
    Log(Bytes),
    /// To [`ControlCall::Survey`].
    Surveyed(Box<Standing>),
    /// To a node of a history that is over: the cluster was recovered as this one.
    OtherHistory(History),
    /// To a node whose store has less than it had before: its directory is an older copy.
    RolledBack,
}
