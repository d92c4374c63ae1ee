//! Encounters of two clusters with the same name and secret, which were formed while their networks were partitioned
//! (docs/DESIGN.md §5.14).
//!
//! At most one of the two gives way by itself, and only if it is empty: see [`Party::gives_way`]. [`Encounters`] keeps
//! the clusters that the nodes of this one have met. Time is an argument.

mod statement;

use std::{collections::BTreeMap, fmt, net::SocketAddr, time::Duration};

pub use self::statement::Statement;
use crate::{ClusterId, NodeId, Timestamp, guards::Guards};

/// The maximum number of other clusters that a node remembers.
pub const MAX_ENCOUNTERS: usize = 4;

/// A cluster whose nodes were not met for this long is treated as gone.
pub const FORGET_AFTER: Duration = Duration::from_secs(15);

/// This cluster gives way only to a cluster that it has been meeting for this long.
pub const STEADY_AFTER: Duration = Duration::from_secs(5);

/// One of two clusters that meet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Party {
    /// Whether the cluster holds data, or has ever held some. Once true, it stays true; other nodes learn of it with a
    /// delay.
    pub holds_data: bool,
    pub cluster: ClusterId,
}

impl Party {
    /// Whether this cluster gives way to `other` by itself: only if it is empty, and the other one holds data or has
    /// the higher id.
    ///
    /// By the derived order each cluster gives way only to a higher one. Its knowledge of the other one may be old, but
    /// only *holds data* changes, and only upwards. A cluster gives way only once it is certain that it is empty, so
    /// its own rank no longer changes. So of any number of clusters that meet, the highest stays.
    pub fn gives_way(self, other: Self, guards: Guards) -> bool {
        !self.holds_data && (other > self || allows!(guards, BothGiveWay))
    }
}

/// The last contact with a node of another cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meeting {
    pub other: Party,
    /// The name of the node of this cluster that met the other one; `None`: this node.
    pub by: Option<String>,
    /// The other cluster's node and its address, if this node met it.
    pub node: Option<(String, SocketAddr)>,
}

#[derive(Clone, Debug)]
struct Seen {
    holds_data: bool,
    name: String,
    addr: SocketAddr,
    since: Timestamp,
    at: Timestamp,
}

impl Seen {
    fn is_steady(&self) -> bool {
        self.at - self.since >= STEADY_AFTER
    }
}

/// The clusters that the nodes of this one have met.
#[derive(Clone, Debug)]
pub struct Encounters {
    mine: ClusterId,
    is_fixed: bool,
    holds_data: bool,
    seen: BTreeMap<ClusterId, Seen>,
    /// The last statement of each other node of this cluster, with the node's name; `None`: its release makes no
    /// statements.
    told: BTreeMap<NodeId, (String, Option<Statement>)>,
}

impl Encounters {
    /// `is_fixed`: the cluster's configuration never changes, so it can't give way. It is treated as a cluster with
    /// data.
    pub fn new(mine: ClusterId, is_fixed: bool) -> Self {
        Self { mine, is_fixed, holds_data: is_fixed, seen: BTreeMap::new(), told: BTreeMap::new() }
    }

    pub fn hold_data(&mut self) {
        self.holds_data = true;
    }

    /// Records contact with a node of another cluster. Call it only if that node states that its cluster has a
    /// confirmed leader: a cluster without one may never have one again. Further clusters are ignored while
    /// [`MAX_ENCOUNTERS`] are remembered.
    pub fn meet(&mut self, now: Timestamp, other: Party, name: String, addr: SocketAddr) {
        let known = self.seen.get(&other.cluster);
        if other.cluster == self.mine || (known.is_none() && self.seen.len() >= MAX_ENCOUNTERS) {
            return;
        }
        let holds_data = other.holds_data || known.is_some_and(|seen| seen.holds_data);
        let since = known.map_or(now, |seen| seen.since);
        self.seen.insert(other.cluster, Seen { holds_data, name, addr, since, at: now });
    }

    /// Records the statement of another node of this cluster; `None`: its release makes none. Forgets a cluster whose
    /// last met node has this name, since that node has joined this cluster.
    pub fn tell(&mut self, node: NodeId, name: &str, statement: Option<Statement>) {
        self.seen.retain(|_, seen| seen.name != name);
        self.holds_data |= statement.as_ref().is_some_and(|statement| statement.holds_data);
        self.told.insert(node, (name.to_owned(), statement));
    }

    pub fn retain(&mut self, is_member: impl Fn(NodeId) -> bool) {
        self.told.retain(|&node, _| is_member(node));
    }

    pub fn forget(&mut self, now: Timestamp) {
        self.seen.retain(|_, seen| now - seen.at < FORGET_AFTER);
    }

    /// This node's statement to the other nodes of its cluster: the clusters that it has been meeting for
    /// [`STEADY_AFTER`].
    pub fn statement(&self) -> Statement {
        let met = self
            .seen
            .iter()
            .filter(|(_, seen)| seen.is_steady())
            .map(|(&cluster, seen)| Party { cluster, holds_data: seen.holds_data });
        Statement { holds_data: self.holds_data, met: met.collect() }
    }

    /// Addresses of nodes of other clusters, one for each cluster, to be dialled again so that the knowledge stays
    /// fresh.
    pub fn addrs(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.seen.values().map(|seen| seen.addr)
    }

    pub fn mine(&self) -> Party {
        Party { cluster: self.mine, holds_data: self.holds_data }
    }

    /// Every other cluster that nodes of this one have met lately.
    pub fn meetings(&self) -> Vec<Meeting> {
        let mut all = BTreeMap::<ClusterId, Meeting>::new();
        for (&cluster, seen) in &self.seen {
            let other = Party { cluster, holds_data: seen.holds_data };
            let node = Some((seen.name.clone(), seen.addr));
            all.insert(cluster, Meeting { other, by: None, node });
        }
        for (name, statement) in self.told.values() {
            for &other in
                statement.iter().flat_map(|statement| &statement.met).filter(|other| other.cluster != self.mine)
            {
                let new = || Meeting { other, by: Some(name.clone()), node: None };
                let known = all.entry(other.cluster).or_insert_with(new);
                known.other.holds_data |= other.holds_data;
            }
        }
        all.into_values().collect()
    }

    /// The cluster to which this one gives way, if it is empty. Also `None` while a node of this cluster runs a release
    /// without statements: that node wouldn't understand the log entries.
    pub fn outranked(&self, guards: Guards) -> Option<ClusterId> {
        if !self.all_state() {
            return None;
        }
        let is_steady =
            |met: &Meeting| met.by.is_some() || self.seen.get(&met.other.cluster).is_some_and(Seen::is_steady);
        let others = self.meetings().into_iter().filter(is_steady).map(|meeting| meeting.other);
        others.filter(|other| self.mine().gives_way(*other, guards)).max().map(|other| other.cluster)
    }

    /// Whether every other node of this cluster makes statements; a node of an earlier release makes none.
    pub fn all_state(&self) -> bool {
        self.told.values().all(|(_, statement)| statement.is_some())
    }

    /// Whether an operator may give this cluster up: its configuration can change, all its nodes make statements, and
    /// another cluster that holds data is met.
    pub fn may_be_given_up(&self) -> bool {
        !self.is_fixed && self.all_state() && self.meetings().iter().any(|meeting| meeting.other.holds_data)
    }

    /// The reason why this node isn't ready, if it is another cluster. A cluster with data stays ready while none of
    /// the others is known to hold data: those give way by themselves once they are certainly empty.
    pub fn unready(&self) -> Option<Encountered> {
        let mine = self.mine();
        let mut uncertain = self.meetings().into_iter().filter(|meeting| !mine.holds_data || meeting.other.holds_data);
        uncertain.next_back().map(|meeting| self.encountered(meeting.other))
    }

    pub fn encountered(&self, other: Party) -> Encountered {
        Encountered { mine: self.mine(), is_fixed: self.is_fixed, all_state: self.all_state(), other }
    }
}

/// Another cluster with this one's name and secret exists, and it isn't decided yet which one stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encountered {
    /// The node's own cluster, to its knowledge.
    pub mine: Party,
    /// The configuration of the node's own cluster never changes, so it can't give way.
    pub is_fixed: bool,
    /// Every other node of this cluster makes statements. Nodes of an earlier release make none.
    pub all_state: bool,
    pub other: Party,
}

impl fmt::Display for Encountered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mine, other) = (self.mine.cluster, self.other.cluster);
        write!(f, "cluster {other} has the name and secret of this node's cluster {mine}: ")?;
        if self.is_fixed {
            return write!(
                f,
                "this one has a fixed configuration and can't give way: stop all nodes of one of the two, and start them again"
            );
        }
        if !self.all_state {
            return f.write_str("a node of this one runs an earlier release, so neither gives way: update it");
        }
        match (self.mine.holds_data, self.other.holds_data) {
            (true, true) => write!(
                f,
                "both hold data. `artillery-ctl give-up --accept-loss {other}` at a node of that one keeps {mine}, \
                 `artillery-ctl give-up --accept-loss {mine}` at a node of this one keeps {other}; what the named one holds is lost"
            ),
            (true, false) => write!(f, "the other one states no data, and gives way by itself"),
            (false, true) => write!(f, "this node knows of no data in this one, which gives way by itself"),
            (false, false) if mine < other => {
                write!(f, "neither states data; this one gives way by itself")
            }
            (false, false) => write!(f, "neither states data; the other one gives way by itself"),
        }
    }
}

#[cfg(test)]
mod tests;
