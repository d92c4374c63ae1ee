//! Sets of nodes.

use std::fmt;

use super::fault::name;

/// Nodes as a bit set of their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct NodeSet(u16);

impl NodeSet {
    pub(super) fn of(node: usize) -> Self {
        Self(1 << node)
    }

    /// The first `count` nodes.
    pub(super) fn all(count: usize) -> Self {
        (0..count).collect()
    }

    pub(super) fn contains(self, node: usize) -> bool {
        self.0 & (1 << node) != 0
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        (0..u16::BITS as usize).filter(move |node| self.contains(*node))
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(nodes: I) -> Self {
        nodes.into_iter().fold(Self::default(), |set, node| set.and(Self::of(node)))
    }
}

impl fmt::Display for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iter().map(name).collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_their_nodes_and_no_others() {
        let set: NodeSet = [0, 2, 8].into_iter().collect();
        assert_eq!((set.len(), set.to_string()), (3, "n1 n3 n9".to_owned()));
        assert!(set.contains(8) && !set.contains(1));
        assert_eq!(NodeSet::all(3).without(set), NodeSet::of(1));
        assert!(set.without(NodeSet::all(9)).is_empty());
        assert_eq!(set.and(NodeSet::of(1)).iter().collect::<Vec<_>>(), [0, 1, 2, 8]);
    }
}
