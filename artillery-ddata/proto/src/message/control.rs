//! Calls between nodes about the configuration, and their answers.

use bytes::Bytes;

use crate::control::{
    History,
    message::{Renewal, Renewed},
    recovery::Standing,
};

/// What one node asks of another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlCall {
    /// It lives, and asks for a lease; of which history it is, if of any yet.
    Renewal(Option<History>, Renewal),
    /// A message of the group that keeps the log.
    Log(Bytes),
    /// What has it, in case that others are lost for good?
    Survey,
}

/// What the other one says to it. Who has nothing to say ends the stream instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlAnswer {
    /// To [`ControlCall::Renewal`], and of which history the one is who says it, if of any yet.
    Renewed(Option<History>, Box<Renewed>),
    /// To [`ControlCall::Log`].
    Log(Bytes),
    /// To [`ControlCall::Survey`].
    Surveyed(Box<Standing>),
    /// To whoever belongs to a history that is over: the cluster was recovered as this one.
    OtherHistory(History),
}
