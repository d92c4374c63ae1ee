//! Calls between nodes about the configuration, and their answers.

use bytes::Bytes;

use crate::control::{
    History,
    message::{Renewal, Renewed},
    recovery::Standing,
};

#[allow(clippy::large_enum_variant, reason = "a call is encoded where it is made")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlCall {
    /// A renewal of the sender's lease; with the sender's history, if it has one yet.
    Renewal(Option<History>, Renewal),
    /// A message of the group that keeps the configuration log.
    Log(Bytes),
    /// Asks what data the receiver holds, in case the other nodes are lost permanently.
    Survey,
}

/// The answer to a call. A node without an answer closes the stream instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlAnswer {
    /// To [`ControlCall::Renewal`]; with the history of the answering node, if it has one yet.
    Renewed(Option<History>, Box<Renewed>),
    Log(Bytes),
    Surveyed(Box<Standing>),
    /// To a node whose history has ended: the cluster was recovered, and this is the new history.
    OtherHistory(History),
    /// To a node whose store is older than a state that it reported before: its directory was restored from an older
    /// copy.
    RolledBack,
}
