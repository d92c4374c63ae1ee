//! Events in plain English.

use std::fmt;

use super::{EventNode, MoveReason, NodeEvent};
use crate::node::waiting;

impl fmt::Display for EventNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Display for NodeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MemberLost { node, silent: Some(silent) } => {
                write!(f, "node {node} is lost: no answer for {:.1} s", silent.as_secs_f64())
            }
            Self::MemberLost { node, silent: None } => {
                write!(f, "node {node} is lost: it gives other nodes no answer, or has started again")
            }
            Self::MemberFound { node } => write!(f, "node {node} answers again"),
            Self::MemberReplaced { node } => write!(f, "node {node} was started again: a later start replaces it"),
            Self::MemberLeft { node } => write!(f, "node {node} has left"),
            Self::MovedOut { chain, node, is_this, why } => {
                let node = named(node, *is_this, "was");
                write!(f, "{node} moved out of chain {}", chain.0)?;
                why.map_or(Ok(()), |why| write!(f, ": {why}"))
            }
            Self::Promoted { chain, node, is_this } => {
                let (node, chain) = (named(node, *is_this, "has"), chain.0);
                write!(f, "{node} copied the data of chain {chain} and serves it now")
            }
            Self::MajorityLost { away, voters } => {
                let (count, names) = (away.len(), away.join(", "));
                write!(
                    f,
                    "the majority is lost: {count} of {voters} voters of the configuration log give no answer ({names}); until a \
                     majority is back, strong reads are refused when leases end, and no lost member is removed"
                )
            }
            Self::LeaseLost => {
                f.write_str("this node's lease has ended: until it is renewed, other members must answer strong reads")
            }
            Self::ServesNoLonger { waiting_for } => {
                write!(f, "this node serves no longer: {}", waiting::line(waiting_for))
            }
            Self::ServesAgain => f.write_str("this node serves again"),
            Self::Omitted { count } => write!(f, "{count} more events followed too quickly to be reported one by one"),
            Self::Lagged { missed } => write!(f, "{missed} events were missed: this reader was too slow"),
        }
    }
}

fn named(node: &EventNode, is_this: bool, verb: &str) -> String {
    if is_this { format!("this node {verb}") } else { format!("node {node} {verb}") }
}

impl fmt::Display for MoveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "it gives no answer",
            Self::Left => "it leaves",
            Self::Deaf => "it is reached, but receives no answers",
            Self::Unreached => "updates don't get through between it and its neighbour",
            Self::Slow => "it alone makes the chain slow",
            Self::Disk => "its disk makes the chain slow, or stops it",
            Self::Halted => "it stopped serving",
            Self::Reopened => "the chain was opened again without it",
        })
    }
}
