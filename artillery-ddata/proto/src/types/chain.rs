//! The configuration of one chain, as stored in the configuration log.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Epoch, MemberId};

/// The number of a chain in its cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct ChainId(pub u32);

/// Which members serve strong reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Mode {
    /// Every serving member, by apportioned reads of clean and dirty versions (Terrace & Freedman 2009, §2.3).
    #[default]
    Craq,
    /// Only the tail: classic chain replication (van Renesse & Schneider 2004), the baseline of the benchmarks' graphs.
    Classic,
}

/// The role of a member in its chain. Learners and witnesses are reserved, so more roles may follow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Role {
    /// Holds every committed update and may serve.
    Serving,
    /// Catches up behind the tail; at most one member.
    Syncing,
    /// Reserved: follows permanently and never serves strong reads.
    Learner,
    /// Reserved: keeps versions without values.
    Witness,
}

/// A member's position in its chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Place {
    /// The first serving member, which orders updates. The only member of a chain of one has this place.
    Head,
    /// A serving member between head and tail.
    Middle,
    /// The last serving member, which commits updates.
    Tail,
    /// Behind the tail, catching up.
    Syncing,
    /// Not a member of the chain, or a member in a reserved role.
    Spare,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Head => "head",
            Self::Middle => "middle",
            Self::Tail => "tail",
            Self::Syncing => "syncing",
            Self::Spare => "spare",
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ChainMember {
    /// The node and its incarnation.
    pub id: MemberId,
    pub role: Role,
}

/// One configuration of a chain: the ordered members of one epoch.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ChainConfig {
    pub chain: ChainId,
    pub epoch: Epoch,
    /// The index of the log entry that created this configuration.
    pub index: u64,
    /// Which members serve strong reads.
    pub mode: Mode,
    /// The head refuses writes if fewer members serve. The lower bits are that number, which [`fewest`](Self::fewest)
    /// returns; the two highest bits state that the chain is [sealed](Self::is_sealed) or [over](Self::is_over). An
    /// earlier release reads such a value as an unreachable number of members, and therefore refuses writes too.
    pub min_members: u32,
    /// Head first; serving members before all others.
    pub members: Vec<ChainMember>,
}

/// The bit of [`ChainConfig::min_members`] that marks a sealed chain.
const SEALED: u32 = 1 << 31;

/// The bit of [`ChainConfig::min_members`] that marks a chain that is over.
const OVER: u32 = 1 << 30;

impl ChainConfig {
    /// The lowest number of serving members with which the head orders writes.
    pub fn fewest(&self) -> u32 {
        self.min_members & !(SEALED | OVER)
    }

    /// Whether no member orders updates in this epoch: the cluster may be about to give way to another one, or has done
    /// so (docs/DESIGN.md §5.14).
    pub fn is_sealed(&self) -> bool {
        self.min_members & (SEALED | OVER) != 0
    }

    /// Whether the chain's cluster has permanently given way to another one.
    pub fn is_over(&self) -> bool {
        self.min_members & OVER != 0
    }

    /// The same configuration, sealed.
    #[must_use]
    pub fn sealed(&self) -> Self {
        Self { min_members: self.min_members | SEALED, ..self.clone() }
    }

    /// The same configuration without the seal. A chain that is over stays closed to writes.
    #[must_use]
    pub fn unsealed(&self) -> Self {
        Self { min_members: self.min_members & !SEALED, ..self.clone() }
    }

    /// The same configuration, marked as over.
    #[must_use]
    pub fn over(&self) -> Self {
        Self { min_members: self.fewest() | OVER, ..self.clone() }
    }

    /// The serving members, head first.
    pub fn serving(&self) -> impl DoubleEndedIterator<Item = MemberId> + '_ {
        self.members.iter().filter(|member| member.role == Role::Serving).map(|member| member.id)
    }

    /// The first serving member, which orders updates.
    pub fn head(&self) -> Option<MemberId> {
        self.serving().next()
    }

    /// The last serving member, which commits updates.
    pub fn tail(&self) -> Option<MemberId> {
        self.serving().next_back()
    }

    /// The member that catches up behind the tail.
    pub fn syncing(&self) -> Option<MemberId> {
        self.members.iter().find(|member| member.role == Role::Syncing).map(|member| member.id)
    }

    /// The role of this exact incarnation.
    pub fn role(&self, id: MemberId) -> Option<Role> {
        self.members.iter().find(|member| member.id == id).map(|member| member.role)
    }

    /// The place of this exact incarnation.
    pub fn place(&self, id: MemberId) -> Place {
        match self.role(id) {
            Some(Role::Serving) if self.head() == Some(id) => Place::Head,
            Some(Role::Serving) if self.tail() == Some(id) => Place::Tail,
            Some(Role::Serving) => Place::Middle,
            Some(Role::Syncing) => Place::Syncing,
            _ => Place::Spare,
        }
    }

    /// The member from which `id` receives updates; for a syncing member, the tail.
    pub fn predecessor(&self, id: MemberId) -> Option<MemberId> {
        let at = self.link_order().position(|member| member == id)?;
        at.checked_sub(1).and_then(|before| self.link_order().nth(before))
    }

    /// The member to which `id` sends updates.
    pub fn successor(&self, id: MemberId) -> Option<MemberId> {
        let at = self.link_order().position(|member| member == id)?;
        self.link_order().nth(at + 1)
    }

    fn link_order(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.serving().chain(self.syncing())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{chain, id as member};

    fn config(roles: &[Role]) -> ChainConfig {
        chain(1, roles.iter().enumerate().map(|(n, &role)| ChainMember { id: member(n as u8), role }))
    }

    #[test]
    fn a_seal_leaves_the_fewest_members_as_they_are() {
        let open = ChainConfig { min_members: 2, ..config(&[Role::Serving]) };
        let (sealed, over) = (open.sealed(), open.sealed().over());
        assert!(!open.is_sealed() && sealed.is_sealed() && over.is_sealed() && !sealed.is_over() && over.is_over());
        assert_eq!([open.fewest(), sealed.fewest(), over.fewest()], [2; 3]);
        assert_eq!(sealed.unsealed(), open);
        assert!(over.unsealed().is_over(), "a chain that is over stays over");
    }

    #[test]
    fn order_is_head_to_tail() {
        let config = config(&[Role::Serving, Role::Serving, Role::Serving, Role::Syncing]);
        assert_eq!(config.head(), Some(member(0)));
        assert_eq!(config.tail(), Some(member(2)));
        let places: Vec<_> = (0..5).map(|n| config.place(member(n))).collect();
        assert_eq!(places, [Place::Head, Place::Middle, Place::Tail, Place::Syncing, Place::Spare]);
        assert_eq!(config.predecessor(member(0)), None);
        assert_eq!(config.successor(member(0)), Some(member(1)));
        assert_eq!(config.successor(member(2)), Some(member(3)), "the joiner follows the tail");
        assert_eq!(config.predecessor(member(3)), Some(member(2)));
        assert_eq!(config.successor(member(3)), None);
    }

    #[test]
    fn another_incarnation_has_no_role() {
        let config = config(&[Role::Serving]);
        let mut other = member(0);
        other.incarnation.starts += 1;
        assert_eq!(config.role(member(0)), Some(Role::Serving));
        assert_eq!(config.role(other), None);
        assert_eq!(config.predecessor(other), None);
    }

    #[test]
    fn a_chain_of_one_is_head_and_tail() {
        let config = config(&[Role::Serving]);
        assert_eq!(config.head(), config.tail());
        assert_eq!(config.successor(member(0)), None);
    }
}
