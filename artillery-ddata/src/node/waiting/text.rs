//! The reasons in plain English.

use std::fmt;

use artillery_core::{
    SeedState,
    error::{ConnectError, Refusal},
};

use super::WaitingFor;

impl fmt::Display for WaitingFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MoreNodes { seen, expected, by } => {
                let more = usize::from(*expected).saturating_sub(*seen);
                let nodes = if more == 1 { "node is" } else { "nodes are" };
                write!(f, "{more} more {nodes} needed to form the cluster: {seen} of {expected} found")?;
                by.map_or(Ok(()), |by| write!(f, " (node {by} expects this number)"))
            }
            Self::Search => f.write_str("this node looks for others before it forms a cluster"),
            Self::OtherSettings { node } => {
                write!(
                    f,
                    "node {node} was started with other settings of the chains (their number, replicas, mode or least members)"
                )
            }
            Self::Agreement => f.write_str("the nodes agree on forming the cluster"),
            Self::ExistingCluster { free, has_directory } => existing(f, *free, *has_directory),
            Self::Successor { after } => write!(
                f,
                "this node waits for a node of the cluster that it joins, since its cluster {after} was given up; if there is none, start \
                 it again with its usual settings"
            ),
            Self::Seed(seed) => {
                write!(f, "seed {}: ", seed.seed)?;
                match &seed.state {
                    SeedState::Trying { last: Some(why) } => f.write_str(&escaped(why)),
                    SeedState::Refused { reason, .. } => f.write_str(&refusal(reason)),
                    SeedState::Met(_) => f.write_str("a member answered"),
                    SeedState::Itself => f.write_str("this node itself"),
                    _ => f.write_str("no answer yet"),
                }
            }
            Self::NoMulticast { why } => write!(f, "nodes can be found by seeds only: {}", escaped(why)),
            Self::Refused(peer) => write!(f, "node at {}: {}", peer.addr, refusal(&peer.reason)),
            Self::Loading(loading) => {
                let step = if loading.checks { "checks" } else { "loads" };
                let (read, total) = (loading.read_bytes, loading.total_bytes);
                write!(f, "this node {step} its directory: {read} of {total} bytes")
            }
            Self::Majority { away, voters } => {
                let (count, names) = (away.len(), away.join(", "));
                write!(f, "no majority: {count} of {voters} voters of the configuration log give no answer ({names})")
            }
            Self::Leader => f.write_str("no leader of the configuration log answers this node"),
            Self::Copy { chain, records: None } => write!(f, "this node joins chain {}", chain.0),
            Self::Copy { chain, records: Some(records) } => {
                write!(f, "this node joins chain {} and has copied {records} records", chain.0)
            }
            Self::NotOpen { chain } => write!(f, "chain {} is not open at this node", chain.0),
            Self::NoLease { chain } => write!(f, "this node has no lease for chain {}", chain.0),
            Self::Halted { chain, why } => write!(f, "chain {} has stopped serving at this node: {why}", chain.0),
            Self::Member => f.write_str("no member of a chain has answered this node"),
            Self::Confirmation => f.write_str("the leader has not yet confirmed that the cluster is settled"),
            Self::Unsettled { why } | Self::AnotherCluster { why, .. } => f.write_str(why),
            Self::Stopped { why } => write!(f, "this node has stopped: {why}"),
        }
    }
}

fn existing(f: &mut fmt::Formatter<'_>, free: usize, has_directory: bool) -> fmt::Result {
    let lacks = if has_directory { "its directory holds no cluster" } else { "it has no directory" };
    write!(
        f,
        "this node waits for a node of its cluster: by its settings the cluster exists, {lacks}, and it creates none ({free} other \
         nodes without a cluster); if its volume is missing, stop it and mount the volume"
    )
}

/// A refusal, as seen from this node.
fn refusal(reason: &ConnectError) -> String {
    match reason {
        ConnectError::Untrusted(why)
        | ConnectError::Refused(Refusal::Untrusted(why))
        | ConnectError::Rejected(Refusal::Untrusted(why)) => {
            format!("its secret or certificates differ from this node's ({})", escaped(why))
        }
        ConnectError::Refused(Refusal::DifferentClusterName { here: theirs, there: ours })
        | ConnectError::Rejected(Refusal::DifferentClusterName { here: ours, there: theirs }) => {
            format!("the cluster's name differs: {theirs:?} there, {ours:?} here")
        }
        ConnectError::Refused(Refusal::DifferentCluster { here: theirs, there: ours })
        | ConnectError::Rejected(Refusal::DifferentCluster { here: ours, there: theirs }) => {
            format!("it belongs to another cluster of this name: {theirs} there, {ours} here")
        }
        ConnectError::Refused(why) => format!("it refused this node: {}", escaped(&why.to_string())),
        ConnectError::Rejected(why) => format!("this node refused it: {}", escaped(&why.to_string())),
        other => escaped(&other.to_string()),
    }
}

/// A reason may contain text of another host. No character of it may end the line or change how a terminal shows it.
fn escaped(text: &str) -> String {
    let is_plain = |c: char| matches!(c, '\'' | '"');
    text.chars().flat_map(|c| if is_plain(c) { vec![c] } else { c.escape_debug().collect() }).collect()
}
